//! `inventory`: the facts of this host, or of others over SSH.

use std::net::Ipv4Addr;

use serde::Serialize;

use super::{Exit, Trouble};
use crate::cli::InventoryArgs;
use crate::collect;
use crate::facts::Inventory;
use crate::files;
use crate::json::{At, DocumentError, Value, parse, pretty};
use crate::names::{HostName, PlainPath};
use crate::output;
use crate::redact::Redactor;
use crate::remote;

/// The facts of one host as it told them.
pub(super) struct Asked {
    /// The document, with the host's name as the command line calls it.
    document: Value<'static>,
    /// The same as bytes.
    pub(super) bytes: Vec<u8>,
    /// The same, read.
    pub(super) inventory: Inventory,
}

/// What an inventory has beyond what every one has.
#[derive(Default, Clone, Copy)]
pub(super) struct More<'a> {
    /// NCCL libraries to look into.
    pub(super) nccl_libraries: &'a [PlainPath],
    /// Addresses to ask for on the wire.
    pub(super) wire: &'a [Ipv4Addr],
}

/// Asks all hosts at once; results in their order, each failure a line that names the host.
pub(super) fn ask_all(hosts: &[HostName], more: &More) -> Vec<Result<Asked, String>> {
    let mut arguments = vec!["inventory", "--json"];
    for path in more.nccl_libraries {
        arguments.extend(["--nccl-library", path.as_str()]);
    }
    let addresses: Vec<String> = more.wire.iter().map(ToString::to_string).collect();
    for address in &addresses {
        arguments.extend(["--ask-wire", address]);
    }
    let question = remote::Question {
        arguments: &arguments,
        input: &[],
        answers: &[0],
    };
    let questions: Vec<_> = hosts.iter().map(|host| (host, question)).collect();
    let results = remote::ask_all(&questions);
    hosts
        .iter()
        .zip(results)
        .map(|(host, result)| {
            let told = result.map_err(|e| format!("{host}: {e}"))?;
            let name = format!("{host}: its inventory");
            let document = called(host, &name, &told).map_err(|e| e.to_string())?;
            let bytes = pretty(&document).into_bytes();
            let inventory = Inventory::from_json(&name, &bytes).map_err(|e| e.to_string())?;
            Ok(Asked {
                document,
                bytes,
                inventory,
            })
        })
        .collect()
}

/// The document with `host` set to what the command line calls that host.
fn called(host: &HostName, name: &str, told: &[u8]) -> Result<Value<'static>, DocumentError> {
    let mut value = parse(name, told)?.into_owned();
    At::root(name, &value).need("host")?.name::<HostName>()?;
    if let Value::Object(entries) = &mut value {
        for (_, own) in entries.iter_mut().filter(|(key, _)| key == "host") {
            *own = Value::Text(host.to_string().into());
        }
    }
    Ok(value)
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    /// The files written.
    written: Vec<String>,
    /// Hosts that gave no inventory, and why.
    failed: &'a [String],
}

pub(super) fn run(args: InventoryArgs) -> Result<Exit, Trouble> {
    if let Some((_, host)) = args
        .hosts
        .iter()
        .enumerate()
        .find(|(i, h)| args.hosts[..*i].contains(h))
    {
        return Err(Trouble::Usage(format!(
            "--host {host} is given twice, every host once wanted"
        )));
    }
    let more = More {
        nccl_libraries: &args.nccl_libraries,
        wire: &args.wire,
    };
    let mut failed = Vec::new();
    let mut documents: Vec<(String, Value)> = Vec::new();
    if args.hosts.is_empty() {
        let options = collect::Options {
            host: None,
            devices: args.devices.clone(),
            wire: args.wire.clone(),
            nccl_libraries: args
                .nccl_libraries
                .iter()
                .map(|path| path.as_str().into())
                .collect(),
        };
        let inventory = collect::collect(&options).map_err(|e| Trouble::Usage(e.to_string()))?;
        for what in &inventory.left_out {
            output::warning(&format!("{}: {}", what.what, what.why));
        }
        let devices: Vec<_> = inventory
            .ports
            .iter()
            .filter_map(|port| port.rdma.known()?.as_ref())
            .collect();
        if let Some(device) = args.devices.iter().find(|device| !devices.contains(device)) {
            return Err(Trouble::Usage(format!(
                "--device {device}: its port cannot be described, a device of this host wanted"
            )));
        }
        let value = parse("this host's inventory", pretty(&inventory).as_bytes())?.into_owned();
        documents.push((inventory.host.to_string(), value));
    } else {
        for (host, result) in args.hosts.iter().zip(ask_all(&args.hosts, &more)) {
            match result {
                Ok(asked) => documents.push((host.to_string(), asked.document)),
                Err(why) => failed.push(why),
            }
        }
    }
    if args.redact {
        let names: Vec<&str> = documents.iter().map(|(host, _)| host.as_str()).collect();
        let mut redactor = Redactor::new(&names);
        for (host, document) in &mut documents {
            redactor.redact(document);
            *host = redactor.host(host);
        }
    }
    match &args.out {
        Some(folder) => {
            files::create_folder(folder)?;
            let mut written = Vec::new();
            for (host, document) in &documents {
                let path = folder.join(format!("{host}.json"));
                files::replace_file(&path, pretty(document).as_bytes())?;
                written.push(path.display().to_string());
            }
            if args.json {
                let report = Report {
                    schema: "hairpin-mesh.inventory-report/v1",
                    written,
                    failed: &failed,
                };
                output::result(&pretty(&report))?;
            } else {
                output::result(
                    &written
                        .iter()
                        .map(|path| format!("ok {path}\n"))
                        .collect::<String>(),
                )?;
            }
        }
        None => match (args.hosts.len(), documents.as_slice()) {
            (0 | 1, [(_, only)]) => output::result(&pretty(only))?,
            (0 | 1, _) => {}
            _ => output::result(&pretty(
                &documents.iter().map(|(_, d)| d).collect::<Vec<_>>(),
            ))?,
        },
    }
    if failed.is_empty() {
        Ok(Exit::Yes)
    } else {
        Err(Trouble::Several(failed))
    }
}
