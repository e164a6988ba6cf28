//! A completion queue.

use std::ffi::{CStr, c_int};
use std::io;
use std::ptr::NonNull;

use super::{Completion, Device, Error, native};

/// A completion queue.
pub struct Queue<'d> {
    pub(super) cq: NonNull<native::Cq>,
    device: &'d Device<'d>,
}

impl Device<'_> {
    /// A completion queue with room for `depth` completions.
    pub fn queue(&self, depth: u16) -> Result<Queue<'_>, Error> {
        let mut cq = std::ptr::null_mut();
        // SAFETY: the device is open while `self` is borrowed, which the queue does.
        let code = unsafe {
            native::hm_cq_create(self.device.as_ptr(), c_int::from(depth.max(1)), &raw mut cq)
        };
        match NonNull::new(cq) {
            Some(cq) if code == 0 => Ok(Queue { cq, device: self }),
            _ => Err(self.failed("ibv_create_cq", io::Error::from_raw_os_error(code))),
        }
    }
}

impl Queue<'_> {
    /// The next completion; `None` when there is none.
    pub fn poll(&self) -> Result<Option<Completion>, Error> {
        let mut out = native::Completion {
            id: 0,
            status: 0,
            vendor_err: 0,
            text: std::ptr::null(),
        };
        // SAFETY: the queue lives while `self` is borrowed, and `out` until the call returns.
        match unsafe { native::hm_cq_poll(self.cq.as_ptr(), &raw mut out) } {
            0 => Ok(None),
            1 if out.status == 0 => Ok(Some(Completion::Done(out.id))),
            1 => {
                // SAFETY: libibverbs gives a constant text for every status.
                let text = unsafe { CStr::from_ptr(out.text) };
                Ok(Some(Completion::Failed {
                    status: out.status,
                    vendor_err: out.vendor_err,
                    text: text.to_string_lossy().into_owned(),
                }))
            }
            _ => Err(self
                .device
                .failed("ibv_poll_cq", io::Error::from_raw_os_error(libc::EIO))),
        }
    }
}

impl Drop for Queue<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `hm_cq_create`, and no queue pair that borrows it is left.
        unsafe { native::hm_cq_destroy(self.cq.as_ptr()) }
    }
}
