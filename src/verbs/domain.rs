//! A protection domain, and the memory that is registered in it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;

use super::{Device, Error, LARGEST_MEMORY, native};

/// A protection domain. What is made in it lives no longer.
pub struct Domain<'d> {
    pub(super) pd: NonNull<native::Pd>,
    pub(super) device: &'d Device<'d>,
}

impl Device<'_> {
    /// `ibv_alloc_pd`
    pub fn domain(&self) -> Result<Domain<'_>, Error> {
        let mut pd = std::ptr::null_mut();
        // SAFETY: the device is open while `self` is borrowed, which the domain does.
        let code = unsafe { native::hm_pd_alloc(self.device.as_ptr(), &raw mut pd) };
        match NonNull::new(pd) {
            Some(pd) if code == 0 => Ok(Domain { pd, device: self }),
            _ => Err(self.failed("ibv_alloc_pd", io::Error::from_raw_os_error(code))),
        }
    }
}

impl Drop for Domain<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `hm_pd_alloc`, and nothing that borrows the domain is left.
        unsafe { native::hm_pd_free(self.pd.as_ptr()) }
    }
}

/// Alignment of registered memory, bytes: a page, so that no line of it is shared with other data.
const ALIGNMENT: usize = 4096;

/// Memory that the peer may write at any time. It is read and written byte by byte through volatile
/// accesses, never by reference.
pub struct Memory<'p> {
    pub(super) mr: NonNull<native::Mr>,
    bytes: NonNull<u8>,
    layout: Layout,
    domain: PhantomData<&'p Domain<'p>>,
}

impl Domain<'_> {
    /// Registers `length` zero bytes (1 to [`LARGEST_MEMORY`]) that the peer may write.
    pub fn memory(&self, length: usize) -> Result<Memory<'_>, Error> {
        let failed = |source| self.device.failed("ibv_reg_mr", source);
        if length == 0 || length > LARGEST_MEMORY {
            return Err(failed(io::ErrorKind::InvalidInput.into()));
        }
        let layout =
            Layout::from_size_align(length, ALIGNMENT).map_err(|e| failed(io::Error::other(e)))?;
        // SAFETY: the layout has a size that is not 0.
        let Some(bytes) = NonNull::new(unsafe { alloc_zeroed(layout) }) else {
            handle_alloc_error(layout)
        };
        let mut mr = std::ptr::null_mut();
        // SAFETY: the domain lives while `self` is borrowed, which the memory does; the bytes live until
        // it was deregistered.
        let code = unsafe {
            native::hm_mr_register(self.pd.as_ptr(), bytes.as_ptr().cast(), length, &raw mut mr)
        };
        match NonNull::new(mr) {
            Some(mr) if code == 0 => Ok(Memory {
                mr,
                bytes,
                layout,
                domain: PhantomData,
            }),
            _ => {
                // SAFETY: allocated above with this layout, and registered nowhere.
                unsafe { dealloc(bytes.as_ptr(), layout) };
                Err(failed(io::Error::from_raw_os_error(code)))
            }
        }
    }
}

impl Memory<'_> {
    /// How long it is, bytes.
    pub fn length(&self) -> usize {
        self.layout.size()
    }

    /// Where the peer finds the byte at `offset`.
    pub fn address(&self, offset: usize) -> u64 {
        self.place(offset) as u64
    }

    /// What the peer names it by.
    pub fn rkey(&self) -> u32 {
        // SAFETY: the handle is valid while `self` lives.
        unsafe { native::hm_mr_rkey(self.mr.as_ptr()) }
    }

    /// The byte at `offset`, as it is now.
    pub fn read(&self, offset: usize) -> u8 {
        // SAFETY: `place` is within the allocation. The NIC may write it at any time, as another thread
        // would; one byte is read whole, and volatile, so that it is read each time.
        unsafe { self.place(offset).read_volatile() }
    }

    /// Writes the byte at `offset`.
    pub fn write(&self, offset: usize, byte: u8) {
        // SAFETY: as in `read`. The half that is written here is not the one that the peer writes.
        unsafe { self.place(offset).write_volatile(byte) }
    }

    pub(super) fn place(&self, offset: usize) -> *mut u8 {
        assert!(
            offset < self.length(),
            "a place outside the registered memory"
        );
        // SAFETY: within the allocation, just checked.
        unsafe { self.bytes.as_ptr().add(offset) }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: deregistered once, after which no NIC knows it, and freed with its layout.
        unsafe {
            native::hm_mr_deregister(self.mr.as_ptr());
            dealloc(self.bytes.as_ptr(), self.layout);
        }
    }
}
