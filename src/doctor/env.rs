//! An engine's or launcher's environment, held against the fabric.
//!
//! NCCL ignores names that it does not know, silently, and takes a name of an HCA as a prefix. So what
//! looks set may not be, and what looks exact may be more.

use std::collections::{BTreeMap, BTreeSet};

use crate::doctor::chain::Seen;
use crate::doctor::fabric::Fabric;
use crate::finding::Finding;
use crate::json::DocumentError;
use crate::names::quoted;
use crate::plan::ends::{count, list};
use crate::plan::mesh::{PREFERRED_GID_INDEX, size_cap};
use crate::plan::{Choices, OppositePaths, Plan, RouteStrategy, assemble, derive};

/// Largest environment file, bytes.
pub const LARGEST: usize = 256 * 1024;
/// Most variables of one.
const MOST_VARIABLES: usize = 4096;

/// An environment as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// What findings call it.
    pub name: String,
    /// Names and values, in the file's order.
    pub variables: Vec<(String, String)>,
    /// Words that assign nothing, each with the assignment before it on its line (name and value).
    pub other: Vec<(Option<(String, String)>, String)>,
}

impl Environment {
    /// Reads one: assignments on one line or on many, with or without `export`, quotes and comments as a
    /// shell has them; lines of a systemd unit and of a compose file, too.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Environment, DocumentError> {
        let error = |what: String| DocumentError {
            place: name.to_owned(),
            what,
        };
        if bytes.len() > LARGEST {
            return Err(error(format!(
                "is {} bytes, {LARGEST} at most wanted",
                bytes.len()
            )));
        }
        let text =
            std::str::from_utf8(bytes).map_err(|e| error(format!("is no UTF-8 text: {e}")))?;
        if text.contains('\0') {
            return Err(error("has a NUL in it, a text wanted".into()));
        }
        let mut env = Environment {
            name: name.to_owned(),
            variables: Vec::new(),
            other: Vec::new(),
        };
        for line in text.lines() {
            let mut before: Option<(String, String)> = None;
            let words = words(line);
            // A mapping of YAML, as a compose file has it. JSON is none: its values end with a comma.
            let mapping = match &words[..] {
                [key, value] if !line.trim_start().starts_with('"') => {
                    let key = key.strip_suffix(':').filter(|key| is_ours(key));
                    key.map(|key| vec![format!("{key}={value}")])
                }
                _ => None,
            };
            for word in mapping.unwrap_or(words) {
                // In a unit of systemd.
                let word = word.strip_prefix("Environment=").unwrap_or(&word);
                if word == "export" || word == "env" {
                    continue;
                }
                match word.split_once('=') {
                    Some((name, value)) if is_name(name) => {
                        before = Some((name.to_owned(), value.to_owned()));
                        env.variables.push((name.to_owned(), value.to_owned()))
                    }
                    _ => env.other.push((before.clone(), word.to_owned())),
                }
                if env.variables.len() + env.other.len() > MOST_VARIABLES {
                    return Err(error(format!("has more than {MOST_VARIABLES} variables")));
                }
            }
        }
        Ok(env)
    }

    /// The value that counts: the last one.
    fn get(&self, name: &str) -> Option<&str> {
        let mut with = self.variables.iter().rev().filter(|(own, _)| own == name);
        with.next().map(|(_, value)| value.as_str())
    }

    fn has_any(&self, start: &str) -> bool {
        self.variables
            .iter()
            .any(|(name, _)| name.starts_with(start))
    }
}

fn is_name(name: &str) -> bool {
    let first = name.bytes().next();
    first.is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Words of a line as a shell splits them; a comment ends it.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (Some('"') | None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Names that NCCL or the library of the switchless ring reads.
const NCCL: &[&str] = &[
    "ALGO",
    "ALLOC_P2P_NET_LL_BUFFERS",
    "ALLREDUCE_FAST_PATH",
    "BUFFSIZE",
    "CGA_CLUSTER_SIZE",
    "CHECKS_DISABLE",
    "CHECK_POINTERS",
    "COLLNET_ENABLE",
    "COLLNET_NODE_THRESHOLD",
    "COMM_BLOCKING",
    "COMM_ID",
    "COMM_SHRINK_SHARE_RESOURCES",
    "COMM_SPLIT_SHARE_RESOURCES",
    "CONF_FILE",
    "CREATE_THREAD_CONTEXT",
    "CROSS_NIC",
    "CTA_POLICY",
    "CUMEM_ENABLE",
    "CUMEM_HOST_ENABLE",
    "DEBUG",
    "DEBUG_FILE",
    "DEBUG_SUBSYS",
    "DEBUG_TIMESTAMP_FORMAT",
    "DEBUG_TIMESTAMP_LEVELS",
    "DMABUF_ENABLE",
    "GDRCOPY_ENABLE",
    "GDR_FLUSH_DISABLE",
    "GRAPH_DUMP_FILE",
    "GRAPH_FILE",
    "GRAPH_HELPER_DISABLE",
    "GRAPH_MIXING_SUPPORT",
    "GRAPH_REGISTER",
    "HOSTID",
    "IB_ADAPTIVE_ROUTING",
    "IB_ADDR_FAMILY",
    "IB_ADDR_RANGE",
    "IB_AR_THRESHOLD",
    "IB_CUDA_SUPPORT",
    "IB_DATA_DIRECT",
    "IB_DISABLE",
    "IB_ECE_ENABLE",
    "IB_EXTENDED_IPV4_GIDS",
    "IB_FIFO_TC",
    "IB_GDR_FLUSH_DISABLE",
    "IB_GID_INDEX",
    "IB_HCA",
    "IB_IS_GLOBAL",
    "IB_MERGE_NICS",
    "IB_MERGE_VFS",
    "IB_PCI_RELAXED_ORDERING",
    "IB_PKEY",
    "IB_PRESERVE_PCI_DOMAIN",
    "IB_PREPOST_RECEIVE_WORK_REQUESTS",
    "IB_QPS_PER_CONNECTION",
    "IB_RETRY_CNT",
    "IB_RETURN_ASYNC_EVENTS",
    "IB_ROCE_VERSION_NUM",
    "IB_ROUTE_DIAGNOSTICS",
    "IB_ROUTABLE_FLID_GID_INDEX",
    "IB_SL",
    "IB_SPLIT_DATA_ON_QPS",
    "IB_SUBNET_AWARE_ROUTING",
    "IB_SUBNET_PREFIX_LEN",
    "IB_TC",
    "IB_TIMEOUT",
    "IB_USE_INLINE",
    "IB_WARN_RAIL_LOCAL",
    "IGNORE_CPU_AFFINITY",
    "IGNORE_DISABLED_P2P",
    "LAUNCH_MODE",
    "LAUNCH_ORDER_IMPLICIT",
    "LAUNCH_RACE_FATAL",
    "LL128_BUFFSIZE",
    "LL128_NTHREADS",
    "LL_BUFFSIZE",
    "LOCAL_REGISTER",
    "MAX_CTAS",
    "MAX_NCHANNELS",
    "MAX_NRINGS",
    "MAX_P2P_NCHANNELS",
    "MIN_CTAS",
    "MIN_NCHANNELS",
    "MIN_NRINGS",
    "MIN_P2P_NCHANNELS",
    "MNNVL_CLIQUE_ID",
    "MNNVL_ENABLE",
    "MNNVL_UUID",
    "NCHANNELS_PER_NET_PEER",
    "NET",
    "NETDEVS_POLICY",
    "NET_DISABLE_INTRA",
    "NET_FORCE_FLUSH",
    "NET_FORCE_MERGE",
    "NET_GDR_C2C",
    "NET_GDR_LEVEL",
    "NET_GDR_READ",
    "NET_MERGE_LEVEL",
    "NET_OVERHEAD",
    "NET_PLUGIN",
    "NET_SHARED_BUFFERS",
    "NET_SHARED_COMMS",
    "NSOCKS_PERTHREAD",
    "NTHREADS",
    "NVB_DISABLE",
    "NVB_PRECONNECT",
    "NVLS_CHUNKSIZE",
    "NVLS_ENABLE",
    "NVLS_NCHANNELS",
    "NVTX_DISABLE",
    "OOB_NET_ENABLE",
    "OOB_NET_IFNAME",
    "P2P_DIRECT_DISABLE",
    "P2P_DISABLE",
    "P2P_LEVEL",
    "P2P_LL_THRESHOLD",
    "P2P_NET_CHUNKSIZE",
    "P2P_NVL_CHUNKSIZE",
    "P2P_PCI_CHUNKSIZE",
    "P2P_READ_ENABLE",
    "P2P_USE_CUDA_MEMCPY",
    "PASS_SM_ID",
    "PAT_ENABLE",
    "PROFILER_PLUGIN",
    "PROGRESS_APPENDOP_FREQ",
    "PROTO",
    "PROXY_APPEND_BATCH_SIZE",
    "PROXY_CPUSET",
    "PROXY_DUMP_SIGNAL",
    "PXN_C2C",
    "PXN_DISABLE",
    "RAS_ADDR",
    "RAS_ENABLE",
    "RAS_TIMEOUT_FACTOR",
    "RINGS",
    "RUNTIME_CONNECT",
    "SET_CPU_STACK_SIZE",
    "SET_STACK_SIZE",
    "SET_THREAD_NAME",
    "SHM_DISABLE",
    "SHM_LOCALITY",
    "SHM_MEMCPY_MODE",
    "SHM_USE_CUDA_MEMCPY",
    "SINGLE_PROC_MEM_REG_ENABLE",
    "SINGLE_RING_THRESHOLD",
    "SKIP_TREE_CONNECT",
    "SOCKET_FAMILY",
    "SOCKET_IFNAME",
    "SOCKET_NTHREADS",
    "NSOCKS",
    "SOCKET_RETRY_CNT",
    "SOCKET_RETRY_SLEEP_MSEC",
    "SOCKET_POLL_TIMEOUT_MSEC",
    "SWITCHLESS_RING_ONLY",
    "SYM_CTAS",
    "SYM_GIN_KERNELS_ENABLE",
    "THREAD_THRESHOLDS",
    "TOPO_DUMP_FILE",
    "TOPO_DUMP_FILE_RANK",
    "TOPO_FILE",
    "TREE_THRESHOLD",
    "TUNER_CONFIG_FILE",
    "TUNER_PLUGIN",
    "UID_STAGGER_RATE",
    "UID_STAGGER_THRESHOLD",
    "UNPACK_DOUBLE_NCHANNELS",
    "WARN_ENABLE_DEBUG_INFO",
    "WIN_ENABLE",
    "WIN_STRIDE",
    "WORK_ARGS_BYTES",
    "WORK_FIFO_BYTES",
    "WORK_FIFO_DEPTH",
    "ENV_PLUGIN",
    "GIN_ENABLE",
    "GIN_TYPE",
    "ALLGATHERV_ENABLE",
    "IB_OOO_RQ",
    "IB_RECEIVER_SIDE_MATCHING_SCHEME",
];

/// Names that the engine reads.
const ENGINE: &[&str] = &[
    "DSV41_ROCE_RING",
    "SGLANG_ROCE_ALLREDUCE",
    "SGLANG_ROCE_MAX_SIZE",
    "DSV41_ROCE_GATHER",
    "B12X_ROCE_HCA",
    "B12X_ROCE_PEER_HCA_MAPS",
    "B12X_ROCE_TWO_WAVE_THRESHOLD_BYTES",
    "B12X_ROCE_GID_INDEX",
    "B12X_ROCE_OPPOSITE_PATHS",
];

struct Look<'a, 'b> {
    env: &'a Environment,
    fabric: &'a Fabric<'b>,
    seen: &'a mut Vec<Seen>,
}

impl Look<'_, '_> {
    fn push(&mut self, name: &str, finding: Finding) {
        // Of a value that is not in the file nothing is known.
        if self.env.get(name).is_some_and(is_made_elsewhere) && finding.code != NOT_IN_FILE {
            return;
        }
        let mut finding = finding.at(name);
        finding.host = None;
        self.seen.push(Seen::ring(finding));
    }

    fn problem(
        &mut self,
        name: &str,
        code: &'static str,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) {
        self.push(name, Finding::problem(code, found, wanted));
    }

    fn warning(
        &mut self,
        name: &str,
        code: &'static str,
        found: impl Into<String>,
        wanted: impl Into<String>,
    ) {
        self.push(name, Finding::warning(code, found, wanted));
    }
}

/// Everything of the environment that the fabric does not bear out.
pub(super) fn look(
    env: &Environment,
    fabric: &Fabric,
    plan: Option<&Plan>,
    ordered: bool,
    seen: &mut Vec<Seen>,
) {
    let mut look = Look { env, fabric, seen };
    if !env.variables.iter().any(|(name, _)| is_ours(name)) {
        look.warning(
            &env.name,
            "env-nothing-read",
            "nothing in it sets anything of the engine or of NCCL",
            "NAME=VALUE, as a shell or systemd reads it, or NAME: VALUE",
        );
    }
    words_that_assign_nothing(&mut look);
    made_elsewhere(&mut look);
    repeated(&mut look);
    unknown(&mut look);
    hcas(&mut look, "B12X_ROCE_HCA");
    hcas(&mut look, "NCCL_IB_HCA");
    gid_index(&mut look, "B12X_ROCE_GID_INDEX");
    gid_index(&mut look, "NCCL_IB_GID_INDEX");
    caps(&mut look);
    maps(&mut look, plan, ordered);
    engine(&mut look);
    nccl(&mut look);
    sockets(&mut look);
}

const NOT_IN_FILE: &str = "env-not-expanded";

/// Whether a value is another variable's, or what a command prints.
fn is_made_elsewhere(value: &str) -> bool {
    value.contains(['$', '`'])
}

/// Values that a shell or compose makes of something else; systemd makes nothing of them.
fn made_elsewhere(look: &mut Look) {
    let variables = look.env.variables.iter();
    let made: BTreeSet<&str> = variables
        .filter(|(name, value)| is_ours(name) && is_made_elsewhere(value))
        .map(|(name, _)| name.as_str())
        .collect();
    if !made.is_empty() {
        let what = count(made.len(), "value");
        let why = format!(
            "they are of other variables or of commands ({}): what reads the file puts them in, or takes them as they stand",
            list(made.into_iter().take(8))
        );
        let finding = Finding::not_observed(NOT_IN_FILE, &what, &why, "the values themselves");
        let name = look.env.name.clone();
        look.push(&name, finding);
    }
}

/// Connections that every node makes to every other, over a port that reaches its neighbour alone.
fn sockets(look: &mut Look) {
    let fabric = look.fabric;
    for variable in [
        "NCCL_SOCKET_IFNAME",
        "GLOO_SOCKET_IFNAME",
        "TP_SOCKET_IFNAME",
    ] {
        let Some(value) = look
            .env
            .get(variable)
            .filter(|value| !value.starts_with('^'))
        else {
            continue;
        };
        // NCCL takes a name for all devices whose names start so, unless `=` is before it.
        let by_start = variable.starts_with("NCCL") && !value.starts_with('=');
        let items: BTreeSet<&str> = value.trim_start_matches('=').split(',').collect();
        let is_meant = |netdev: &str| {
            items.iter().any(|item| {
                !item.is_empty() && (netdev == *item || by_start && netdev.starts_with(item))
            })
        };
        let names = (0..fabric.ports.len()).map(|port| fabric.facts(port).netdev.as_str());
        let meant: BTreeSet<&str> = names.filter(|name| is_meant(name)).collect();
        if !meant.is_empty() {
            look.warning(
                variable,
                "env-socket-on-fabric",
                format!(
                    "{} means {} of the fabric: opposite nodes do not reach each other there but through a neighbour's kernel",
                    quoted(value),
                    count(meant.len(), "port")
                ),
                "the device of the management network",
            );
        }
    }
}

/// Words that are the rest of a list with a space in it. Others belong to a command, or to a value of a file
/// that no shell reads: they are nobody's fault.
fn words_that_assign_nothing(look: &mut Look) {
    let fabric = look.fabric;
    let is_rest = |(before, word): &&(Option<(String, String)>, String)| {
        let Some((name, value)) = before else {
            return false;
        };
        let list = |c: char| matches!(c, ',' | ';');
        let device = word.split([',', ':']).next().unwrap_or_default();
        let mut ports = 0..fabric.ports.len();
        is_ours(name)
            && (value.is_empty()
                || value.ends_with(list)
                || word.starts_with(list)
                || ports.any(|port| fabric.device(port) == device))
    };
    let rest: Vec<&String> = look
        .env
        .other
        .iter()
        .filter(is_rest)
        .map(|(_, word)| word)
        .collect();
    let apart = look.env.other.windows(2).filter_map(|pair| {
        let [(_, name), (_, rest)] = pair else {
            return None;
        };
        (is_ours(name) && is_name(name) && rest.starts_with('=')).then_some(name.clone())
    });
    let apart: BTreeSet<String> = apart.collect();
    for name in apart {
        look.problem(
            &name,
            "env-no-assignment",
            "has a space before its =: a shell takes it for a command, and systemd for nothing",
            "NAME=VALUE without a space",
        );
    }
    for word in rest.into_iter().take(8) {
        let (name, shown) = (look.env.name.clone(), quoted(word));
        look.problem(
            &name,
            "env-no-assignment",
            format!("the word {shown} assigns nothing: a list with a space in it ends there"),
            "NAME=VALUE, no space inside a list",
        );
    }
}

/// Whether a name is one that NCCL or the engine could mean.
fn is_ours(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    ["NCCL_", "B12X_ROCE_", "DSV41_ROCE_", "SGLANG_ROCE_"]
        .iter()
        .any(|start| upper.starts_with(start))
}

fn repeated(look: &mut Look) {
    let mut told = BTreeSet::new();
    for (name, value) in &look.env.variables {
        if let Some(last) = look.env.get(name).filter(|last| last != value) {
            if told.insert(name.clone()) {
                look.problem(
                    name,
                    "env-set-twice",
                    format!("is {} and {}", quoted(value), quoted(last)),
                    "one value",
                );
            }
        }
    }
}

/// How many letters have to change to make one of the other.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, b) in other.iter().enumerate() {
            let here = corner + usize::from(a != *b);
            corner = row[j + 1];
            row[j + 1] = here.min(row[j] + 1).min(corner + 1);
        }
    }
    row.last().copied().unwrap_or_default()
}

/// Names that nobody reads.
fn unknown(look: &mut Look) {
    let known: Vec<String> = NCCL
        .iter()
        .map(|name| format!("NCCL_{name}"))
        .chain(ENGINE.iter().map(|name| (*name).to_owned()))
        .collect();
    let mut told = BTreeSet::new();
    for (name, _) in &look.env.variables {
        if known.contains(name) || !told.insert(name.clone()) {
            continue;
        }
        let upper = name.to_ascii_uppercase();
        let near = known.iter().min_by_key(|own| distance(&upper, own));
        let near = near.filter(|own| distance(&upper, own) <= 2);
        let ours = is_ours(name);
        match near {
            Some(near) => look.problem(
                name,
                "env-unknown-name",
                "nobody reads this name, and nobody says so",
                near.clone(),
            ),
            None if ours => look.warning(
                name,
                "env-unknown-name",
                "is no name that is known: what does not know it ignores it silently",
                "a known name",
            ),
            None => {}
        }
    }
}

/// HCAs are named exactly, each once, all four.
fn hcas(look: &mut Look, variable: &str) {
    let Some(value) = look.env.get(variable) else {
        return;
    };
    if value.is_empty() {
        return look.problem(
            variable,
            "env-hca-missing",
            "is empty",
            "the fabric's RDMA devices",
        );
    }
    if value.starts_with('^') {
        return look.problem(
            variable,
            "env-hca-filter",
            format!("{} excludes", quoted(value)),
            "the RDMA devices by name",
        );
    }
    let list_of = value.strip_prefix('=').unwrap_or(value);
    let mut names: Vec<&str> = Vec::new();
    for item in list_of.split(',') {
        let name = item.split(':').next().unwrap_or_default().trim();
        if name != item.split(':').next().unwrap_or_default() {
            look.problem(
                variable,
                "env-hca-space",
                format!("{} has a space", quoted(item)),
                "names without",
            );
        }
        if names.contains(&name) {
            look.problem(
                variable,
                "env-hca-twice",
                format!("{name} is named twice"),
                "each once",
            );
        }
        names.push(name);
    }
    let fabric = look.fabric;
    let devices = |node: usize| -> Vec<String> {
        let own = fabric.of_host(node);
        let mut own: Vec<usize> = own.into_iter().collect();
        own.sort_by_key(|port| (fabric.ports[*port].domain, fabric.ports[*port].port));
        own.into_iter().map(|port| fabric.device(port)).collect()
    };
    // The same of several hosts once.
    let mut told: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for (node, host) in fabric.hosts.iter().enumerate() {
        let own = devices(node);
        if own.is_empty() {
            continue;
        }
        for name in &names {
            if own.iter().any(|device| device == name) {
                continue;
            }
            let starts: Vec<&String> = own
                .iter()
                .filter(|device| !name.is_empty() && device.starts_with(name))
                .collect();
            let found = if name.is_empty() {
                "an empty name".to_owned()
            } else if starts.is_empty() {
                format!("{} is no fabric device", quoted(name))
            } else {
                format!(
                    "{} is the start of {}, and taken for all of them",
                    quoted(name),
                    list(starts)
                )
            };
            told.entry((found, list(&own)))
                .or_default()
                .push(host.as_str());
        }
    }
    for ((found, own), hosts) in told {
        look.problem(
            variable,
            "env-hca-unknown",
            format!("{found} (on {})", list(hosts)),
            format!("of {own}"),
        );
    }
    let Some(own) = (0..fabric.hosts.len())
        .map(devices)
        .find(|own| own.len() == 4)
    else {
        return;
    };
    let missing: Vec<&String> = own
        .iter()
        .filter(|device| !names.contains(&device.as_str()))
        .collect();
    let known = names
        .iter()
        .all(|name| own.iter().any(|device| device == name));
    if known && !missing.is_empty() {
        look.problem(
            variable,
            "env-hca-missing",
            format!(
                "{} not in it: their share of the bandwidth is lost",
                list(missing)
            ),
            list(&own),
        );
    } else if known && variable.starts_with("B12X") && names.len() == own.len() && names != own {
        look.problem(
            variable,
            "env-hca-order",
            format!(
                "the order is {}: the peer maps count in another",
                list(&names)
            ),
            list(&own),
        );
    }
}

fn number<T: std::str::FromStr>(look: &mut Look, variable: &str, wanted: &str) -> Option<T> {
    let value = look.env.get(variable)?;
    let parsed = value.parse().ok();
    if parsed.is_none() {
        look.problem(
            variable,
            "env-no-number",
            format!("is {}", quoted(value)),
            wanted,
        );
    }
    parsed
}

fn gid_index(look: &mut Look, variable: &str) {
    let fabric = look.fabric;
    let sets = || {
        (0..fabric.ports.len())
            .map(|port| (port, fabric.ports[port].gid_indices()))
            .filter(|(_, set)| !set.is_empty())
    };
    if look.env.get(variable).is_none() {
        // The engine takes 3 when nobody says otherwise; NCCL looks by itself.
        let engine = variable.starts_with("B12X") && look.env.has_any("B12X_ROCE_");
        if engine
            && fabric.ring.is_some()
            && fabric.gid_index != PREFERRED_GID_INDEX
            && sets().any(|(_, set)| !set.contains(&PREFERRED_GID_INDEX))
        {
            look.problem(
                variable,
                "env-gid-index",
                format!("is not set, and {PREFERRED_GID_INDEX} counts"),
                format!("{}", fabric.gid_index),
            );
        }
        return;
    }
    if look.env.get(variable) == Some("-1") && variable.starts_with("NCCL") {
        return;
    }
    let Some(index) = number::<u8>(look, variable, "0 to 255") else {
        return;
    };
    let wrong: Vec<String> = sets()
        .filter(|(_, set)| !set.contains(&index))
        .map(|(port, set)| {
            format!(
                "{} has its GID at {}",
                fabric.ports[port].label(),
                list(set)
            )
        })
        .collect();
    if !wrong.is_empty() {
        let shown = wrong.iter().take(4).cloned().collect::<Vec<_>>().join("; ");
        let more = wrong.len().saturating_sub(4);
        let more = if more > 0 {
            format!("; and {more} more")
        } else {
            String::new()
        };
        look.problem(
            variable,
            "env-gid-index",
            format!("index {index} is pinned, and {shown}{more}"),
            "an index that every port has, or none pinned",
        );
    }
}

/// What a hairpin queue cannot hold must not be sent through it.
fn caps(look: &mut Look) {
    let queue = look.fabric.hairpin_queue_size;
    let cap = size_cap(queue);
    for variable in ["SGLANG_ROCE_MAX_SIZE", "DSV41_ROCE_GATHER"] {
        if let Some(size) = number::<u64>(look, variable, "bytes") {
            if size > u64::from(cap) {
                look.problem(
                    variable,
                    "env-cap-over-queue",
                    format!("messages of {size} bytes, and the smallest hairpin queue known to be loaded holds {queue} packets"),
                    format!("{cap} at most"),
                );
            }
        }
    }
}

/// The plan of the ring with these paths, for TP ranks in this order.
fn plan_of(fabric: &Fabric, order: &[usize], paths: OppositePaths) -> Option<Plan> {
    let hosts: Vec<_> = order
        .iter()
        .map(|node| fabric.hosts[*node].clone())
        .collect();
    let inventories: Vec<_> = order
        .iter()
        .map(|node| fabric.inventories[*node].clone())
        .collect();
    let derived = derive(&hosts, &inventories, None);
    let choices = Choices {
        opposite_paths: paths,
        gid_index: derived.gid_index,
        hairpin_queue_size: derived.hairpin_queue_size,
        hairpin_queue_wanted: None,
        strategy: RouteStrategy::AdjacentGateway,
        identities: Default::default(),
    };
    assemble(&derived.ring?, &hosts, &choices).ok()
}

fn maps(look: &mut Look, plan: Option<&Plan>, ordered: bool) {
    const VARIABLE: &str = "B12X_ROCE_PEER_HCA_MAPS";
    let paths = match look.env.get("B12X_ROCE_OPPOSITE_PATHS") {
        Some("4") => OppositePaths::Four,
        Some("2") | None => OppositePaths::Two,
        Some(other) => {
            let shown = quoted(other);
            return look.problem(
                "B12X_ROCE_OPPOSITE_PATHS",
                "env-opposite-paths",
                format!("is {shown}"),
                "2 or 4",
            );
        }
    };
    let Some(value) = look.env.get(VARIABLE).map(str::to_owned) else {
        return;
    };
    let of_two = plan.is_some_and(|plan| plan.opposite_paths == OppositePaths::Two);
    if of_two && paths == OppositePaths::Four {
        let is_up = look.fabric.inventories.iter().any(|node| {
            node.ports.iter().any(|port| {
                port.details.filters.known().is_some_and(|all| {
                    all.iter()
                        .any(|filter| filter.protocol.0 == crate::plan::mesh::MARKED_ETHERTYPE)
                })
            })
        });
        if is_up {
            look.problem(
                "B12X_ROCE_OPPOSITE_PATHS",
                "env-opposite-paths",
                "is 4, and the mesh has the rules of 2",
                "2, or a mesh planned with --opposite-paths 4",
            );
        }
    }
    let fabric = look.fabric;
    if fabric.ring.is_none() {
        return;
    }
    let given: Vec<usize> = match plan {
        Some(plan) => plan
            .hosts
            .iter()
            .filter_map(|host| fabric.node(host.as_str()))
            .collect(),
        None => (0..fabric.hosts.len()).collect(),
    };
    let Some(wanted) = plan_of(fabric, &given, paths) else {
        return;
    };
    if wanted.peer_maps == value {
        return;
    }
    // Whose they are, when they are those of the same ring in another rank order.
    let other = super::cabling::orders(fabric.hosts.len())
        .into_iter()
        .find_map(|order| plan_of(fabric, &order, paths).filter(|plan| plan.peer_maps == value));
    let found = match other {
        // Nobody said which order it is.
        Some(_) if !ordered => return,
        Some(other) => format!("they are the maps of TP rank order {}", list(&other.hosts)),
        None => format!("they are the maps of another ring: {}", quoted(&value)),
    };
    look.problem(
        VARIABLE,
        "env-peer-maps",
        found,
        format!("{} for {}", wanted.peer_maps, list(&wanted.hosts)),
    );
}

fn is_on(value: Option<&str>) -> bool {
    value.is_some_and(|value| !matches!(value, "" | "0" | "false"))
}

fn engine(look: &mut Look) {
    let ring = look.env.get("DSV41_ROCE_RING").map(str::to_owned);
    let reduce = look.env.get("SGLANG_ROCE_ALLREDUCE").map(str::to_owned);
    if is_on(ring.as_deref()) && reduce.is_some() && !is_on(reduce.as_deref()) {
        look.problem(
            "SGLANG_ROCE_ALLREDUCE",
            "env-conflict",
            "is off while DSV41_ROCE_RING is on",
            "both on, or both off",
        );
    }
    if is_on(reduce.as_deref()) && ring.is_some() && !is_on(ring.as_deref()) {
        look.problem(
            "DSV41_ROCE_RING",
            "env-conflict",
            "is off while SGLANG_ROCE_ALLREDUCE is on",
            "both on, or both off",
        );
    }
    if ring.is_some() && !is_on(ring.as_deref()) && is_on(look.env.get("DSV41_ROCE_GATHER")) {
        look.problem(
            "DSV41_ROCE_GATHER",
            "env-conflict",
            "is set while DSV41_ROCE_RING is off",
            "not set",
        );
    }
    if is_on(ring.as_deref()) && super::mesh::is_absent(look.fabric) {
        look.problem(
            "DSV41_ROCE_RING",
            "env-without-mesh",
            "is on, and no host has a rule, route or marker of a mesh",
            "the mesh up on every host",
        );
    }
    if is_on(ring.as_deref()) {
        for name in ["B12X_ROCE_HCA", "B12X_ROCE_PEER_HCA_MAPS"] {
            if look.env.get(name).is_none() {
                look.problem(
                    name,
                    "env-setting-missing",
                    "is not set, and DSV41_ROCE_RING is on",
                    "the plan's (env.txt)",
                );
            }
        }
    }
}

fn nccl(look: &mut Look) {
    let get = |name: &str| look.env.get(name).map(str::to_owned);
    let ring_only = is_on(look.env.get("NCCL_SWITCHLESS_RING_ONLY"));
    let mut found: Vec<(&str, &'static str, String, String)> = Vec::new();
    let mut missing: Vec<String> = Vec::new();
    if !ring_only
        && (look.env.get("NCCL_IB_HCA").is_some()
            || look.env.get("NCCL_SKIP_TREE_CONNECT").is_some())
    {
        let more = if look.env.get("NCCL_SKIP_TREE_CONNECT").is_some() {
            "; NCCL_SKIP_TREE_CONNECT alone is not enough"
        } else {
            ""
        };
        found.push(("NCCL_SWITCHLESS_RING_ONLY", "env-ring-only", format!("is not on: NCCL connects opposite nodes, which have no common subnet, and times out{more}"), "1".into()));
    }
    if is_on(look.env.get("NCCL_IB_DISABLE")) {
        found.push((
            "NCCL_IB_DISABLE",
            "env-conflict",
            "turns RDMA off".into(),
            "not set".into(),
        ));
    }
    if let Some(net) = get("NCCL_NET").filter(|net| net.eq_ignore_ascii_case("socket")) {
        found.push((
            "NCCL_NET",
            "env-conflict",
            format!("is {net}: TCP in place of RDMA"),
            "not set, or IB".into(),
        ));
    }
    let counts = |name: &str| get(name).and_then(|value| value.parse::<u32>().ok());
    if let (Some(least), Some(most)) = (counts("NCCL_MIN_NCHANNELS"), counts("NCCL_MAX_NCHANNELS"))
    {
        if least > most {
            found.push((
                "NCCL_MIN_NCHANNELS",
                "env-conflict",
                format!("is {least}, above NCCL_MAX_NCHANNELS {most}"),
                "at most that".into(),
            ));
        }
    }
    if ring_only {
        for (name, wanted) in [
            ("NCCL_ALGO", "Ring"),
            ("NCCL_P2P_LEVEL", "SYS"),
            ("NCCL_MIN_NCHANNELS", "4"),
            ("NCCL_MAX_NCHANNELS", "4"),
        ] {
            match get(name) {
                Some(value) if value.eq_ignore_ascii_case(wanted) => {}
                Some(value) => found.push((
                    name,
                    "env-conflict",
                    format!("is {} with NCCL_SWITCHLESS_RING_ONLY", quoted(&value)),
                    wanted.into(),
                )),
                None => missing.push(format!("{name}={wanted}")),
            }
        }
        if look
            .env
            .get("NCCL_IB_HCA")
            .is_some_and(|value| value.split(',').count() > 2)
        {
            for name in ["NCCL_IB_EXTENDED_IPV4_GIDS", "NCCL_IB_PRESERVE_PCI_DOMAIN"] {
                if !is_on(look.env.get(name)) {
                    found.push((name, "env-setting-missing", "is not on, and more than two devices are listed: those past the second carry nothing".into(), "1".into()));
                }
            }
            if get("NCCL_IB_QPS_PER_CONNECTION").is_some_and(|value| value != "1") {
                found.push((
                    "NCCL_IB_QPS_PER_CONNECTION",
                    "env-conflict",
                    "is not 1 with more than two devices".into(),
                    "1".into(),
                ));
            }
        }
        let prefixes: BTreeSet<u8> = look
            .fabric
            .ports
            .iter()
            .filter_map(|port| Some(port.address?.prefix))
            .collect();
        let given = get("NCCL_IB_SUBNET_PREFIX_LEN");
        if let (1, Some(prefix)) = (prefixes.len(), prefixes.first()) {
            match given {
                Some(value) if value == prefix.to_string() => {}
                Some(value) => found.push((
                    "NCCL_IB_SUBNET_PREFIX_LEN",
                    "env-prefix-length",
                    format!(
                        "is {}, and the cables' subnets are /{prefix}",
                        quoted(&value)
                    ),
                    prefix.to_string(),
                )),
                None => missing.push(format!("NCCL_IB_SUBNET_PREFIX_LEN={prefix}")),
            }
        }
    }
    if !missing.is_empty() {
        found.push((
            "NCCL_SWITCHLESS_RING_ONLY",
            "env-setting-missing",
            "is on without the settings that it needs".into(),
            missing.join(" "),
        ));
    }
    for (name, code, what, wanted) in found {
        look.problem(name, code, what, wanted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Environment {
        Environment::read("env.txt", text.as_bytes()).unwrap()
    }

    #[test]
    fn assignments_are_read_as_a_shell_reads_them() {
        let env = read("# first\nexport A=1 B='x y' C=\"p\\\"q\"\nD=a;b # rest\nE=\n_G1=x#y\n");
        assert_eq!(env.get("_G1"), Some("x#y"));
        let get = |name| env.get(name);
        assert_eq!(
            (get("A"), get("B"), get("C")),
            (Some("1"), Some("x y"), Some("p\"q"))
        );
        assert_eq!(
            (get("D"), get("E"), get("F")),
            (Some("a;b"), Some(""), None)
        );
        assert!(env.other.is_empty(), "{:?}", env.other);
        let before = Some(("A".to_owned(), "x,".to_owned()));
        assert_eq!(read("A=x, y").other, [(before, "y".to_owned())]);
        assert_eq!(read("A=1\nA=2").get("A"), Some("2"));
        let env = read("1A=1 A-B=2 =3 --option=4");
        assert_eq!((env.variables.len(), env.other.len()), (0, 4));
    }

    #[test]
    fn what_is_no_text_or_too_much_is_refused() {
        assert!(Environment::read("x", &[0xff, 0xfe]).is_err());
        assert!(Environment::read("x", b"A=\0").is_err());
        let of_bytes = |count| Environment::read("x", &vec![b'A'; count]);
        assert!(of_bytes(262_144).is_ok() && of_bytes(262_145).is_err());
        let of_words = |count| Environment::read("x", "a A=1 ".repeat(count).as_bytes());
        assert!(of_words(2048).is_ok() && of_words(2049).is_err());
    }

    #[test]
    fn the_distance_of_words_counts_letters() {
        assert_eq!(distance("NCCL_IB_HCA", "NCCL_IB_HCA"), 0);
        assert_eq!(distance("NCCL_IB_HCAS", "NCCL_IB_HCA"), 1);
        assert_eq!((distance("", "abc"), distance("abc", "")), (3, 3));
        assert_eq!(distance("abd", "abc"), 1);
    }
}
