//! What only libibverbs knows of an RDMA device. The one door to the C layer in `native/`.
//!
//! The library is loaded at run time: a program on a machine without it starts, and says
//! "not observed". Built without the feature `rdma`, [`Verbs::load`] always gives that error.
//!
//! | type | what it is |
//! |---|---|
//! | [`Verbs`] | libibverbs, loaded |
//! | [`Device`] | an opened RDMA device; borrows the library |
//! | [`PortAttr`] | what a device says of a port |

use std::io;

use crate::names::RdmaName;

/// Why libibverbs gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The library is not there, or lacks something.
    #[error("libibverbs cannot be used: {0}")]
    Library(String),
    /// A call failed.
    #[error("{call} of {device}: {source}")]
    Call {
        /// What was asked.
        call: &'static str,
        /// Of which device.
        device: RdmaName,
        /// The system's error.
        source: io::Error,
    },
}

/// What a device says of a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PortAttr {
    /// Active MTU, bytes; `None` for a code that this program does not know.
    pub active_mtu: Option<u32>,
    /// Largest MTU, bytes; likewise.
    pub max_mtu: Option<u32>,
}

#[cfg(feature = "rdma")]
pub use with_library::{Device, Verbs};
#[cfg(not(feature = "rdma"))]
pub use without_library::{Device, Verbs};

#[cfg(feature = "rdma")]
#[allow(unsafe_code)]
mod with_library {
    use std::ffi::{CStr, CString, c_char, c_int};
    use std::io;
    use std::marker::PhantomData;
    use std::ptr::NonNull;

    use super::{Error, PortAttr};
    use crate::names::RdmaName;

    /// `native/verbs.h`
    mod native {
        use super::{c_char, c_int};

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

        unsafe extern "C" {
            pub(super) fn hm_verbs_load(
                out: *mut *mut Verbs,
                why: *mut c_char,
                why_size: usize,
            ) -> c_int;
            pub(super) fn hm_verbs_unload(verbs: *mut Verbs);
            pub(super) fn hm_device_open(
                verbs: *const Verbs,
                name: *const c_char,
                out: *mut *mut Device,
            ) -> c_int;
            pub(super) fn hm_device_close(device: *mut Device);
            pub(super) fn hm_device_query_port(
                device: *const Device,
                port: u8,
                out: *mut Port,
            ) -> c_int;
        }
    }

    /// libibverbs, loaded.
    pub struct Verbs(NonNull<native::Verbs>);

    impl Verbs {
        /// Loads `libibverbs.so.1`.
        pub fn load() -> Result<Verbs, Error> {
            let mut verbs = std::ptr::null_mut();
            let mut why = [0u8; 256];
            // SAFETY: `verbs` and `why` live until the call returns, `why` is as long as said, and
            // the function writes a NUL-terminated text into it when it fails.
            let code = unsafe {
                native::hm_verbs_load(&raw mut verbs, why.as_mut_ptr().cast(), why.len())
            };
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
            let code = unsafe {
                native::hm_device_open(self.0.as_ptr(), c_name.as_ptr(), &raw mut device)
            };
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
        device: NonNull<native::Device>,
        name: RdmaName,
        verbs: PhantomData<&'a Verbs>,
    }

    impl Device<'_> {
        /// `ibv_query_port` of port `number`.
        pub fn port(&self, number: u8) -> Result<PortAttr, Error> {
            let mut port = native::Port::default();
            // SAFETY: the device is open while `self` lives and `port` lives until the call returns.
            let code = unsafe {
                native::hm_device_query_port(self.device.as_ptr(), number, &raw mut port)
            };
            if code != 0 {
                let source = io::Error::from_raw_os_error(code);
                return Err(Error::Call {
                    call: "ibv_query_port",
                    device: self.name.clone(),
                    source,
                });
            }
            let known = |mtu| (mtu != 0).then_some(mtu);
            Ok(PortAttr {
                active_mtu: known(port.active_mtu),
                max_mtu: known(port.max_mtu),
            })
        }
    }

    impl Drop for Device<'_> {
        fn drop(&mut self) {
            // SAFETY: the handle came from `hm_device_open` and is closed once.
            unsafe { native::hm_device_close(self.device.as_ptr()) }
        }
    }
}

#[cfg(not(feature = "rdma"))]
mod without_library {
    use std::convert::Infallible;
    use std::marker::PhantomData;

    use super::{Error, PortAttr};
    use crate::names::RdmaName;

    /// libibverbs, which this build does not use. There is no value of this type.
    pub struct Verbs(Infallible);

    impl Verbs {
        /// Always an error in this build.
        pub fn load() -> Result<Verbs, Error> {
            Err(Error::Library(
                "this program was built without the feature `rdma`".into(),
            ))
        }

        /// Opens a device.
        pub fn open(&self, _name: &RdmaName) -> Result<Device<'_>, Error> {
            match self.0 {}
        }
    }

    /// An opened RDMA device. There is no value of this type in this build.
    pub struct Device<'a>(Infallible, PhantomData<&'a Verbs>);

    impl Device<'_> {
        /// `ibv_query_port`
        pub fn port(&self, _number: u8) -> Result<PortAttr, Error> {
            match self.0 {}
        }
    }
}

#[cfg(all(test, feature = "rdma"))]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_does_not_exist_is_an_error_that_names_it() {
        let verbs = match Verbs::load() {
            Ok(verbs) => verbs,
            Err(error) => {
                // A machine without libibverbs: the error says so.
                assert!(error.to_string().contains("libibverbs"), "{error}");
                return;
            }
        };
        let name = "no-such-device".parse().unwrap();
        let error = verbs.open(&name).err().unwrap();
        assert!(
            error
                .to_string()
                .starts_with("ibv_open_device of no-such-device: "),
            "{error}"
        );
    }
}
