//! The verbs objects beside a stand-in for libibverbs: what it is handed, in which order objects end, and what
//! each refusal says. RDMA between machines is the ring's.

#![cfg(feature = "rdma")]
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "common/stand_in.rs"]
mod stand_in;

use std::path::Path;
use std::process::Command;

use hairpin_mesh::verbs::{Completion, Error, Path as Way, Verbs};
use stand_in::libraries;

/// Runs `body` where the stand-in is what is loaded: starts this program again for the test `name` alone,
/// which then comes here a second time. The file with the calls is given.
fn beside_stand_in(name: &str, refuse: &str, body: impl FnOnce(&dyn Fn() -> Vec<String>)) {
    const INSIDE: &str = "HAIRPIN_MESH_STAND_IN";
    if std::env::var_os(INSIDE).is_some() {
        let record = std::env::var_os("RECORD").unwrap();
        body(&|| {
            let text = std::fs::read_to_string(Path::new(&record)).unwrap_or_default();
            text.lines().map(str::to_owned).collect()
        });
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let events = folder.path().join("events");
    std::fs::write(&events, "").unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(INSIDE, "1")
        .env("LD_LIBRARY_PATH", libraries())
        .env("RECORD", folder.path().join("record"))
        .env("EVENTS", &events)
        .env("DEVICES", "rocep1s0f0")
        .env("REFUSE", refuse)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complained}");
    assert!(said.contains("1 passed"), "{said}{complained}");
}

fn way() -> Way {
    Way {
        gid: "::ffff:10.10.2.11".parse().unwrap(),
        qp_number: 2,
        packet_number: 0x12_3456,
        mtu: 4096,
        flow_label: 16383,
        gid_index: 3,
        hop_limit: 64,
        traffic_class: 0,
        port: 1,
    }
}

#[test]
fn a_queue_pair_is_brought_to_its_peer_by_these_attributes_and_everything_ends_in_order() {
    let name =
        "a_queue_pair_is_brought_to_its_peer_by_these_attributes_and_everything_ends_in_order";
    beside_stand_in(name, "", |record| {
        {
            let verbs = Verbs::load().unwrap();
            let device = verbs.open(&"rocep1s0f0".parse().unwrap()).unwrap();
            let domain = device.domain().unwrap();
            let queue = device.queue(4).unwrap();
            let memory = domain.memory(8).unwrap();
            assert_eq!((memory.length(), memory.rkey()), (8, 2));
            let pair = domain.queue_pair(&queue, 4, 220).unwrap();
            let pair = pair.connect(&way(), 0xab_cdef).unwrap();
            assert_eq!(pair.flow_label().unwrap(), 16383);
            // To itself: what is written from the second half is in the first.
            for at in 0..4 {
                memory.write(4 + at, 7 + at as u8);
            }
            pair.write(9, &memory, 4, 4, memory.address(0), memory.rkey())
                .unwrap();
            assert_eq!(queue.poll().unwrap(), Some(Completion::Done(9)));
            assert_eq!(queue.poll().unwrap(), None);
            assert_eq!(
                (0..4).map(|at| memory.read(at)).collect::<Vec<_>>(),
                [7, 8, 9, 10]
            );
        }
        // IBV_QP_STATE 1, ACCESS_FLAGS 8, PKEY_INDEX 16, PORT 32, AV 128, PATH_MTU 256, TIMEOUT 512, RETRY_CNT 1024,
        // RNR_RETRY 2048, RQ_PSN 4096, MAX_QP_RD_ATOMIC 8192, MIN_RNR_TIMER 32768, SQ_PSN 65536,
        // MAX_DEST_RD_ATOMIC 131072, DEST_QPN 1048576; IBV_ACCESS_LOCAL_WRITE 1, REMOTE_WRITE 2; IBV_MTU_4096 5.
        assert_eq!(
            record(),
            [
                "open_device rocep1s0f0",
                "create_cq depth 4",
                "reg_mr 8 bytes access 3",
                "create_qp type 2 send 4 receive 1 inline 220",
                "modify_qp INIT mask 0x39 port 1 access 2 mtu 0 peer 0 rq_psn 0 sq_psn 0 dest_rd 0 rd 0 rnr_timer 0 \
                 timeout 0 retry 0 rnr 0 global 0 gid_index 0 label 0 hops 0 class 0",
                "modify_qp RTR mask 0x129181 port 1 access 0 mtu 5 peer 2 rq_psn 1193046 sq_psn 0 dest_rd 1 rd 0 \
                 rnr_timer 12 timeout 0 retry 0 rnr 0 global 1 gid_index 3 label 16383 hops 64 class 0",
                "modify_qp RTS mask 0x12e01 port 0 access 0 mtu 0 peer 0 rq_psn 0 sq_psn 11259375 dest_rd 0 rd 1 \
                 rnr_timer 0 timeout 14 retry 7 rnr 0 global 0 gid_index 0 label 0 hops 0 class 0",
                "destroy_qp 1",
                "dereg_mr",
                "destroy_cq",
                "close_device",
            ]
        );
    });
}

#[test]
fn a_peer_that_cannot_be_reached_is_named_with_the_state_that_was_not() {
    for (state, errno, words) in [
        ("RTR", libc::ETIMEDOUT, "ARP for the next hop"),
        ("RTR", libc::ENETUNREACH, "no route"),
        ("RTR", libc::EINVAL, "GID index, path MTU"),
        ("INIT", libc::EIO, "initialised anew"),
    ] {
        let name = "a_peer_that_cannot_be_reached_is_named_with_the_state_that_was_not";
        let inside = std::env::var("REFUSE");
        let refuse = format!("modify_qp_{state}:{errno}");
        if inside.as_ref().is_ok_and(|inside| *inside != refuse) {
            continue;
        }
        beside_stand_in(name, &refuse, |record| {
            let verbs = Verbs::load().unwrap();
            let device = verbs.open(&"rocep1s0f0".parse().unwrap()).unwrap();
            let domain = device.domain().unwrap();
            let queue = device.queue(4).unwrap();
            let pair = domain.queue_pair(&queue, 4, 0).unwrap();
            let error = pair.connect(&way(), 1).err().unwrap();
            assert!(matches!(error, Error::Connect { .. }));
            let text = error.to_string();
            let start = format!(
                "ibv_modify_qp to {state} of rocep1s0f0, GID index 3, peer 0000:0000:0000:0000:0000:ffff:0a0a:020b: "
            );
            assert!(text.starts_with(&start) && text.contains(words), "{text}");
            assert_eq!(record().last().unwrap(), "destroy_qp 1");
        });
    }
}

#[test]
fn a_write_that_fails_says_why_and_memory_has_bounds() {
    let name = "a_write_that_fails_says_why_and_memory_has_bounds";
    beside_stand_in(name, "write:1", |_| {
        let verbs = Verbs::load().unwrap();
        let device = verbs.open(&"rocep1s0f0".parse().unwrap()).unwrap();
        let domain = device.domain().unwrap();
        let queue = device.queue(4).unwrap();
        for length in [0, hairpin_mesh::verbs::LARGEST_MEMORY + 1, usize::MAX] {
            assert!(domain.memory(length).is_err(), "{length}");
        }
        let memory = domain.memory(8).unwrap();
        let pair = domain.queue_pair(&queue, 4, 0).unwrap();
        let pair = pair.connect(&way(), 1).unwrap();
        pair.write(1, &memory, 0, 8, memory.address(0), memory.rkey())
            .unwrap();
        let completion = queue.poll().unwrap();
        // IBV_WC_RETRY_EXC_ERR
        let wanted = Completion::Failed {
            status: 12,
            vendor_err: 0x81,
            text: "transport retry counter exceeded".into(),
        };
        assert_eq!(completion, Some(wanted));
        let outside = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pair.write(2, &memory, 4, 5, memory.address(0), memory.rkey())
        }));
        assert!(
            outside.is_err(),
            "a write from outside the memory was posted"
        );
    });
}
