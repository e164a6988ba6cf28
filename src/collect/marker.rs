//! The processes that hold, or should hold, an RDMA-TX rule.

use crate::facts::{Fact, Marker};
use crate::kernel::process::Process;
use crate::names::{RdmaName, Text};
use crate::plan::mesh::MARKER_UNIT;

/// All markers: what runs in a marker's unit, and what was started like one outside a unit. `holders` gives
/// the processes that have a device open.
pub(super) fn all(mut holders: impl FnMut(&RdmaName) -> Fact<Vec<u32>>) -> Fact<Vec<Marker>> {
    if Process::others_are_hidden() {
        return Fact::because("/proc does not show the processes of other users (hidepid)");
    }
    let processes = match Process::all() {
        Ok(processes) => processes,
        Err(error) => return Fact::because(error),
    };
    // A process that ends while it is looked at is no marker any more.
    let mut markers: Vec<Marker> = processes.into_iter().filter_map(marker).collect();
    for marker in &mut markers {
        if let Some(device) = &marker.device {
            // A process that it started may hold it, as `strace marker` does.
            marker.holds_device = holders(device).map(|pids| {
                let its = |pid: &u32| {
                    let unit = Process(*pid).unit().ok().flatten();
                    unit.is_some() && unit.as_deref() == marker.unit.as_ref().map(Text::as_str)
                };
                pids.contains(&marker.pid) || pids.iter().any(its)
            });
        }
    }
    Fact::Known(markers)
}

fn marker(process: Process) -> Option<Marker> {
    let unit = process
        .unit()
        .ok()
        .flatten()
        .filter(|unit| unit.starts_with(MARKER_UNIT));
    let arguments = process.arguments();
    let started_like_one = arguments.as_deref().ok().and_then(device_argument);
    if unit.is_none() && started_like_one.is_none() {
        return None;
    }
    let named = match &unit {
        Some(unit) => instance(unit),
        None => started_like_one.flatten(),
    };
    Some(Marker {
        device: named.and_then(|name| name.parse::<RdmaName>().ok()),
        unit: unit.map(|unit| unit.as_str().into()),
        pid: process.0,
        started_seconds: process.started().ok()?,
        holds_device: Fact::unmentioned(),
        command_line: arguments
            .map(|arguments| Text::from_bytes(&arguments.join(&b' ')))
            .into(),
    })
}

/// The device that a unit's name carries, with systemd's escapes undone (systemd.unit(5)): `\xNN`
/// is a byte, and a `-` that is not escaped was a `/`, which no device has.
fn instance(unit: &str) -> Option<String> {
    let escaped = unit.strip_prefix(MARKER_UNIT)?.strip_suffix(".service")?;
    let mut parts = escaped.split("\\x");
    let mut name = parts.next()?.to_owned();
    for part in parts {
        let byte = u8::from_str_radix(part.get(..2)?, 16).ok()?;
        name.push(char::from(byte));
        name.push_str(&part[2..]);
    }
    Some(name)
}

/// Whether these are the arguments of a marker, and the device that they name.
///
/// The program of today is known by `--replacement-ethertype`, whatever its file is called; this
/// program by its verb.
fn device_argument(arguments: &[Vec<u8>]) -> Option<Option<String>> {
    let is = |argument: &Vec<u8>, option: &str| {
        argument
            .strip_prefix(option.as_bytes())
            .is_some_and(|rest| rest.is_empty() || rest[0] == b'=')
    };
    let program = arguments.first()?.rsplit(|b| *b == b'/').next();
    let ours =
        program == Some(b"hairpin-mesh") && arguments.get(1).is_some_and(|verb| verb == b"marker");
    let todays = arguments
        .iter()
        .skip(1)
        .any(|a| is(a, "--replacement-ethertype"));
    if !ours && !todays {
        return None;
    }
    let position = arguments.iter().position(|a| is(a, "--device"))?;
    let value = match arguments[position].strip_prefix(b"--device=") {
        Some(value) => Some(value),
        None => arguments.get(position + 1).map(Vec::as_slice),
    };
    Some(value.map(|value| String::from_utf8_lossy(value).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<Vec<u8>> {
        line.split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect()
    }

    #[test]
    fn the_device_of_a_unit_is_its_instance_unescaped() {
        assert_eq!(
            instance("dsv41-mesh-marker@rocep1s0f0.service").as_deref(),
            Some("rocep1s0f0")
        );
        assert_eq!(
            instance("dsv41-mesh-marker@mlx5\\x2d0.service").as_deref(),
            Some("mlx5-0")
        );
        for name in ["rocep1s0f0", "a-b:c.d_e--2"] {
            let unit = crate::plan::mesh::marker_unit(&name.parse().unwrap());
            assert_eq!(instance(&unit).as_deref(), Some(name));
        }
        assert_eq!(instance("dsv41-mesh-marker@a\\xZZ.service"), None);
        assert_eq!(instance("dsv41-mesh-marker@a\\x2.service"), None);
        assert_eq!(instance("dsv41-mesh.service"), None);
    }

    #[test]
    fn the_program_of_today_is_known_by_its_arguments() {
        let today = "/opt/x/mark --device rocep1s0f0 --source-port 65535 --replacement-ethertype 0x88b5 --attach";
        assert_eq!(
            device_argument(&words(today)),
            Some(Some("rocep1s0f0".into()))
        );
        let equals = "mark --replacement-ethertype=0x88b5 --device=rocep1s0f1";
        assert_eq!(
            device_argument(&words(equals)),
            Some(Some("rocep1s0f1".into()))
        );
        let ours = "/opt/dsv41-mesh/bin/hairpin-mesh marker --device rocep1s0f0";
        assert_eq!(
            device_argument(&words(ours)),
            Some(Some("rocep1s0f0".into()))
        );
    }

    #[test]
    fn other_programs_are_no_markers() {
        for line in [
            "hairpin-mesh inventory --device rocep1s0f0",
            "ib_write_lat --device x",
            "sh -c --device",
        ] {
            assert_eq!(device_argument(&words(line)), None, "{line}");
        }
        let shell = [
            b"sh".to_vec(),
            b"-c".to_vec(),
            b"mark --replacement-ethertype 0x88b5".to_vec(),
        ];
        assert_eq!(device_argument(&shell), None);
        assert_eq!(device_argument(&[]), None);
    }
}
