//! A reliable connected queue pair, and RDMA writes on it.

use std::io;
use std::ptr::NonNull;

use super::{Domain, Error, Memory, Path, Queue, native};

/// A reliable connected (RC) queue pair. Its states follow each other by type: [`Fresh`] is connected
/// to become [`Connected`].
pub struct Fresh<'p>(Pair<'p>);

/// A queue pair that may write to its peer.
pub struct Connected<'p>(Pair<'p>);

struct Pair<'p> {
    qp: NonNull<native::Qp>,
    domain: &'p Domain<'p>,
    /// How many bytes a write may carry in itself.
    in_itself: u32,
}

impl Domain<'_> {
    /// An RC queue pair whose writes complete on `queue`: at most `depth` at once, which may carry
    /// `in_itself` bytes in themselves where the device can.
    pub fn queue_pair<'p>(
        &'p self,
        queue: &'p Queue<'_>,
        depth: u16,
        in_itself: u32,
    ) -> Result<Fresh<'p>, Error> {
        let mut qp = std::ptr::null_mut();
        let mut there = in_itself;
        // SAFETY: domain and queue live while they are borrowed, which the queue pair does.
        let code = unsafe {
            native::hm_qp_create(
                self.pd.as_ptr(),
                queue.cq.as_ptr(),
                u32::from(depth.max(1)),
                &raw mut there,
                &raw mut qp,
            )
        };
        match NonNull::new(qp) {
            Some(qp) if code == 0 => Ok(Fresh(Pair {
                qp,
                domain: self,
                in_itself: there.min(in_itself),
            })),
            _ => Err(self
                .device
                .failed("ibv_create_qp", io::Error::from_raw_os_error(code))),
        }
    }
}

/// How long a packet may be on its way: `4.096 us * 2^TIMEOUT` (IBTA 9.7.6.1.3), 67 ms; with
/// [`RETRIES`] a peer that does not answer is known after about half a second.
const TIMEOUT: u8 = 14;
/// How often a packet is sent again.
const RETRIES: u8 = 7;

impl<'p> Fresh<'p> {
    /// Its number, which the peer needs.
    pub fn number(&self) -> u32 {
        self.0.number()
    }

    /// Connects it: through INIT and RTR to RTS. `packet_number` is the first that is sent.
    pub fn connect(self, path: &Path, packet_number: u32) -> Result<Connected<'p>, Error> {
        let native_path = native::Path {
            gid: path.gid.0,
            qp_number: path.qp_number,
            packet_number: path.packet_number,
            mtu: path.mtu,
            flow_label: path.flow_label,
            gid_index: path.gid_index,
            hop_limit: path.hop_limit,
            traffic_class: path.traffic_class,
            port: path.port,
        };
        let qp = self.0.qp.as_ptr();
        // SAFETY: the queue pair lives while `self` does, and the path until the call returns.
        let steps: [(&'static str, &dyn Fn() -> i32); 3] = [
            ("ibv_modify_qp to INIT", &|| unsafe {
                native::hm_qp_to_init(qp, path.port)
            }),
            ("ibv_modify_qp to RTR", &|| unsafe {
                native::hm_qp_to_rtr(qp, &raw const native_path)
            }),
            ("ibv_modify_qp to RTS", &|| unsafe {
                native::hm_qp_to_rts(qp, packet_number, TIMEOUT, RETRIES)
            }),
        ];
        for (call, step) in steps {
            match step() {
                0 => {}
                errno => {
                    return Err(Error::Connect {
                        call,
                        device: self.0.domain.device.name.clone(),
                        gid_index: path.gid_index,
                        peer: path.gid,
                        errno,
                    });
                }
            }
        }
        Ok(Connected(self.0))
    }
}

impl Connected<'_> {
    /// Its number.
    pub fn number(&self) -> u32 {
        self.0.number()
    }

    /// The flow label that the device has for it (`ibv_query_qp`).
    pub fn flow_label(&self) -> Result<u32, Error> {
        let mut label = 0;
        // SAFETY: the queue pair lives while `self` does, and `label` until the call returns.
        match unsafe { native::hm_qp_flow_label(self.0.qp.as_ptr(), &raw mut label) } {
            0 => Ok(label),
            code => Err(self.0.failed("ibv_query_qp", code)),
        }
    }

    /// Posts an RDMA write, completed as `id`: of `length` bytes at `offset` of `memory`, to the address `to`
    /// of the peer's memory `rkey`. The bytes may not be changed before it completed.
    pub fn write(
        &self,
        id: u64,
        memory: &Memory<'_>,
        offset: usize,
        length: u32,
        to: u64,
        rkey: u32,
    ) -> Result<(), Error> {
        let end = offset.checked_add(length as usize);
        assert!(
            length > 0 && end.is_some_and(|end| end <= memory.length()),
            "a write from outside the registered memory"
        );
        let in_itself = i32::from(length <= self.0.in_itself);
        // SAFETY: the queue pair and the memory live while they are borrowed, and the bytes are within
        // it. Memory that is dropped before the write completed is deregistered first: then the
        // write fails, and reads nothing else.
        let code = unsafe {
            native::hm_qp_write(
                self.0.qp.as_ptr(),
                id,
                memory.place(offset).cast(),
                length,
                memory.mr.as_ptr(),
                to,
                rkey,
                in_itself,
            )
        };
        match code {
            0 => Ok(()),
            code => Err(self.0.failed("ibv_post_send", code)),
        }
    }
}

impl Pair<'_> {
    fn number(&self) -> u32 {
        // SAFETY: the queue pair lives while `self` does.
        unsafe { native::hm_qp_number(self.qp.as_ptr()) }
    }

    fn failed(&self, call: &'static str, code: i32) -> Error {
        self.domain
            .device
            .failed(call, io::Error::from_raw_os_error(code))
    }
}

impl Drop for Pair<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `hm_qp_create` and is destroyed once.
        unsafe { native::hm_qp_destroy(self.qp.as_ptr()) }
    }
}
