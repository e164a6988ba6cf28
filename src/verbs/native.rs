//! The C layer, as `native/verbs.h` declares it.

use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub(super) struct Verbs {
    _opaque: [u8; 0],
}
#[repr(C)]
pub(super) struct Device {
    _opaque: [u8; 0],
}
#[repr(C)]
#[derive(Default)]
pub(super) struct Port {
    pub(super) active_mtu: u32,
    pub(super) max_mtu: u32,
    pub(super) state: u8,
}

#[repr(C)]
pub(super) struct Mlx5 {
    _opaque: [u8; 0],
}
#[repr(C)]
pub(super) struct Rule {
    _opaque: [u8; 0],
}

#[repr(C)]
pub(super) struct Pd {
    _opaque: [u8; 0],
}
#[repr(C)]
pub(super) struct Mr {
    _opaque: [u8; 0],
}
#[repr(C)]
pub(super) struct Cq {
    _opaque: [u8; 0],
}
#[repr(C)]
pub(super) struct Qp {
    _opaque: [u8; 0],
}
#[repr(C)]
pub(super) struct Completion {
    pub(super) id: u64,
    pub(super) status: u32,
    pub(super) vendor_err: u32,
    pub(super) text: *const c_char,
}
#[repr(C)]
pub(super) struct Path {
    pub(super) gid: [u8; 16],
    pub(super) qp_number: u32,
    pub(super) packet_number: u32,
    pub(super) mtu: u32,
    pub(super) flow_label: u32,
    pub(super) gid_index: u8,
    pub(super) hop_limit: u8,
    pub(super) traffic_class: u8,
    pub(super) port: u8,
}

unsafe extern "C" {
    pub(super) fn hm_verbs_load(out: *mut *mut Verbs, why: *mut c_char, why_size: usize) -> c_int;
    pub(super) fn hm_verbs_unload(verbs: *mut Verbs);
    pub(super) fn hm_device_open(
        verbs: *const Verbs,
        name: *const c_char,
        out: *mut *mut Device,
    ) -> c_int;
    pub(super) fn hm_device_close(device: *mut Device);
    pub(super) fn hm_device_query_port(device: *const Device, port: u8, out: *mut Port) -> c_int;
    pub(super) fn hm_device_events(device: *const Device) -> c_int;
    pub(super) fn hm_device_next_event(device: *const Device, kind: *mut u32) -> c_int;
    pub(super) fn hm_mlx5_load(out: *mut *mut Mlx5, why: *mut c_char, why_size: usize) -> c_int;
    pub(super) fn hm_mlx5_unload(mlx5: *mut Mlx5);
    pub(super) fn hm_mlx5_drives(mlx5: *const Mlx5, device: *const Device) -> c_int;
    pub(super) fn hm_rule_attach(
        mlx5: *const Mlx5,
        device: *const Device,
        mask: *const u8,
        value: *const u8,
        command: *const u8,
        out: *mut *mut Rule,
        call: *mut u32,
    ) -> c_int;
    pub(super) fn hm_rule_detach(rule: *mut Rule) -> c_int;
    pub(super) fn hm_forget_program();
    pub(super) fn hm_pd_alloc(device: *const Device, out: *mut *mut Pd) -> c_int;
    pub(super) fn hm_pd_free(pd: *mut Pd);
    pub(super) fn hm_mr_register(
        pd: *const Pd,
        address: *mut c_void,
        length: usize,
        out: *mut *mut Mr,
    ) -> c_int;
    pub(super) fn hm_mr_deregister(mr: *mut Mr);
    pub(super) fn hm_mr_rkey(mr: *const Mr) -> u32;
    pub(super) fn hm_cq_create(device: *const Device, depth: c_int, out: *mut *mut Cq) -> c_int;
    pub(super) fn hm_cq_destroy(cq: *mut Cq);
    pub(super) fn hm_cq_poll(cq: *const Cq, out: *mut Completion) -> c_int;
    pub(super) fn hm_qp_create(
        pd: *const Pd,
        cq: *const Cq,
        depth: u32,
        inline_bytes: *mut u32,
        out: *mut *mut Qp,
    ) -> c_int;
    pub(super) fn hm_qp_destroy(qp: *mut Qp);
    pub(super) fn hm_qp_number(qp: *const Qp) -> u32;
    pub(super) fn hm_qp_to_init(qp: *const Qp, port: u8) -> c_int;
    pub(super) fn hm_qp_to_rtr(qp: *const Qp, path: *const Path) -> c_int;
    pub(super) fn hm_qp_to_rts(
        qp: *const Qp,
        packet_number: u32,
        timeout: u8,
        retries: u8,
    ) -> c_int;
    pub(super) fn hm_qp_flow_label(qp: *const Qp, out: *mut u32) -> c_int;
    pub(super) fn hm_qp_write(
        qp: *mut Qp,
        id: u64,
        from: *const c_void,
        length: u32,
        mr: *const Mr,
        to: u64,
        rkey: u32,
        in_itself: c_int,
    ) -> c_int;
}
