//! libmlx5, loaded, and the steering rules that are made through it.

use std::ffi::CStr;
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::{Device, Error, RuleBytes, native};

/// libmlx5, loaded.
pub struct Mlx5(NonNull<native::Mlx5>);

impl Mlx5 {
    /// Loads `libmlx5.so.1`.
    pub fn load() -> Result<Mlx5, Error> {
        let mut mlx5 = std::ptr::null_mut();
        let mut why = [0u8; 256];
        // SAFETY: `mlx5` and `why` live until the call returns, `why` is as long as said, and the
        // function writes a NUL-terminated text into it when it fails.
        let code =
            unsafe { native::hm_mlx5_load(&raw mut mlx5, why.as_mut_ptr().cast(), why.len()) };
        match NonNull::new(mlx5) {
            Some(mlx5) if code == 0 => Ok(Mlx5(mlx5)),
            _ => {
                let text = CStr::from_bytes_until_nul(&why).unwrap_or_default();
                Err(Error::Mlx5(text.to_string_lossy().into_owned()))
            }
        }
    }

    /// Whether mlx5 drives this device (`mlx5dv_is_supported`).
    pub fn drives(&self, device: &Device<'_>) -> bool {
        // SAFETY: the library is loaded and the device open while they are borrowed.
        unsafe { native::hm_mlx5_drives(self.0.as_ptr(), device.device.as_ptr()) != 0 }
    }

    /// Puts a rule into the device's RDMA-TX table. When it is refused nothing of it stays.
    pub fn attach<'a>(
        &'a self,
        device: &'a Device<'_>,
        rule: &RuleBytes,
    ) -> Result<Rule<'a>, Error> {
        let mut out = std::ptr::null_mut();
        let mut call = 0;
        // SAFETY: the library is loaded and the device open while they are borrowed, which the rule
        // does; the three arrays have the lengths that `native/verbs.h` demands, and the function copies
        // them; `out` and `call` live until it returns.
        let code = unsafe {
            native::hm_rule_attach(
                self.0.as_ptr(),
                device.device.as_ptr(),
                rule.mask.as_ptr(),
                rule.value.as_ptr(),
                rule.command.as_ptr(),
                &raw mut out,
                &raw mut call,
            )
        };
        match NonNull::new(out) {
            Some(rule) if code == 0 => Ok(Rule {
                rule,
                borrows: PhantomData,
            }),
            _ => {
                // `enum hm_call`, `native/verbs.h`
                let call = match call {
                    1 => super::CREATE_MATCHER,
                    2 => super::CREATE_ACTION,
                    _ => super::CREATE_FLOW,
                };
                Err(device.failed(call, io::Error::from_raw_os_error(code)))
            }
        }
    }
}

impl Drop for Mlx5 {
    fn drop(&mut self) {
        // SAFETY: the handle came from `hm_mlx5_load`, and no rule that borrows it is left.
        unsafe { native::hm_mlx5_unload(self.0.as_ptr()) }
    }
}

/// A steering rule in a device. It ends when this is dropped, when the device is closed, and with the
/// process, however that ends.
pub struct Rule<'a> {
    rule: NonNull<native::Rule>,
    borrows: PhantomData<(&'a Mlx5, &'a Device<'a>)>,
}

impl Rule<'_> {
    /// Takes the rule out of the device.
    pub fn detach(self) -> io::Result<()> {
        let rule = std::mem::ManuallyDrop::new(self);
        // SAFETY: the handle came from `hm_rule_attach`, and is given back here alone, as it is not dropped.
        match unsafe { native::hm_rule_detach(rule.rule.as_ptr()) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Rule<'_> {
    /// Gives back the memory that starting the program and the libraries took, as far as their files
    /// have it: for who from now on only holds this rule.
    pub fn at_rest(&self) {
        // SAFETY: only pages of segments that nobody may write are dropped; they come back as they were.
        unsafe { native::hm_forget_program() }
    }
}

impl Drop for Rule<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `hm_rule_attach` and was not given back yet. What cannot be taken
        // out ends with the device.
        unsafe { native::hm_rule_detach(self.rule.as_ptr()) };
    }
}
