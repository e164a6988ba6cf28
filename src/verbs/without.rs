//! A build without the feature `rdma`: there is no value of any of these types.

use std::convert::Infallible;
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

use super::{Error, PortAttr, RuleBytes};
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

    /// The descriptor of its events.
    pub fn events(&self) -> Result<BorrowedFd<'_>, Error> {
        match self.0 {}
    }

    /// The next event.
    pub fn next_event(&self) -> Result<Option<u32>, Error> {
        match self.0 {}
    }
}

/// libmlx5, which this build does not use. There is no value of this type.
pub struct Mlx5(Infallible);

impl Mlx5 {
    /// Always an error in this build.
    pub fn load() -> Result<Mlx5, Error> {
        Err(Error::Mlx5(
            "this program was built without the feature `rdma`".into(),
        ))
    }

    /// `mlx5dv_is_supported`
    pub fn drives(&self, _device: &Device<'_>) -> bool {
        match self.0 {}
    }

    /// Makes a rule.
    pub fn attach<'a>(
        &'a self,
        _device: &'a Device<'_>,
        _rule: &RuleBytes,
    ) -> Result<Rule<'a>, Error> {
        match self.0 {}
    }
}

/// A steering rule. There is no value of this type in this build.
pub struct Rule<'a>(Infallible, PhantomData<&'a Mlx5>);

impl Rule<'_> {
    /// Gives back memory.
    pub fn at_rest(&self) {
        match self.0 {}
    }

    /// Takes it out.
    pub fn detach(self) -> io::Result<()> {
        match self.0 {}
    }
}
