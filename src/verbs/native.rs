//! The C layer, as `native/verbs.h` declares it.

use std::ffi::{c_char, c_int};

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
}
