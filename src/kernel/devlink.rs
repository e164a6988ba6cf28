//! The devlink family of generic netlink: parameters, re-initialisation and its counters, eswitch mode.

use crate::kernel::attr::{Attr, Attrs, Malformed, Writer};
use crate::kernel::generic::Generic;
use crate::kernel::netlink::Error;
use crate::names::Text;

/// `linux/devlink.h`
const VERSION: u8 = 1;
const CMD_GET: u8 = 1;
const CMD_ESWITCH_GET: u8 = 29;
const CMD_RELOAD: u8 = 37;
const CMD_PARAM_GET: u8 = 38;
const CMD_PARAM_SET: u8 = 39;
const ATTR_BUS_NAME: u16 = 1;
const ATTR_DEV_NAME: u16 = 2;
const ATTR_ESWITCH_MODE: u16 = 25;
const ATTR_PARAM: u16 = 80;
const ATTR_PARAM_NAME: u16 = 81;
const ATTR_PARAM_TYPE: u16 = 83;
const ATTR_PARAM_VALUES_LIST: u16 = 84;
const ATTR_PARAM_VALUE: u16 = 85;
const ATTR_PARAM_VALUE_DATA: u16 = 86;
const ATTR_PARAM_VALUE_CMODE: u16 = 87;
const ATTR_RELOAD_FAILED: u16 = 136;
const ATTR_RELOAD_ACTION: u16 = 153;
const ATTR_RELOAD_ACTIONS_PERFORMED: u16 = 154;
const ATTR_DEV_STATS: u16 = 156;
const ATTR_RELOAD_STATS: u16 = 157;
const ATTR_RELOAD_STATS_ENTRY: u16 = 158;
const ATTR_RELOAD_STATS_LIMIT: u16 = 159;
const ATTR_RELOAD_STATS_VALUE: u16 = 160;
const ATTR_RELOAD_ACTION_INFO: u16 = 162;
const ATTR_RELOAD_ACTION_STATS: u16 = 163;
/// `DEVLINK_RELOAD_ACTION_DRIVER_REINIT`, without a limit.
const ACTION_DRIVER_REINIT: u8 = 1;
const LIMIT_UNSPEC: u8 = 0;
/// `DEVLINK_PARAM_CMODE_DRIVERINIT`
const CMODE_DRIVERINIT: u8 = 1;
/// Types of parameter values, as the kernel gives them (`enum netlink_attribute_type` values that
/// devlink has used since it was made: `NLA_U8`, `NLA_U16`, `NLA_U32`, `NLA_STRING`, `NLA_FLAG`).
const TYPE_U8: u8 = 1;
const TYPE_U16: u8 = 2;
const TYPE_U32: u8 = 3;
const TYPE_STRING: u8 = 5;
const TYPE_FLAG: u8 = 6;

/// Parameters of the mesh (mlx5: Documentation/networking/devlink/mlx5.rst).
pub const HAIRPIN_NUM_QUEUES: &str = "hairpin_num_queues";
/// Packets.
pub const HAIRPIN_QUEUE_SIZE: &str = "hairpin_queue_size";
/// `dmfs`, `smfs`, `hmfs`.
pub const FLOW_STEERING_MODE: &str = "flow_steering_mode";

/// Which device: bus and name, written `pci/0000:01:00.0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handle {
    /// `pci`
    pub bus: Text,
    /// `0000:01:00.0`
    pub device: Text,
}

impl std::fmt::Display for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.bus, self.device)
    }
}

impl Handle {
    fn attrs(&self) -> Writer {
        let mut attrs = Writer::default();
        attrs.text(ATTR_BUS_NAME, self.bus.as_str());
        attrs.text(ATTR_DEV_NAME, self.device.as_str());
        attrs
    }
}

/// When a value of a parameter counts (`enum devlink_param_cmode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// At once.
    Runtime,
    /// After the next re-initialisation of the driver.
    Driverinit,
    /// After the next reset; stored in the device.
    Permanent,
    /// One that this program does not know.
    Other(u8),
}

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParamValue {
    /// A number of 8, 16 or 32 bits.
    Number(u32),
    /// A string.
    Text(Text),
    /// On or off.
    Flag(bool),
}

impl ParamValue {
    /// The value, when it is a number.
    pub fn number(&self) -> Option<u32> {
        match self {
            ParamValue::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// The value, when it is a string.
    pub fn text(&self) -> Option<&Text> {
        match self {
            ParamValue::Text(text) => Some(text),
            _ => None,
        }
    }
}

/// A parameter of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its values, one for each mode that it has.
    pub values: Vec<(Mode, ParamValue)>,
}

/// A device's re-initialisations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reloads {
    /// `driver_reinit` without a limit since the driver was loaded; `None` when the driver does
    /// not count.
    pub driver_reinit: Option<u32>,
    /// Whether the last one failed.
    pub failed: bool,
}

/// A socket for the devlink family.
pub struct Devlink(Generic);

impl Devlink {
    /// Opens it in the calling thread's network namespace.
    pub fn open() -> Result<Devlink, Error> {
        Generic::open("devlink", VERSION).map(Devlink)
    }

    /// All parameters of one device, out of those of all devices. Asked for one parameter by name,
    /// the kernel says `EINVAL` when the driver has none of that name, and for other reasons too.
    pub fn params(&mut self, handle: &Handle) -> Result<Vec<Param>, Error> {
        let all = self.all_params()?;
        let its = all.into_iter().filter(|(of, _)| of == handle);
        Ok(its.map(|(_, param)| param).collect())
    }

    /// All parameters of all devices, each with its device.
    pub fn all_params(&mut self) -> Result<Vec<(Handle, Param)>, Error> {
        let messages = self.0.dump(CMD_PARAM_GET, &Writer::default())?;
        let mut params = Vec::new();
        for message in &messages {
            let attrs = message.attrs()?;
            params.push((of(&attrs)?, param(&attrs)?));
        }
        Ok(params)
    }

    /// Reload counter and state of one device; `ENODEV` when devlink does not know it.
    pub fn reloads(&mut self, handle: &Handle) -> Result<Reloads, Error> {
        let answer = self.0.request(CMD_GET, &handle.attrs())?;
        Ok(reloads(&answer.attrs()?)?)
    }

    /// Sets a number of 32 bits that counts after the next re-initialisation; what the kernel remarks
    /// although it did as asked. devlink shows the value from then on, loaded or not.
    pub fn set_driverinit(
        &mut self,
        handle: &Handle,
        name: &str,
        value: u32,
    ) -> Result<Option<String>, Error> {
        let (_, remark) = self
            .0
            .act(CMD_PARAM_SET, &set_driverinit(handle, name, value))?;
        Ok(remark)
    }

    /// Re-initialises the driver of one device, and waits for it. Its network device and RDMA device go
    /// and come back, bare; what was set to count after a re-initialisation counts.
    pub fn reinitialise(&mut self, handle: &Handle) -> Result<Option<String>, Error> {
        let (answer, remark) = self.0.act(CMD_RELOAD, &reinitialise(handle))?;
        let answer =
            answer.ok_or_else(|| Error::Malformed("no word of what the driver has done".into()))?;
        if performed(&answer.attrs()?)? {
            Ok(remark)
        } else {
            Err(Error::Malformed(
                "the driver has done something else than to re-initialise".into(),
            ))
        }
    }

    /// Mode of the eswitch: `legacy`, `switchdev`, or a number; `None` when the driver has none.
    /// Needs root.
    pub fn eswitch_mode(&mut self, handle: &Handle) -> Result<Option<String>, Error> {
        match self.0.request(CMD_ESWITCH_GET, &handle.attrs()) {
            Ok(answer) => Ok(match answer.attrs()?.get(ATTR_ESWITCH_MODE) {
                None => None,
                Some(mode) => Some(match mode.u16()? {
                    0 => "legacy".to_owned(),
                    1 => "switchdev".to_owned(),
                    other => other.to_string(),
                }),
            }),
            Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// `devlink dev param set HANDLE name NAME value VALUE cmode driverinit`
fn set_driverinit(handle: &Handle, name: &str, value: u32) -> Writer {
    let mut attrs = handle.attrs();
    attrs.text(ATTR_PARAM_NAME, name);
    attrs.put(ATTR_PARAM_VALUE_CMODE, &[CMODE_DRIVERINIT]);
    attrs.put(ATTR_PARAM_TYPE, &[TYPE_U32]);
    attrs.put(ATTR_PARAM_VALUE_DATA, &value.to_ne_bytes());
    attrs
}

/// `devlink dev reload HANDLE action driver_reinit`
fn reinitialise(handle: &Handle) -> Writer {
    let mut attrs = handle.attrs();
    attrs.put(ATTR_RELOAD_ACTION, &[ACTION_DRIVER_REINIT]);
    attrs
}

/// Whether the driver says that it was re-initialised: a bit for each action, and a mask of the bits
/// that count (`struct nla_bitfield32`).
fn performed(attrs: &Attrs) -> Result<bool, Malformed> {
    let value = attrs.need(ATTR_RELOAD_ACTIONS_PERFORMED)?.u64()?;
    let [v0, v1, v2, v3, m0, m1, m2, m3] = value.to_ne_bytes();
    let bits = u32::from_ne_bytes([v0, v1, v2, v3]) & u32::from_ne_bytes([m0, m1, m2, m3]);
    Ok(bits & (1 << ACTION_DRIVER_REINIT) != 0)
}

/// The device that a message is about.
fn of(attrs: &Attrs) -> Result<Handle, Malformed> {
    let text = |kind| attrs.need(kind).map(|attr| attr.text().as_str().into());
    Ok(Handle {
        bus: text(ATTR_BUS_NAME)?,
        device: text(ATTR_DEV_NAME)?,
    })
}

fn param(attrs: &Attrs) -> Result<Param, Malformed> {
    let param = attrs.need(ATTR_PARAM)?.nested()?;
    let kind = param.need(ATTR_PARAM_TYPE)?.u8()?;
    let mut values = Vec::new();
    for value in param.nested(ATTR_PARAM_VALUES_LIST)?.all(ATTR_PARAM_VALUE) {
        let value = value.nested()?;
        let mode = match value.need(ATTR_PARAM_VALUE_CMODE)?.u8()? {
            0 => Mode::Runtime,
            1 => Mode::Driverinit,
            2 => Mode::Permanent,
            other => Mode::Other(other),
        };
        if let Some(data) = param_value(kind, value.get(ATTR_PARAM_VALUE_DATA))? {
            values.push((mode, data));
        }
    }
    Ok(Param {
        name: param.need(ATTR_PARAM_NAME)?.text(),
        values,
    })
}

/// `None` for a type that this program does not know. A flag that is off has no data.
fn param_value(kind: u8, data: Option<Attr>) -> Result<Option<ParamValue>, Malformed> {
    Ok(match (kind, data) {
        (TYPE_FLAG, data) => Some(ParamValue::Flag(data.is_some())),
        (TYPE_U8, Some(data)) => Some(ParamValue::Number(data.u8()?.into())),
        (TYPE_U16, Some(data)) => Some(ParamValue::Number(data.u16()?.into())),
        (TYPE_U32, Some(data)) => Some(ParamValue::Number(data.u32()?)),
        (TYPE_STRING, Some(data)) => Some(ParamValue::Text(data.text().as_str().into())),
        _ => None,
    })
}

fn reloads(attrs: &Attrs) -> Result<Reloads, Malformed> {
    let failed = attrs
        .get(ATTR_RELOAD_FAILED)
        .is_some_and(|a| a.value.first().is_some_and(|b| *b != 0));
    let mut driver_reinit = None;
    for info in attrs
        .nested(ATTR_DEV_STATS)?
        .nested(ATTR_RELOAD_STATS)?
        .all(ATTR_RELOAD_ACTION_INFO)
    {
        let info = info.nested()?;
        if info.need(ATTR_RELOAD_ACTION)?.u8()? != ACTION_DRIVER_REINIT {
            continue;
        }
        for entry in info
            .nested(ATTR_RELOAD_ACTION_STATS)?
            .all(ATTR_RELOAD_STATS_ENTRY)
        {
            let entry = entry.nested()?;
            if entry.need(ATTR_RELOAD_STATS_LIMIT)?.u8()? == LIMIT_UNSPEC {
                driver_reinit = Some(entry.need(ATTR_RELOAD_STATS_VALUE)?.u32()?);
            }
        }
    }
    Ok(Reloads {
        driver_reinit,
        failed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::generic::GenericMessage;
    use crate::kernel::{captured, damaged};

    fn messages(text: &str) -> Vec<GenericMessage> {
        captured(text)
            .iter()
            .map(|bytes| GenericMessage::parse(bytes).unwrap())
            .collect()
    }

    fn handle(device: &str) -> Handle {
        Handle {
            bus: "pci".into(),
            device: device.into(),
        }
    }

    #[test]
    fn parameters_of_a_real_kernel_read_as_devlink_shows_them() {
        let all = messages(include_str!("../../tests/captured/devlink-params.hex"));
        let of_device = |device: &str| -> Vec<Param> {
            let attrs = all.iter().map(|message| message.attrs().unwrap());
            attrs
                .filter(|attrs| of(attrs).unwrap() == handle(device))
                .map(|attrs| param(&attrs).unwrap())
                .collect()
        };
        for (device, size) in [
            ("0000:01:00.0", 1024),
            ("0000:01:00.1", 8192),
            ("0000:02:00.0", 8192),
            ("0000:02:00.1", 1024),
        ] {
            let number = |name: &str, number| Param {
                name: name.into(),
                values: vec![(Mode::Driverinit, ParamValue::Number(number))],
            };
            let mode = Param {
                name: FLOW_STEERING_MODE.into(),
                values: vec![(Mode::Runtime, ParamValue::Text("dmfs".into()))],
            };
            let wanted = [
                number(HAIRPIN_QUEUE_SIZE, size),
                number(HAIRPIN_NUM_QUEUES, 2),
                mode,
            ];
            assert_eq!(of_device(device), wanted, "{device}");
        }
        assert_eq!(of_device("0000:03:00.0"), []);
    }

    #[test]
    fn reload_counters_of_a_real_kernel_read_as_devlink_shows_them() {
        let all = messages(include_str!("../../tests/captured/devlink-get.hex"));
        let read: Vec<Reloads> = all
            .iter()
            .map(|message| reloads(&message.attrs().unwrap()).unwrap())
            .collect();
        let counted = |count| Reloads {
            driver_reinit: Some(count),
            failed: false,
        };
        assert_eq!(read, [counted(0), counted(1)]);
    }

    #[test]
    fn a_driver_that_counts_no_reloads_has_no_counter() {
        let attrs = handle("0000:01:00.0").attrs();
        let attrs = Attrs::parse(attrs.bytes()).unwrap();
        assert_eq!(
            reloads(&attrs),
            Ok(Reloads {
                driver_reinit: None,
                failed: false
            })
        );
    }

    /// What iproute2 6.15 sends, seen with strace, attribute by attribute.
    fn sent(attributes: &[&str]) -> Vec<u8> {
        captured(&attributes.concat()).concat()
    }

    #[test]
    fn a_parameter_is_set_as_devlink_sets_it() {
        // devlink dev param set pci/0000:01:00.0 name hairpin_queue_size value 8192 cmode driverinit
        let wanted = sent(&[
            "0800010070636900",                                 // bus: pci
            "11000200303030303a30313a30302e3000000000",         // device: 0000:01:00.0
            "170051006861697270696e5f71756575655f73697a650000", // name: hairpin_queue_size
            "0500570001000000",                                 // mode: driverinit
            "0500530003000000",                                 // type: 32 bits
            "0800560000200000",                                 // value: 8192
        ]);
        let attrs = set_driverinit(&handle("0000:01:00.0"), HAIRPIN_QUEUE_SIZE, 8192);
        assert_eq!(attrs.bytes(), wanted);
    }

    #[test]
    fn a_device_is_re_initialised_as_devlink_does_it() {
        // devlink dev reload pci/0000:01:00.0 action driver_reinit
        let wanted = sent(&[
            "0800010070636900",                         // bus: pci
            "11000200303030303a30313a30302e3000000000", // device: 0000:01:00.0
            "0500990001000000",                         // action: driver_reinit
        ]);
        assert_eq!(reinitialise(&handle("0000:01:00.0")).bytes(), wanted);
    }

    #[test]
    fn a_driver_that_did_something_else_is_told_from_one_that_re_initialised() {
        let answer = |value: u32, mask: u32| {
            let mut attrs = handle("0000:01:00.0").attrs();
            let bits = [value.to_ne_bytes(), mask.to_ne_bytes()].concat();
            attrs.put(ATTR_RELOAD_ACTIONS_PERFORMED, &bits);
            performed(&Attrs::parse(attrs.bytes()).unwrap())
        };
        assert_eq!(answer(2, 2), Ok(true));
        assert_eq!(answer(6, 6), Ok(true));
        // Firmware activated alone; a bit that does not count.
        assert_eq!(answer(4, 4), Ok(false));
        assert_eq!(answer(2, 4), Ok(false));
        let empty = Attrs::parse(&[]).unwrap();
        assert!(performed(&empty).is_err());
    }

    #[test]
    fn damaged_messages_never_make_it_panic() {
        for text in [
            include_str!("../../tests/captured/devlink-params.hex"),
            include_str!("../../tests/captured/devlink-get.hex"),
        ] {
            for bytes in captured(text).iter().flat_map(|bytes| damaged(bytes)) {
                let Ok(message) = GenericMessage::parse(&bytes) else {
                    continue;
                };
                let Ok(attrs) = message.attrs() else { continue };
                let _ = (of(&attrs), param(&attrs), reloads(&attrs));
                let _ = performed(&attrs);
            }
        }
    }
}
