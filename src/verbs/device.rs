//! libibverbs, loaded, and its devices.

use std::ffi::{CStr, CString};
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use super::{Error, PortAttr, native};
use crate::names::RdmaName;

/// libibverbs, loaded.
pub struct Verbs(NonNull<native::Verbs>);

impl Verbs {
    /// Loads `libibverbs.so.1`.
    pub fn load() -> Result<Verbs, Error> {
        let mut verbs = std::ptr::null_mut();
        let mut why = [0u8; 256];
        // SAFETY: `verbs` and `why` live until the call returns, `why` is as long as said, and
        // the function writes a NUL-terminated text into it when it fails.
        let code =
            unsafe { native::hm_verbs_load(&raw mut verbs, why.as_mut_ptr().cast(), why.len()) };
        match NonNull::new(verbs) {
            Some(verbs) if code == 0 => Ok(Verbs(verbs)),
            _ => {
                let text = CStr::from_bytes_until_nul(&why).unwrap_or_default();
                Err(Error::Library(text.to_string_lossy().into_owned()))
            }
        }
    }

    /// Opens the device called `name`.
    pub fn open(&self, name: &RdmaName) -> Result<Device<'_>, Error> {
        let failed = |source| Error::Call {
            call: "ibv_open_device",
            device: name.clone(),
            source,
        };
        let c_name = CString::new(name.as_str()).map_err(|e| failed(e.into()))?;
        let mut device = std::ptr::null_mut();
        // SAFETY: the library is loaded while `self` lives, `c_name` is NUL-terminated and
        // `device` lives until the call returns.
        let code =
            unsafe { native::hm_device_open(self.0.as_ptr(), c_name.as_ptr(), &raw mut device) };
        match NonNull::new(device) {
            Some(device) if code == 0 => Ok(Device {
                device,
                name: name.clone(),
                verbs: PhantomData,
            }),
            _ => Err(failed(io::Error::from_raw_os_error(code))),
        }
    }
}

impl Drop for Verbs {
    fn drop(&mut self) {
        // SAFETY: the handle came from `hm_verbs_load`, and no device that borrows it is left.
        unsafe { native::hm_verbs_unload(self.0.as_ptr()) }
    }
}

/// An opened RDMA device.
pub struct Device<'a> {
    pub(super) device: NonNull<native::Device>,
    pub(super) name: RdmaName,
    verbs: PhantomData<&'a Verbs>,
}

impl Device<'_> {
    /// `ibv_query_port` of port `number`.
    pub fn port(&self, number: u8) -> Result<PortAttr, Error> {
        let mut port = native::Port::default();
        // SAFETY: the device is open while `self` lives and `port` lives until the call returns.
        let code =
            unsafe { native::hm_device_query_port(self.device.as_ptr(), number, &raw mut port) };
        if code != 0 {
            return Err(self.failed("ibv_query_port", io::Error::from_raw_os_error(code)));
        }
        let known = |mtu| (mtu != 0).then_some(mtu);
        Ok(PortAttr {
            active_mtu: known(port.active_mtu),
            max_mtu: known(port.max_mtu),
        })
    }
}

impl Device<'_> {
    /// The descriptor that becomes readable with an asynchronous event, made non-blocking. To be asked
    /// for once the device is set up: what libmlx5 does with a device comes first.
    pub fn events(&self) -> Result<BorrowedFd<'_>, Error> {
        // SAFETY: the device is open while `self` lives.
        let fd = unsafe { native::hm_device_events(self.device.as_ptr()) };
        if fd < 0 {
            return Err(self.failed("fcntl of the event descriptor", io::Error::last_os_error()));
        }
        // SAFETY: the descriptor is the device's, which is closed no sooner than `self` is dropped.
        Ok(unsafe { BorrowedFd::borrow_raw(fd) })
    }

    /// Takes the next asynchronous event (`enum ibv_event_type`); `None` when there is none.
    pub fn next_event(&self) -> Result<Option<u32>, Error> {
        let mut kind = 0;
        // SAFETY: the device is open while `self` lives and `kind` lives until the call returns.
        let code = unsafe { native::hm_device_next_event(self.device.as_ptr(), &raw mut kind) };
        match code {
            0 => Ok(Some(kind)),
            libc::EAGAIN | libc::EINTR => Ok(None),
            _ => Err(self.failed("ibv_get_async_event", io::Error::from_raw_os_error(code))),
        }
    }

    pub(super) fn failed(&self, call: &'static str, source: io::Error) -> Error {
        Error::Call {
            call,
            device: self.name.clone(),
            source,
        }
    }
}

impl Drop for Device<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `hm_device_open` and is closed once.
        unsafe { native::hm_device_close(self.device.as_ptr()) }
    }
}
