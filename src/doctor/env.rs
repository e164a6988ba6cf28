//! An engine's or launcher's environment, held against the fabric.
//!
//! NCCL ignores names that it does not know, silently, and takes a name of an HCA as a prefix. So what
//! looks set may not be, and what looks exact may be more.

mod compose;
mod shell;
mod unit;

use std::collections::{BTreeMap, BTreeSet};

use crate::doctor::chain::Seen;
use crate::doctor::fabric::Fabric;
use crate::doctor::mesh::has_rules;
use crate::doctor::nccl::printable;
use crate::finding::{Finding, Severity};
use crate::json::DocumentError;
use crate::names::{Cidr, HostName, quoted};
use crate::plan::ends::{count, list};
use crate::plan::mesh::{PREFERRED_GID_INDEX, size_cap};
use crate::plan::{Choices, OppositePaths, Plan, RouteStrategy, assemble, derive};

/// Largest environment file, bytes.
pub const LARGEST: usize = 256 * 1024;
/// Most variables of one.
const MOST_VARIABLES: usize = 4096;

/// An environment as it was read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Environment {
    /// What findings call it.
    pub name: String,
    /// Names and values, in the file's order.
    pub variables: Vec<(String, String)>,
    /// Words that assign nothing, each with the assignment before it on its line (name and value).
    pub other: Vec<(Option<(String, String)>, String)>,
    /// Variables whose value a shell ends at a character that is not quoted, and that character.
    cut: Vec<(String, char)>,
    /// Variables with a comment behind the value, which a shell alone takes for one.
    commented: Vec<(String, String)>,
    /// Of how many it is one: the services of a compose file, or the lines of a script that start something, that it
    /// is the environment of.
    of: Vec<String>,
    /// Those environments; the rest of this one is empty then.
    services: Vec<Environment>,
    /// Variables that were set and taken back.
    unset: BTreeSet<String>,
    /// Variables of which what the file cannot show decides what they are, and the line.
    conditional: BTreeMap<String, usize>,
    /// What a script starts with it: the command, its line, and whether it is one that engines are started with.
    started: Option<(String, usize, bool)>,
    /// Variables that the command has not, since they are not exported.
    unexported: BTreeSet<String>,
    /// Variables of a unit's section that has none, with the section.
    misplaced: Vec<(String, String)>,
    /// Words of a unit that are no assignments to systemd, with a variable in them.
    refused: Vec<String>,
    /// Variables whose quotes are part of the value.
    quoted: BTreeSet<String>,
    /// Whether the lines of a script end with a CR.
    has_returns: bool,
    /// The line of a quote that nothing closes.
    open_since: Option<usize>,
    /// Files and commands that more of the environment comes from.
    refers: BTreeSet<String>,
    /// Variables of a unit that a file, which is not read, may set otherwise: the file counts.
    weak: BTreeSet<String>,
    /// Variables that stand behind the name of an image, as arguments of the program in the container.
    behind: BTreeSet<String>,
    /// A command that takes nothing of what is exported, and its line: a container's, or another host's.
    apart: Option<(String, usize)>,
}

/// A name with its value.
type Variable = (String, String);

/// What a file is written for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Shell,
    Compose,
    /// Of systemd.
    Unit,
    /// Docker's or systemd's, or a line of assignments: nothing tells which.
    Plain,
}

impl Format {
    fn of(name: &str, text: &str) -> Format {
        let is_key = |line: &str| {
            let line = line.trim_end();
            line == "services:" || line.trim_start().starts_with("environment:")
        };
        let is_command = |line: &str| {
            let mut words = line.split_whitespace();
            let first = words.next().unwrap_or_default();
            SETTERS.contains(&first) && words.next().is_some_and(|word| !word.starts_with('='))
        };
        if text.starts_with("#!") || name.ends_with(".sh") {
            Format::Shell
        } else if text.lines().any(is_key) {
            Format::Compose
        } else if unit::is_one(text) {
            Format::Unit
        } else if text.lines().any(is_command) {
            Format::Shell
        } else {
            Format::Plain
        }
    }
}

/// Commands that start a container, which has what is given to it.
const CONTAINERS: &[&str] = &["docker", "nerdctl", "podman"];

/// Commands of a shell that set or unset variables.
const SETTERS: &[&str] = &["export", "declare", "typeset", "unset"];

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
        let too_many = || {
            error(format!(
                "has more than {MOST_VARIABLES} variables, or a script without end"
            ))
        };
        let mut env = Environment {
            name: name.to_owned(),
            ..Environment::default()
        };
        match Format::of(name, text) {
            Format::Compose => {
                env.take_services(compose::read(text).ok_or_else(too_many)?);
                if text
                    .lines()
                    .any(|line| line.trim_start().starts_with("env_file:"))
                {
                    env.refer("env_file");
                }
            }
            Format::Unit => unit::read(&mut env, text).ok_or_else(too_many)?,
            Format::Shell => {
                let whole = text.replace("\r\n", "\n");
                env.take_starts(shell::read(name, &whole).ok_or_else(too_many)?);
                env.has_returns = whole.len() < text.len();
            }
            Format::Plain => env.lines(text).ok_or_else(too_many)?,
        }
        Ok(env)
    }

    /// Takes lines of assignments in; none where there are too many.
    fn lines(&mut self, text: &str) -> Option<()> {
        for line in text.lines() {
            let mut before: Option<Variable> = None;
            let Line { words, comment } = Line::of(line);
            // A mapping of YAML. JSON is none: its values end with a comma.
            let mapping = match &words[..] {
                [key, value] if !line.trim_start().starts_with('"') => {
                    let key = key.strip_suffix(':').filter(|key| is_judged(key));
                    key.map(|key| format!("{key}={value}"))
                }
                _ => None,
            };
            if let (Some(comment), [only]) = (comment, &words[..]) {
                let own = only.split_once('=').map(|(own, _)| own);
                if let Some(own) = own.filter(|own| is_judged(own)) {
                    self.commented
                        .push((own.to_owned(), comment.trim_end().to_owned()));
                }
            }
            for word in mapping.map_or(words, |word| vec![word]) {
                match shell::given(&word) {
                    Some(variable) => {
                        before = Some(variable.clone());
                        self.variables.push(variable);
                    }
                    None => self.other.push((before.clone(), word)),
                }
                if self.variables.len() + self.other.len() > MOST_VARIABLES {
                    return None;
                }
            }
        }
        Some(())
    }

    /// Says that more of it comes from elsewhere.
    fn refer(&mut self, what: &str) {
        if self.refers.len() < 8 {
            self.refers.insert(printable(what));
        }
        for service in &mut self.services {
            service.refer(what);
        }
    }

    /// Forgets a variable.
    fn forget(&mut self, name: &str) {
        self.variables.retain(|(own, _)| own != name);
        self.cut.retain(|(own, _)| own != name);
    }

    /// Forgets a variable that was set.
    fn take_back(&mut self, name: &str) {
        self.forget(name);
        self.conditional.remove(name);
        self.unset.insert(name.to_owned());
    }

    /// What a variable is depends on what the file cannot show.
    fn depends(&mut self, name: &str, line: usize) {
        self.variables.push((name.to_owned(), unknown_value(name)));
        self.conditional.entry(name.to_owned()).or_insert(line);
    }

    fn judged_names(&self) -> BTreeSet<&str> {
        let names = self.variables.iter().map(|(name, _)| name.as_str());
        names.filter(|name| is_judged(name)).collect()
    }

    /// Takes in what a script starts commands with; those that have the same are judged together.
    fn take_starts(&mut self, starts: Vec<Environment>) {
        fn values(env: &Environment) -> BTreeMap<&str, &str> {
            let judged = env.variables.iter().filter(|(name, _)| is_judged(name));
            judged
                .map(|(name, value)| (name.as_str(), value.as_str()))
                .collect()
        }
        let mut all: Vec<Environment> = Vec::new();
        for start in starts {
            let label = match &start.started {
                Some((_, line, _)) => format!("line {line}"),
                None => "at the end".to_owned(),
            };
            match all.iter_mut().find(|env| values(env) == values(&start)) {
                Some(env) => {
                    env.unexported = &env.unexported & &start.unexported;
                    let is_launcher =
                        |env: &Environment| env.started.as_ref().is_some_and(|own| own.2);
                    if is_launcher(&start) && !is_launcher(env) {
                        env.started.clone_from(&start.started);
                    }
                    env.of.push(label);
                }
                None => all.push(Environment {
                    of: vec![label],
                    ..start
                }),
            }
        }
        match all.len() {
            1 => {
                *self = all.remove(0);
                self.of.clear();
            }
            _ => self.services = all,
        }
    }

    /// Takes in what services of a compose file have; services that have the same are judged together, those
    /// that have nothing that is judged are left out.
    fn take_services(&mut self, services: Vec<(String, Vec<(String, String)>)>) {
        let mut all: Vec<Environment> = Vec::new();
        for (service, mut variables) in services {
            if !variables.iter().any(|(name, _)| is_judged(name)) {
                continue;
            }
            let mut quoted = BTreeSet::new();
            for (name, value) in variables.iter_mut().filter(|(name, _)| is_judged(name)) {
                if let Some(inner) = without_quotes(value) {
                    quoted.insert(name.clone());
                    *value = inner;
                }
            }
            let service = format!("service {}", printable(&service));
            let is_same =
                |env: &&mut Environment| env.variables == variables && env.quoted == quoted;
            match all.iter_mut().find(is_same) {
                Some(env) => env.of.push(service),
                None => all.push(Environment {
                    name: self.name.clone(),
                    variables,
                    quoted,
                    of: vec![service],
                    ..Environment::default()
                }),
            }
        }
        match all.len() {
            1 => {
                *self = all.remove(0);
                self.of.clear();
            }
            _ => self.services = all,
        }
    }

    /// The value that counts: the last one.
    fn get(&self, name: &str) -> Option<&str> {
        let mut with = self.variables.iter().rev().filter(|(own, _)| own == name);
        with.next().map(|(_, value)| value.as_str())
    }

    /// Names that have a space before their `=`, each once.
    fn apart(&self) -> Vec<String> {
        let apart = self.other.windows(2).filter_map(|pair| {
            let [(_, name), (_, rest)] = pair else {
                return None;
            };
            (is_ours(name) && is_name(name) && rest.starts_with('=')).then_some(name.clone())
        });
        apart.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether it was meant to be set, but for a space.
    fn is_apart(&self, name: &str) -> bool {
        match self.get(name) {
            None => self.apart().iter().any(|own| own == name),
            Some(value) => {
                let before = |(before, _): &(Option<(String, String)>, String)| {
                    before.as_ref().is_some_and(|(own, _)| own == name)
                };
                value.is_empty() && self.other.iter().any(before)
            }
        }
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

/// What is inside the quotes that a value begins and ends with.
fn without_quotes(value: &str) -> Option<String> {
    let inner = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
    inner('"').or_else(|| inner('\'')).map(str::to_owned)
}

/// The value of a variable of which it is not known: that which it has where the file is read.
fn unknown_value(name: &str) -> String {
    format!("${{{name}}}")
}

/// The words of a line, and the comment that ends it.
struct Line<'t> {
    words: Vec<String>,
    comment: Option<&'t str>,
}

impl Line<'_> {
    /// Outside of shells `;` and the like are letters as others are.
    fn of(line: &str) -> Line<'_> {
        let mut words: Vec<String> = Vec::new();
        let mut word: Option<String> = None;
        let mut comment = None;
        let mut quote = None;
        let mut chars = line.char_indices();
        let put = |word: &mut Option<String>, c: Option<char>| {
            word.get_or_insert_with(String::new).extend(c);
        };
        while let Some((at, c)) = chars.next() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (Some('"') | None, '\\') => put(&mut word, chars.next().map(|(_, c)| c)),
                (Some(_), c) => put(&mut word, Some(c)),
                (None, '\'' | '"') => {
                    quote = Some(c);
                    put(&mut word, None);
                }
                (None, '#') if word.is_none() => {
                    comment = Some(&line[at..]);
                    break;
                }
                (None, c) if c.is_whitespace() => words.extend(word.take()),
                (None, c) => put(&mut word, Some(c)),
            }
        }
        words.extend(word);
        Line { words, comment }
    }
}

/// Whether a word behind a value is the rest of a list with a space in it.
fn is_rest_of(value: &str, word: &str) -> bool {
    let list = |c: char| matches!(c, ',' | ';');
    value.is_empty() || value.ends_with(list) || word.starts_with(list)
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
    "CONNECT_ROUND_MAX_PEERS",
    "GDRCOPY_FIFO_ENABLE",
    "GDRCOPY_FLUSH_ENABLE",
    "GDRCOPY_SYNC_ENABLE",
    "GIN_COUNTER_POOL_SIZE",
    "GIN_ERROR_QUERY_SEC",
    "GIN_GDAKI_NIC_HANDLER",
    "GIN_GDAKI_QP_DEPTH",
    "GIN_IB_ALLGATHER_TAG",
    "GIN_IB_ALLTOALL_TAG",
    "GIN_NCONTEXTS",
    "GIN_PROXY_QUEUE_SIZE",
    "GIN_SIGNAL_POOL_SIZE",
    "GRAPH_DUMP_FILE_RANK",
    "IB_MQP_RETRY_ALL",
    "IB_MQP_RETRY_CNT",
    "IB_MQP_RETRY_SLEEP_MSEC",
    "L1_SHARED_MEMORY_CARVEOUT",
    "LEGACY_CUDA_REGISTER",
    "LL128_C2C",
    "MEM_SYNC_DOMAIN",
    "MNNVL_RAIL_PER_HOST",
    "MNNVL_SCATTER_NETS_ENABLE",
    "NET_OPTIONAL_RECV_COMPLETION",
    "NET_PLUGIN_REF_COUNT",
    "NVLINK_UTIL_CENTRIC_SCHED_ENABLE",
    "NVLSTREE_MAX_CHUNKSIZE",
    "P2P_PXN_LEVEL",
    "P2P_SCHEDULE_GROUP_SIZE",
    "REPORT_CONNECT_PROGRESS",
    "SOCKET_INLINE",
    "SOCKET_MIN_TASKSIZE",
    "SOCKET_RCVBUF",
    "SOCKET_SNDBUF",
    "SYM_KERNEL",
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
        // Of a value that is not in the file nothing is known, and of one that a shell cuts only that, unless the
        // character belongs to it.
        let is_unknown = self.env.get(name).is_some_and(is_made_elsewhere);
        let is_cut = name != PEER_MAPS && self.env.cut.iter().any(|(own, _)| own == name);
        if is_unknown && finding.code != NOT_IN_FILE
            || is_cut && finding.code != CUT
            || finding.code != NO_ASSIGNMENT && self.env.is_apart(name)
        {
            return;
        }
        self.seen.push(Seen::ring(finding.at(name)));
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
    if !env.services.is_empty() {
        let mut places: BTreeMap<Finding, Vec<&str>> = BTreeMap::new();
        let mut order: Vec<Finding> = Vec::new();
        for service in &env.services {
            let mut own = Vec::new();
            look(service, fabric, plan, ordered, &mut own);
            for Seen { finding, .. } in own {
                let labels = places.entry(finding.clone()).or_default();
                if labels.is_empty() {
                    order.push(finding);
                }
                labels.extend(service.of.iter().map(String::as_str));
            }
        }
        for finding in order {
            let labels = places.remove(&finding).unwrap_or_default();
            let labels = list(labels.into_iter().take(8)).replace(", service ", ", ");
            let name = finding.object.clone().unwrap_or_default();
            seen.push(Seen::ring(finding.at(format!("{name} ({labels})"))));
        }
        return;
    }
    let before = seen.len();
    let trimmed = trimmed(&mut Look { env, fabric, seen });
    let env = trimmed.as_ref().unwrap_or(env);
    let mut look = Look { env, fabric, seen };
    let is_given = env.variables.iter().any(|(name, _)| is_judged(name));
    if !is_given && env.refers.is_empty() && env.behind.is_empty() {
        look.warning(
            &env.name,
            "env-nothing-read",
            match env.unset.is_empty() {
                true => "nothing in it sets anything of the engine or of NCCL",
                false => "what it sets of the engine or of NCCL it takes back",
            },
            "NAME=VALUE, as a shell or systemd reads it, or NAME: VALUE",
        );
    }
    not_as_written(&mut look);
    cut_by_a_shell(&mut look);
    comments(&mut look);
    words_that_assign_nothing(&mut look);
    made_elsewhere(&mut look);
    repeated(&mut look);
    unknown(&mut look);
    hcas(&mut look, "B12X_ROCE_HCA");
    hcas(&mut look, "NCCL_IB_HCA");
    gid_index(&mut look, "B12X_ROCE_GID_INDEX");
    gid_index(&mut look, "NCCL_IB_GID_INDEX");
    gid_selection(&mut look);
    caps(&mut look);
    maps(&mut look, plan, ordered);
    engine(&mut look);
    nccl(&mut look);
    sockets(&mut look);
    elsewhere(env, before, seen);
    misnamed(before, seen);
}

/// The environment without commas and semicolons at the ends of values, where there are any: they are told once, and
/// the rest of the value is judged.
fn trimmed(look: &mut Look) -> Option<Environment> {
    let mut env = look.env.clone();
    let ends = |c: char| matches!(c, ',' | ';');
    let mut told: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in &mut env.variables {
        // What a list with a space in it ends with goes on behind it.
        let goes_on = env
            .other
            .iter()
            .any(|(before, _)| before.as_ref().is_some_and(|(own, _)| own == name));
        let rest = value.trim_end_matches(ends);
        let is_whole = rest.len() == value.len() || rest.is_empty();
        if !decides(name) || is_whole || goes_on || is_made_elsewhere(value) {
            continue;
        }
        told.insert(name.clone(), value.clone());
        *value = rest.to_owned();
    }
    for (name, value) in &told {
        let rest = value.trim_end_matches(ends);
        let what = if value.ends_with(',') {
            "comma"
        } else {
            "semicolon"
        };
        let found = format!(
            "{} ends with a {what}, which is part of the value",
            quoted(value)
        );
        // NCCL passes over an empty name, and over what stands behind a number.
        let is_passed_over = !value.ends_with(';') || rest.parse::<i64>().is_ok();
        match name.starts_with("NCCL_") && is_passed_over {
            true => look.warning(name, "env-value-end", found, rest),
            false => look.problem(name, "env-value-end", found, rest),
        }
    }
    (!told.is_empty()).then_some(env)
}

/// What is missed under a name that is near to one that nobody reads follows from that.
fn misnamed(before: usize, seen: &mut Vec<Seen>) {
    let own = seen.split_off(before.min(seen.len()));
    let is_wrong = |seen: &Seen| {
        seen.finding.code == "env-unknown-name" && seen.finding.severity == Severity::Problem
    };
    let (mut wrong, rest): (Vec<Seen>, Vec<Seen>) = own.into_iter().partition(is_wrong);
    let mut others: Vec<Seen> = Vec::new();
    for mut seen in rest {
        let near = |name: &str| {
            let is = |wrong: &Seen| wrong.finding.wanted == name;
            wrong.iter().position(is)
        };
        let name = seen.finding.object.clone().unwrap_or_default();
        let of = near(&name).filter(|_| seen.finding.found.starts_with("is not set"));
        if let Some(cause) = of {
            wrong[cause].finding.advice = Some(format!("write it {name}"));
            wrong[cause].finding.consequences.push(seen.finding);
            continue;
        }
        if seen.finding.found.starts_with("is on without") {
            let wanted = seen.finding.wanted.clone();
            let is_missed = |setting: &&str| {
                let name = setting.split('=').next().unwrap_or_default();
                near(name).is_none()
            };
            let missed: Vec<&str> = wanted.split(' ').filter(is_missed).collect();
            if missed.is_empty() {
                let name = wanted.split(['=', ' ']).next().unwrap_or_default();
                if let Some(cause) = near(name) {
                    wrong[cause].finding.advice = Some(format!("write it {name}"));
                    wrong[cause].finding.consequences.push(seen.finding);
                }
                continue;
            }
            seen.finding.wanted = missed.join(" ");
        }
        others.push(seen);
    }
    seen.extend(others);
    seen.extend(wrong);
}

/// What is missed in a file that takes more in may be there.
fn elsewhere(env: &Environment, before: usize, seen: &mut Vec<Seen>) {
    if env.refers.is_empty() {
        return;
    }
    let is_missed = |found: &str| {
        ["is not set", "is on without"]
            .iter()
            .any(|start| found.starts_with(start))
    };
    // A file's value counts, whatever the unit's own is.
    for own in seen.iter_mut().skip(before) {
        let name = own.finding.object.as_deref().unwrap_or_default();
        if env.weak.contains(name) && own.finding.severity == Severity::Problem {
            own.finding.severity = Severity::Warning;
        }
    }
    let mut missed: BTreeSet<String> = env
        .weak
        .iter()
        .filter(|name| decides(name))
        .cloned()
        .collect();
    let mut at = 0;
    seen.retain(|own| {
        at += 1;
        let is_gone = at > before && is_missed(&own.finding.found);
        if is_gone {
            missed.extend(own.finding.object.clone());
        }
        !is_gone
    });
    let reads_nothing = !env.variables.iter().any(|(name, _)| decides(name));
    let what = match missed.len() {
        0 if reads_nothing => "what is set".to_owned(),
        0 => return,
        _ => list(missed.iter().take(8)),
    };
    let counts = match env.weak.is_empty() {
        true => "",
        false => ", and what a file sets counts before Environment=",
    };
    let why = format!("more comes from {}{counts}", list(&env.refers));
    let wanted = "all of the environment";
    let finding = Finding::not_observed("env-elsewhere", what, why, wanted);
    seen.push(Seen::ring(finding.at(&env.name)));
}

const NOT_IN_FILE: &str = "env-not-expanded";
const CUT: &str = "env-shell-cut";
const NO_ASSIGNMENT: &str = "env-no-assignment";
const PEER_MAPS: &str = "B12X_ROCE_PEER_HCA_MAPS";

/// Whether a value is another variable's, or what a command prints.
fn is_made_elsewhere(value: &str) -> bool {
    value.contains(['$', '`'])
}

/// Values that a shell or compose makes of something else; systemd makes nothing of them.
fn made_elsewhere(look: &mut Look) {
    let variables = look.env.variables.iter();
    let made: BTreeSet<&str> = variables
        .filter(|(name, value)| decides(name) && is_made_elsewhere(value))
        .map(|(name, _)| name.as_str())
        .filter(|name| !look.env.conditional.contains_key(*name))
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

/// Values that a condition, a quote without end or a word for another shell hides; and what reads the file gives
/// other values than stand there, or none.
fn not_as_written(look: &mut Look) {
    let env = look.env;
    let name = &env.name;
    let conditional = env.conditional.iter().filter(|(name, _)| decides(name));
    let conditional: Vec<String> = conditional
        .map(|(name, line)| format!("{name} on line {line}"))
        .collect();
    if !conditional.is_empty() {
        let what = count(conditional.len(), "value");
        let shown = list(conditional.iter().take(8));
        let why = format!("what the file cannot show decides it ({shown})");
        let wanted = "the values themselves";
        let finding = Finding::not_observed("env-conditional", what, why, wanted);
        look.push(name, finding);
    }
    if let Some(line) = env.open_since {
        let what = format!("what stands behind line {line}");
        let why = "a quote or bracket that is opened there is not closed";
        let finding = Finding::not_observed("env-quote-open", what, why, "its end");
        look.push(name, finding);
    }
    let has_any = env.variables.iter().any(|(name, _)| is_judged(name));
    if env.has_returns && has_any {
        let found = "its lines end with CR LF: to a shell the CR is part of the value";
        look.problem(name, "env-carriage-return", found, "lines that end with LF");
    }
    if let Some((command, line, is_launcher)) = &env.started {
        if !env.unexported.is_empty() {
            let found = format!(
                "{} not exported: {} on line {line} does not have {}",
                are(&env.unexported),
                quoted(command),
                if env.unexported.len() == 1 {
                    "it"
                } else {
                    "them"
                }
            );
            let wanted = "export NAME=VALUE, or set -a before";
            let code = "env-not-exported";
            match is_launcher {
                true => look.problem(name, code, found, wanted),
                false => look.warning(name, code, found, wanted),
            }
        }
    }
    if let Some((command, line, _)) = env.started.as_ref().filter(|_| !env.behind.is_empty()) {
        let found = format!(
            "{} behind the image's name in {} on line {line}: the program has it as an argument, and the container not in its environment",
            are(&env.behind),
            quoted(command)
        );
        let wanted = "-e NAME=VALUE before the image's name";
        look.problem(name, "env-not-passed", found, wanted);
    }
    if let Some((command, line)) = &env.apart {
        let found = format!(
            "{} on line {line} has nothing of what is exported here, but what an option gives it",
            quoted(command)
        );
        let base = command.rsplit('/').next().unwrap_or_default();
        let is_container = CONTAINERS.contains(&base);
        let wanted = "-e NAME for each variable, or --env-file FILE";
        if is_container {
            look.problem(name, "env-not-passed", found, wanted);
        } else {
            let wanted = "what that command has there";
            let why = "what it has is set elsewhere";
            let what = format!("the environment of {} on line {line}", quoted(command));
            look.push(
                name,
                Finding::not_observed("env-elsewhere", what, why, wanted),
            );
        }
    }
    let mut sections: BTreeMap<&str, BTreeSet<&String>> = BTreeMap::new();
    for (section, variable) in &env.misplaced {
        sections.entry(section).or_default().insert(variable);
    }
    for (section, variables) in sections {
        let found = format!(
            "{} set in [{}], which systemd ignores",
            are(&variables),
            printable(section)
        );
        look.problem(name, "env-unit-section", found, "Environment= in [Service]");
    }
    if !env.refused.is_empty() {
        let shown = list(env.refused.iter().take(8).map(|word| quoted(word)));
        let found = format!("{shown} assigns nothing: systemd ignores it");
        look.problem(name, NO_ASSIGNMENT, found, "Environment=NAME=VALUE");
    }
    if !env.quoted.is_empty() {
        let found = format!("{} in quotes that are part of the value", are(&env.quoted));
        let wanted = "quotes around NAME=VALUE as a whole, or none";
        look.problem(name, "env-quotes", found, wanted);
    }
}

/// These names, and that they are something.
fn are<T: std::fmt::Display>(names: &BTreeSet<T>) -> String {
    let is = if names.len() == 1 { "is" } else { "are" };
    format!("{} {is}", list(names.iter().take(16)))
}

/// What the facts know of the hosts' network devices: not all of them.
struct Devices<'a> {
    fabric: BTreeSet<&'a str>,
    management: BTreeSet<&'a str>,
    /// Those of routes.
    others: BTreeSet<&'a str>,
}

impl<'a> Devices<'a> {
    fn of(fabric: &'a Fabric) -> Devices<'a> {
        let ports = (0..fabric.ports.len()).map(|port| fabric.facts(port).netdev.as_str());
        let ports: BTreeSet<&str> = ports.collect();
        let nodes = fabric.inventories.iter();
        let routes = nodes.flat_map(|node| node.node.routes.known().into_iter().flatten());
        let others: BTreeSet<&str> = routes
            .filter_map(|route| Some(route.dev.as_ref()?.as_str()))
            .collect();
        Devices {
            management: &fabric.management() - &ports,
            others: &others - &ports,
            fabric: ports,
        }
    }

    fn all(&self) -> BTreeSet<&'a str> {
        let all = self.fabric.iter().chain(&self.management);
        all.chain(&self.others).copied().collect()
    }
}

/// What a variable that names devices means: NCCL takes a name for all devices whose names start so, unless `=` is
/// before it, and `^` excludes.
struct Sockets<'v> {
    excludes: bool,
    by_start: bool,
    items: BTreeSet<&'v str>,
}

impl<'v> Sockets<'v> {
    fn of(variable: &str, value: &'v str) -> Sockets<'v> {
        let is_nccl = variable.starts_with("NCCL");
        let given = value.strip_prefix('^').filter(|_| is_nccl);
        let names = given.unwrap_or(value);
        let exact = names.strip_prefix('=').filter(|_| is_nccl);
        let items = exact.unwrap_or(names).split(',');
        // A port may be behind the name.
        let items = items.map(|item| match item.split_once(':') {
            Some((name, _)) if is_nccl => name,
            _ => item,
        });
        Sockets {
            excludes: given.is_some(),
            by_start: is_nccl && exact.is_none(),
            items: items.filter(|item| !item.is_empty()).collect(),
        }
    }

    fn is_meant(&self, item: &str, netdev: &str) -> bool {
        netdev == item || self.by_start && netdev.starts_with(item)
    }

    /// Those of the devices that some item means.
    fn meant<'a>(&self, devices: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
        let is = |dev: &&&str| self.items.iter().any(|item| self.is_meant(item, dev));
        devices.iter().filter(is).copied().collect()
    }
}

/// Connections that every node makes to every other, over a port that reaches its neighbour alone.
fn sockets(look: &mut Look) {
    let devices = Devices::of(look.fabric);
    for variable in ["NCCL_SOCKET_IFNAME"].iter().chain(SOCKETS) {
        let Some(value) = look.env.get(variable) else {
            continue;
        };
        let sockets = Sockets::of(variable, value);
        if sockets.excludes {
            excluded(look, variable, value, &sockets, &devices);
            continue;
        }
        written_otherwise(look, variable, value, &sockets, &devices);
        loopback(look, variable, value, &sockets);
        let meant = sockets.meant(&devices.fabric);
        if !meant.is_empty() {
            look.warning(
                variable,
                "env-socket-on-fabric",
                format!(
                    "{} means {} of the fabric: opposite nodes do not reach each other there but through a neighbour's kernel",
                    quoted(value),
                    count(meant.len(), "port")
                ),
                MANAGEMENT,
            );
        }
    }
}

pub(super) const MANAGEMENT: &str = "the device of the management network";

/// Every node has this device, and reaches itself alone over it. It is the first of those that a list means.
fn loopback(look: &mut Look, variable: &str, value: &str, sockets: &Sockets) {
    const CODE: &str = "env-socket-loopback";
    let mut items = sockets.items.iter();
    let is_meant = |item: &&str| sockets.is_meant(item, "lo");
    let found = format!(
        "{} means lo, over which no other node is reached",
        quoted(value)
    );
    if items.clone().any(is_meant) {
        if items.all(is_meant) {
            look.problem(variable, CODE, found, MANAGEMENT);
        } else {
            look.warning(variable, CODE, found, MANAGEMENT);
        }
    }
}

/// Exclusion leaves the choice to NCCL, which takes the first device that is left, or several.
fn excluded(look: &mut Look, variable: &str, value: &str, sockets: &Sockets, devices: &Devices) {
    const CODE: &str = "env-socket-on-fabric";
    let shown = quoted(value);
    let left = &devices.fabric - &sockets.meant(&devices.fabric);
    let gone = sockets.meant(&devices.management);
    let ports = count(left.len(), "port");
    if left.is_empty() {
        if !gone.is_empty() && gone == devices.management {
            let found = format!(
                "{shown} excludes {}, the management network's, and all ports of the fabric: no device that is known is left",
                list(&gone)
            );
            look.warning(variable, CODE, found, MANAGEMENT);
        }
    } else if !gone.is_empty() {
        let found = format!(
            "{shown} excludes {}, the management network's, and leaves {ports} of the fabric: opposite nodes do not reach each other there but through a neighbour's kernel",
            list(&gone)
        );
        look.problem(variable, CODE, found, MANAGEMENT);
    } else {
        let others = devices.management.iter().map(|dev| (*dev).to_owned());
        let all: Vec<String> = others.chain([format!("{ports} of the fabric")]).collect();
        let found = format!(
            "{shown} excludes, and leaves the choice to NCCL ({} are left): on ports of the fabric opposite nodes do not reach each other but through a neighbour's kernel",
            list(all)
        );
        look.warning(variable, CODE, found, MANAGEMENT);
    }
}

/// Names of no device that is known, which are those of one but for the case of letters.
fn written_otherwise(
    look: &mut Look,
    variable: &str,
    value: &str,
    sockets: &Sockets,
    devices: &Devices,
) {
    const CODE: &str = "env-socket-unknown";
    if value.starts_with('^') {
        let found = format!(
            "{} is taken for a name: NCCL alone excludes so",
            quoted(value)
        );
        return look.problem(variable, CODE, found, MANAGEMENT);
    }
    let all = devices.all();
    // NCCL passes over a name that is none when another is one.
    let is_other = variable.starts_with("NCCL") && !sockets.meant(&all).is_empty();
    for item in &sockets.items {
        if all.iter().any(|dev| sockets.is_meant(item, dev)) {
            continue;
        }
        let lower = item.to_ascii_lowercase();
        let alike = |dev: &&&str| sockets.is_meant(&lower, &dev.to_ascii_lowercase());
        let alike: BTreeSet<&str> = all.iter().filter(alike).copied().collect();
        if alike.is_empty() {
            continue;
        }
        let found = format!(
            "{} is the name of no device, but for the case of its letters that of {}",
            quoted(item),
            list(&alike)
        );
        let others = &alike - &devices.fabric;
        let wanted = match others.is_empty() {
            true => MANAGEMENT.to_owned(),
            false => list(others),
        };
        if is_other {
            look.warning(variable, CODE, found, wanted);
        } else {
            look.problem(variable, CODE, found, wanted);
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
        let device = word.split([',', ':']).next().unwrap_or_default();
        let mut ports = 0..fabric.ports.len();
        is_ours(name)
            && (is_rest_of(value, word) || ports.any(|port| fabric.device(port) == device))
    };
    // A list in pieces is one mistake, whatever the pieces.
    let mut rest: Vec<(&String, Vec<String>)> = Vec::new();
    for (before, word) in look.env.other.iter().filter(is_rest) {
        let Some((name, _)) = before else { continue };
        match rest.last_mut().filter(|(last, _)| *last == name) {
            Some((_, words)) => words.push(quoted(word)),
            None => rest.push((name, vec![quoted(word)])),
        }
    }
    let apart = look.env.apart();
    if !apart.is_empty() {
        let found = format!(
            "{} a space before {} =: a shell takes it for a command, and systemd for nothing",
            has(&apart),
            if apart.len() == 1 { "its" } else { "their" }
        );
        let found = match &apart[..] {
            [_] => found,
            all => format!("{} {found}", list(all)),
        };
        look.problem(
            match &apart[..] {
                [only] => only,
                _ => &look.env.name,
            },
            NO_ASSIGNMENT,
            found,
            "NAME=VALUE without a space",
        );
    }
    for (_, words) in rest.into_iter().take(8) {
        let name = look.env.name.clone();
        let (word, assigns) = match &words[..] {
            [_] => ("word", "assigns"),
            _ => ("words", "assign"),
        };
        look.problem(
            &name,
            NO_ASSIGNMENT,
            format!(
                "the {word} {} {assigns} nothing: a list with a space in it ends there",
                list(words.iter().take(8))
            ),
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

/// Names of sockets' devices that others than NCCL read.
const SOCKETS: &[&str] = &["GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"];

/// Whether anything is said of a variable's value.
fn is_judged(name: &str) -> bool {
    is_ours(name) || SOCKETS.contains(&name)
}

/// Whether it matters what the value is: what is logged, and where to, changes nothing.
fn decides(name: &str) -> bool {
    is_judged(name) && !name.starts_with("NCCL_DEBUG")
}

/// Values that go on behind what ends them in a shell.
fn cut_by_a_shell(look: &mut Look) {
    let told: BTreeMap<&String, char> = look.env.cut.iter().map(|(name, c)| (name, *c)).collect();
    for (name, operator) in told {
        let found = format!(
            "an unquoted {operator} ends the value in a shell, and what stands behind it is none of it"
        );
        look.problem(name, CUT, found, "the value in quotes");
    }
}

/// Comments that are part of the value for what is no shell.
fn comments(look: &mut Look) {
    let told: BTreeMap<&String, &String> = look.env.commented.iter().map(|(n, c)| (n, c)).collect();
    for (name, comment) in told {
        let found = format!(
            "{} stands behind the value: a comment for a shell, part of the value for systemd (EnvironmentFile) and docker (--env-file)",
            quoted(comment)
        );
        look.warning(name, "env-comment", found, "comments on lines of their own");
    }
}

fn repeated(look: &mut Look) {
    let mut told = BTreeSet::new();
    for (name, value) in &look.env.variables {
        let last = look.env.get(name).filter(|last| last != value);
        if let Some(last) = last.filter(|_| !is_made_elsewhere(value)) {
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

/// Names that begin so and that NCCL does not read: those of its packages' images and of builds against it, and of
/// torch of some time ago.
const OTHERS: &[&str] = &[
    "NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT",
    "NCCL_DESYNC_DEBUG",
    "NCCL_ENABLE_TIMING",
    "NCCL_HOME",
    "NCCL_INCLUDE_DIR",
    "NCCL_LIB_DIR",
    "NCCL_ROOT",
    "NCCL_ROOT_DIR",
    "NCCL_VERSION",
];

/// Whether NCCL, the engine or their libraries read a variable.
fn is_known(name: &str) -> bool {
    let nccl = name.strip_prefix("NCCL_");
    nccl.is_some_and(|name| NCCL.contains(&name))
        || ENGINE.contains(&name)
        || SOCKETS.contains(&name)
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
        let is_read = known.contains(name) || OTHERS.contains(&name.as_str());
        if is_read || !told.insert(name.clone()) {
            continue;
        }
        let upper = name.to_ascii_uppercase();
        let near = known.iter().min_by_key(|own| distance(&upper, own));
        // Of a short name two other letters make any other.
        let most = |own: &str| {
            if own.len() < "NCCL_SOCKET_FAMILY".len() {
                1
            } else {
                2
            }
        };
        let near = near.filter(|own| distance(&upper, own) <= most(own));
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
    let list_of = value.strip_prefix('=');
    let is_exact = list_of.is_some();
    let mut names: Vec<&str> = Vec::new();
    let (mut spaced, mut ported) = (Vec::new(), Vec::new());
    for item in list_of.unwrap_or(value).split(',') {
        let (device, port) = item.split_once(':').unwrap_or((item, "1"));
        let name = device.trim();
        if name != device {
            spaced.push(quoted(item));
        }
        // To NCCL -1 is any.
        if !matches!(port.trim().parse(), Ok(1 | -1)) {
            ported.push(quoted(item));
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
    if !spaced.is_empty() {
        let found = format!("{} {} a space", list(&spaced), has(&spaced));
        look.problem(variable, "env-hca-space", found, "names without");
    }
    if !ported.is_empty() {
        let found = format!(
            "{} {} a port that no device has: a function of this NIC has port 1 alone",
            list(&ported),
            has(&ported)
        );
        look.problem(variable, "env-hca-port", found, "port 1, or none named");
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
        let netdevs = fabric.of_host(node).into_iter();
        let netdevs: BTreeSet<&str> = netdevs
            .map(|port| fabric.facts(port).netdev.as_str())
            .collect();
        for found in unknown_hcas(&names, is_exact, &own, &netdevs) {
            let hosts = told.entry((found, list(&own))).or_default();
            hosts.push(host.as_str());
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

fn has<T>(all: &[T]) -> &'static str {
    match all {
        [_] => "has",
        _ => "have",
    }
}

/// What is said of the names that are no devices of a host: each kind once.
fn unknown_hcas(
    names: &[&str],
    is_exact: bool,
    own: &[String],
    netdevs: &BTreeSet<&str>,
) -> Vec<String> {
    let mut told = Vec::new();
    let (mut none, mut starts) = (Vec::new(), Vec::new());
    for name in names {
        let meant: Vec<&String> = own
            .iter()
            .filter(|device| device.starts_with(name))
            .collect();
        if own.iter().any(|device| device == name) {
        } else if name.is_empty() {
            told.push("an empty name".to_owned());
        } else if meant.is_empty() || is_exact {
            none.push(*name);
        } else {
            starts.push(format!("{} is the start of {}", quoted(name), list(meant)));
        }
    }
    told.dedup();
    let shown = list(none.iter().map(|name| quoted(name)));
    let all_start = none
        .iter()
        .all(|name| own.iter().any(|device| device.starts_with(name)));
    match &none[..] {
        [] => {}
        all if all.iter().all(|name| netdevs.contains(name)) => {
            let (is, what) = match all {
                [_] => ("is the name", "a network device, not of an RDMA device"),
                _ => ("are names", "network devices, not of RDMA devices"),
            };
            told.push(format!("{shown} {is} of {what}"));
        }
        [_] if all_start => told.push(format!(
            "{shown} is no fabric device, and behind = no start of one"
        )),
        [_] => told.push(format!("{shown} is no fabric device")),
        _ => told.push(format!("{shown} are no fabric devices")),
    }
    if !starts.is_empty() {
        told.push(format!("{}, and taken for all of them", starts.join("; ")));
    }
    told
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

/// What NCCL selects a GID by where no index is pinned: the mesh's are RoCE v2, of IPv4.
fn gid_selection(look: &mut Look) {
    const CODE: &str = "env-gid-selection";
    const RANGE: &str = "NCCL_IB_ADDR_RANGE";
    let pinned = look.env.get("NCCL_IB_GID_INDEX");
    if pinned.is_some_and(|index| index != "-1") {
        return;
    }
    let version = "NCCL_IB_ROCE_VERSION_NUM";
    if let Some(given) = number::<i64>(look, version, "2").filter(|given| *given != 2) {
        let found = format!("is {given}: markers and rules are for RoCE v2");
        look.problem(version, CODE, found, "2, or not set");
    }
    if look.env.get("NCCL_IB_ADDR_FAMILY") == Some("AF_INET6") {
        let found = "is AF_INET6: the mesh's addresses are IPv4";
        look.problem("NCCL_IB_ADDR_FAMILY", CODE, found, "AF_INET, or not set");
    }
    let Some(value) = look.env.get(RANGE) else {
        return;
    };
    let Ok(range) = value.parse::<Cidr>() else {
        let found = format!("is {}, which NCCL ignores", quoted(value));
        return look.warning(RANGE, CODE, found, "ADDRESS/LENGTH, or not set");
    };
    let ports = look.fabric.ports.iter();
    let outside = ports
        .filter(|port| port.address.is_some_and(|own| !range.contains(own.address)))
        .count();
    if outside > 0 {
        let found = format!(
            "the addresses of {} are not in {range}: NCCL takes another GID there",
            count(outside, "port")
        );
        look.problem(RANGE, CODE, found, "a range with all of them, or not set");
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

/// Whose peer maps a value is.
enum Maps {
    /// Those that are wanted.
    Wanted,
    /// Of the same ring in another rank order.
    Order(Vec<HostName>),
    /// Of no order of this ring.
    Strange,
}

/// Whose the maps are, of a ring with these paths, and those that are wanted with the hosts in their order.
fn maps_of(
    fabric: &Fabric,
    given: &[usize],
    paths: OppositePaths,
    value: &str,
) -> Option<(Maps, Plan)> {
    let wanted = plan_of(fabric, given, paths)?;
    if wanted.peer_maps == value {
        return Some((Maps::Wanted, wanted));
    }
    let other = super::cabling::orders(fabric.hosts.len())
        .into_iter()
        .find_map(|order| plan_of(fabric, &order, paths).filter(|plan| plan.peer_maps == value));
    let maps = match other {
        Some(other) => Maps::Order(other.hosts),
        None => Maps::Strange,
    };
    Some((maps, wanted))
}

/// The paths that the mesh on the hosts has, where there is one.
fn paths_of_mesh(fabric: &Fabric, plan: Option<&Plan>) -> Option<OppositePaths> {
    plan.filter(|_| has_rules(fabric))
        .map(|plan| plan.opposite_paths)
}

/// The opposite paths and the peer maps, which go together with the mesh's rules.
fn maps(look: &mut Look, plan: Option<&Plan>, ordered: bool) {
    const PATHS: &str = "B12X_ROCE_OPPOSITE_PATHS";
    let paths = match look.env.get(PATHS) {
        Some("4") => OppositePaths::Four,
        Some("2") | None => OppositePaths::Two,
        Some(other) => {
            let shown = quoted(other);
            let found = format!("is {shown}");
            return look.problem(PATHS, "env-opposite-paths", found, "2 or 4");
        }
    };
    let fabric = look.fabric;
    let Some(value) = look.env.get(PEER_MAPS).map(str::to_owned) else {
        return;
    };
    let given: Vec<usize> = match plan {
        Some(plan) => plan
            .hosts
            .iter()
            .filter_map(|host| fabric.node(host.as_str()))
            .collect(),
        None => (0..fabric.hosts.len()).collect(),
    };
    let of = |paths| {
        let ring = fabric.ring.as_ref();
        ring.and_then(|_| maps_of(fabric, &given, paths, &value))
    };
    let mesh = paths_of_mesh(fabric, plan).unwrap_or(paths);
    let mut judged = of(paths);
    if mesh != paths {
        // The maps are of what is set, or of the mesh: else they are wrong beside it, and the mesh's are wanted.
        let is_own = |of: &Option<(Maps, Plan)>| {
            of.as_ref()
                .is_some_and(|(maps, _)| !matches!(maps, Maps::Strange))
        };
        let mut maps_are = "";
        if !is_own(&judged) {
            judged = of(mesh);
            if is_own(&judged) {
                maps_are = ", as the peer maps are";
            }
        }
        let set = match look.env.get(PATHS) {
            Some(_) => format!("is {}", paths.number()),
            None => format!("is not set, and {} counts", paths.number()),
        };
        let found = format!(
            "{set}, and the mesh has the rules of {}{maps_are}",
            mesh.number()
        );
        let wanted = mesh.number();
        match (paths, maps_are) {
            (OppositePaths::Four, "") => look.problem(
                PATHS,
                "env-opposite-paths",
                found,
                "2, or a mesh planned with --opposite-paths 4",
            ),
            (OppositePaths::Two, "") => look.warning(
                PATHS,
                "env-opposite-paths",
                format!("{found}: half of the paths to opposite nodes carry nothing"),
                "4, with the peer maps of 4, or a mesh planned with --opposite-paths 2",
            ),
            _ => look.problem(PATHS, "env-opposite-paths", found, wanted.to_string()),
        }
    }
    let Some((maps, wanted)) = judged else {
        return;
    };
    let found = match maps {
        Maps::Wanted => return,
        // Nobody said which order it is.
        Maps::Order(_) if !ordered => return,
        Maps::Order(hosts) => format!("they are the maps of TP rank order {}", list(&hosts)),
        Maps::Strange => {
            let other = match wanted.opposite_paths {
                OppositePaths::Two => OppositePaths::Four,
                OppositePaths::Four => OppositePaths::Two,
            };
            match of(other) {
                Some((Maps::Wanted | Maps::Order(_), _)) => format!(
                    "they are the maps of {} paths to each opposite node",
                    other.number()
                ),
                _ => format!("they are the maps of another ring: {}", quoted(&value)),
            }
        }
    };
    look.problem(
        PEER_MAPS,
        "env-peer-maps",
        found,
        format!("{} for {}", wanted.peer_maps, list(&wanted.hosts)),
    );
}

fn is_on(value: Option<&str>) -> bool {
    value.is_some_and(|value| !matches!(value, "" | "0" | "false"))
}

/// How a setting that is not on stands.
fn state_of(value: Option<&str>) -> &'static str {
    match value {
        None => "is not set",
        Some(_) => "is not on",
    }
}

fn engine(look: &mut Look) {
    // Of a value that is made elsewhere nothing follows.
    let get = |name: &str| look.env.get(name).filter(|value| !is_made_elsewhere(value));
    let ring = get("DSV41_ROCE_RING").map(str::to_owned);
    let reduce = get("SGLANG_ROCE_ALLREDUCE").map(str::to_owned);
    let unset = |name: &str| look.env.unset.contains(name);
    let (ring_unset, reduce_unset) = (unset("DSV41_ROCE_RING"), unset("SGLANG_ROCE_ALLREDUCE"));
    let off = |unset: bool| if unset { "is unset" } else { "is off" };
    if is_on(ring.as_deref()) && (reduce.is_some() || reduce_unset) && !is_on(reduce.as_deref()) {
        look.problem(
            "SGLANG_ROCE_ALLREDUCE",
            "env-conflict",
            format!("{} while DSV41_ROCE_RING is on", off(reduce_unset)),
            "both on, or both off",
        );
    }
    if is_on(reduce.as_deref()) && (ring.is_some() || ring_unset) && !is_on(ring.as_deref()) {
        look.problem(
            "DSV41_ROCE_RING",
            "env-conflict",
            format!("{} while SGLANG_ROCE_ALLREDUCE is on", off(ring_unset)),
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
    if is_on(ring.as_deref()) {
        let told = ["SGLANG_ROCE_ALLREDUCE", "B12X_ROCE_HCA", PEER_MAPS];
        for name in ENGINE.iter().filter(|name| !told.contains(*name)) {
            if look.env.unset.contains(*name) {
                let found = "is set and unset again, and DSV41_ROCE_RING is on";
                look.warning(
                    name,
                    "env-unset",
                    found,
                    "that of env.txt of the plan folder",
                );
            }
        }
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
                    "that of env.txt of the plan folder",
                );
            }
        }
    }
}

fn nccl(look: &mut Look) {
    let get = |name: &str| look.env.get(name).map(str::to_owned);
    let ring_only = look.env.get("NCCL_SWITCHLESS_RING_ONLY");
    let state = state_of(ring_only);
    let ring_only = is_on(ring_only.filter(|value| !is_made_elsewhere(value)));
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
        found.push(("NCCL_SWITCHLESS_RING_ONLY", "env-ring-only", format!("{state}: NCCL connects opposite nodes, which have no common subnet, and times out{more}"), "1".into()));
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
                None if look.env.is_apart(name) => {}
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
                    found.push((name, "env-setting-missing", format!("{}, and more than two devices are listed: those past the second carry nothing", state_of(look.env.get(name))), "1".into()));
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

    fn script(text: &str) -> Environment {
        Environment::read("run.sh", text.as_bytes()).unwrap()
    }

    #[test]
    fn what_is_missed_may_come_from_another_file_of_the_same_environment_alone() {
        let missed = |name: &str| {
            let finding = Finding::problem("env-missing", "is not set", "1");
            Seen::ring(finding.at(name))
        };
        let told = |text: &str, before: usize| {
            let mut seen = vec![missed("NCCL_ALGO"), missed("NCCL_BUFFSIZE")];
            elsewhere(&script(text), before, &mut seen);
            let each = seen.iter().map(|own| match own.finding.code {
                "env-missing" => own.finding.object.clone().unwrap(),
                code => format!("{code} {}", own.finding.found),
            });
            each.collect::<Vec<_>>().join("; ")
        };
        let all = "NCCL_ALGO; NCCL_BUFFSIZE";
        let why = "not observed: more comes from x.sh";
        assert_eq!(told("NCCL_COMM_ID=1\n", 0), all);
        assert_eq!(
            told(". x.sh\nNCCL_COMM_ID=1\n", 0),
            format!("env-elsewhere NCCL_ALGO, NCCL_BUFFSIZE {why}")
        );
        assert_eq!(
            told(". x.sh\nNCCL_COMM_ID=1\n", 1),
            format!("NCCL_ALGO; env-elsewhere NCCL_BUFFSIZE {why}")
        );
        // Nothing is missed.
        assert_eq!(told(". x.sh\nNCCL_COMM_ID=1\n", 2), all);
        assert_eq!(
            told(". x.sh\n", 2),
            format!("{all}; env-elsewhere what is set {why}")
        );
    }

    #[test]
    fn a_file_of_a_unit_may_mend_what_the_unit_sets_alone() {
        let wrong = |name: &str| {
            let finding = Finding::problem("env-x", "is wrong", "1");
            Seen::ring(finding.at(name))
        };
        let mut seen = vec![
            wrong("NCCL_ALGO"),
            wrong("NCCL_ALGO"),
            wrong("NCCL_BUFFSIZE"),
        ];
        let unit = read("[Service]\nEnvironment=NCCL_ALGO=1\nEnvironmentFile=/x\n");
        elsewhere(&unit, 1, &mut seen);
        let severities: Vec<Severity> = seen.iter().map(|own| own.finding.severity).collect();
        let problem = Severity::Problem;
        let wanted = [problem, Severity::Warning, problem, Severity::NotObserved];
        assert_eq!(severities, wanted);
    }

    #[test]
    fn files_that_bring_more_are_told_up_to_eight() {
        let env = script(&(0..10).map(|i| format!(". x{i}\n")).collect::<String>());
        assert_eq!(env.refers.len(), 8);
    }

    #[test]
    fn a_value_is_apart_from_its_own_name_alone() {
        let env = read("NCCL_ALGO= Ring\nNCCL_DEBUG=\nNCCL_BUFFSIZE=1 x\n");
        assert!(env.is_apart("NCCL_ALGO") && !env.is_apart("NCCL_DEBUG"));
        assert!(!env.is_apart("NCCL_BUFFSIZE") && !env.is_apart("NCCL_COMM_ID"));
    }

    #[test]
    fn starts_that_have_the_same_are_one_and_others_are_judged_each() {
        let env = script("NCCL_DEBUG=INFO python3 a\nNCCL_DEBUG=WARN python3 b\n");
        let of: Vec<&[String]> = env.services.iter().map(|env| &env.of[..]).collect();
        assert_eq!(of, [["line 1"], ["line 2"]]);
        let env = script(
            "NCCL_DEBUG=INFO python3 a\nNCCL_DEBUG=WARN python3 b\nNCCL_DEBUG=INFO torchrun c\n",
        );
        let of: Vec<&[String]> = env.services.iter().map(|env| &env.of[..]).collect();
        assert_eq!(of, [&["line 1", "line 3"][..], &["line 2"]]);
        // Of a launcher before any other, of the first launcher before the next.
        for (text, line) in [
            ("NCCL_DEBUG=INFO python3 a\nNCCL_DEBUG=INFO torchrun b\n", 1),
            ("NCCL_DEBUG=INFO tool a\nNCCL_DEBUG=INFO torchrun b\n", 2),
            ("NCCL_DEBUG=INFO python3 a\nNCCL_DEBUG=INFO tool b\n", 1),
        ] {
            let env = script(text);
            assert!(env.services.is_empty(), "{text}");
            assert_eq!(env.started.unwrap().1, line, "{text}");
            assert!(env.of.is_empty(), "{text}");
        }
        // What one of them has is there.
        let env = script("NCCL_DEBUG=INFO\npython3 a\nexport NCCL_DEBUG\npython3 b\n");
        assert!(env.unexported.is_empty() && env.services.is_empty());
    }

    #[test]
    fn assignments_are_read_as_a_shell_reads_them() {
        let env = read("# first\nexport A=1 B='x y' C=\"p\\\"q\"\nD=a\\;b # rest\nE=\n_G1=x#y\n");
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
        // A shell alone ends a word at `;`.
        assert_eq!(read("D=a;b # rest\n").get("D"), Some("a;b"));
        assert_eq!(read("export D=a;b # rest\n").get("D"), Some("a"));
        let before = Some(("A".to_owned(), "x,".to_owned()));
        assert_eq!(read("A=x, y").other, [(before, "y".to_owned())]);
        assert_eq!(read("A=1\nA=2").get("A"), Some("2"));
        // A line of YAML, and one of JSON.
        assert_eq!(read("NCCL_X: 1\n").get("NCCL_X"), Some("1"));
        assert_eq!(read("\"NCCL_X\": 1\n").get("NCCL_X"), None);
        let env = read("docker run --env=A=1 -eB=2 -e C=3 x");
        let get = |name| env.get(name);
        assert_eq!(
            (get("A"), get("B"), get("C")),
            (Some("1"), Some("2"), Some("3"))
        );
        let env = read("1A=1 A-B=2 =3 --option=4");
        assert_eq!((env.variables.len(), env.other.len()), (0, 4));
    }

    /// The names that a shell cuts, with what cuts them.
    fn cuts(text: &str) -> Vec<(String, char)> {
        read(text).cut
    }

    #[test]
    fn an_operator_cuts_a_value_of_a_shell_where_no_command_comes_behind_it() {
        let cut = |rest: &str| {
            let all = cuts(&format!("export NCCL_PROTO=a{rest}\n"));
            all.first().map(|(name, c)| {
                assert_eq!((name.as_str(), all.len()), ("NCCL_PROTO", 1));
                *c
            })
        };
        for (rest, c) in [
            (";b", ';'),
            (";0=1/3,2=0/2", ';'),
            ("; 0=1/3", ';'),
            (";b NCCL_NET=1", ';'),
            (";b;c", ';'),
            ("&b", '&'),
            ("|b|c", '|'),
            ("<b", '<'),
            (">b", '>'),
            ("(b)", '('),
            ("(", '('),
            (")b", ')'),
        ] {
            assert_eq!(cut(rest), Some(c), "{rest}");
        }
        for rest in [
            "",
            ";",
            ";;",
            "; b",
            ";b c",
            ";export B=1",
            ";B=1",
            ";unset B",
            ";./b",
            ";/b",
            "; # b",
            ";# b",
            "&&b c",
            "|| b",
            ">/dev/null",
            ">&2",
            "> b",
            ";fi",
            ";done",
            ";}",
            ";[ b ]",
            ";$B",
            "\\;b",
            "';b'",
        ] {
            assert_eq!(cut(rest), None, "{rest}");
        }
        for (text, c) in [
            ("export NCCL_PROTO=(a b)", Some('(')),
            ("export NCCL_PROTO=( export b)", Some('(')),
            ("unset A; (export NCCL_PROTO=a)>log", None),
            ("unset A; ((export NCCL_PROTO=a)>log)", None),
            ("unset A; (b); export NCCL_PROTO=a)b", Some(')')),
        ] {
            let all = cuts(text);
            assert_eq!(all.first().map(|(_, c)| *c), c, "{text}");
        }
        // What is meant is kept; a value that is made elsewhere, and what is in quotes or in `$()`, is not judged.
        assert_eq!(
            read("export NCCL_PROTO=a;0=b;c NCCL_NET=d").get("NCCL_PROTO"),
            Some("a;0=b;c")
        );
        assert_eq!(
            read("export NCCL_PROTO=a;NCCL_NET=d").get("NCCL_PROTO"),
            Some("a")
        );
        assert_eq!(
            read("export NCCL_PROTO=a;NCCL_NET=d").get("NCCL_NET"),
            Some("d")
        );
        for text in [
            "export NCCL_PROTO=$(a|b;c (d) ) NCCL_NET=1",
            "export NCCL_PROTO=${A:-a};b",
            "export NCCL_PROTO=\"a;b\" X=a;b",
            "(export NCCL_PROTO=a)",
            "NCCL_PROTO=a;b",
            "A=1 NCCL_PROTO=a;b",
            "unset=1 NCCL_PROTO=a;b",
            "export = NCCL_PROTO=a;b",
        ] {
            assert!(cuts(text).is_empty(), "{text}");
        }
        assert_eq!(
            read("export NCCL_PROTO=$(a|b;c (d) ) NCCL_NET=1").get("NCCL_NET"),
            Some("1")
        );
        for text in [
            "#!/bin/sh\nNCCL_PROTO=a;b",
            "declare -x NCCL_PROTO=a;b",
            "unset A\nNCCL_PROTO=a;b",
        ] {
            assert_eq!(cuts(text), [("NCCL_PROTO".to_owned(), ';')], "{text}");
        }
    }

    #[test]
    fn what_is_unset_has_no_value() {
        let env = read(
            "export A=1 B=2 NCCL_COMM_ID=a;0\nunset A NCCL_COMM_ID; B=3\nD=1\nexport -n D\nE=-n\n",
        );
        let get = |name| env.get(name);
        assert_eq!(
            (get("A"), get("B"), get("NCCL_COMM_ID"), get("D"), get("E")),
            (None, Some("3"), None, None, Some("-n"))
        );
        assert!(env.cut.is_empty() && env.other.is_empty(), "{env:?}");
        // In what is no shell it is a word as others are.
        assert_eq!(read("A=1 unset A\n").get("A"), Some("1"));
        let many = |count: usize| {
            Environment::read("x", format!("unset{}", " A".repeat(count)).as_bytes())
        };
        assert!(many(4096).is_ok() && many(4097).is_err());
        let env = read("export NCCL_ALGO=a;0 NCCL_PROTO=b;0\nunset NCCL_ALGO\n");
        assert_eq!(env.cut, [("NCCL_PROTO".to_owned(), ';')]);
    }

    #[test]
    fn a_comment_behind_a_value_is_part_of_it_for_all_but_shells_and_compose() {
        let commented = |text: &str| read(text).commented;
        let wanted = [("NCCL_X".to_owned(), "# b".to_owned())];
        for text in ["NCCL_X=a # b", "NCCL_X='a' # b \n", "NCCL_X= # b"] {
            assert_eq!(commented(text), wanted, "{text}");
            assert!(commented(&format!("#!/bin/sh\n{text}")).is_empty());
        }
        for text in [
            "NCCL_X=a#b",
            "NCCL_X='a # b'",
            "# NCCL_X=a",
            "OTHER=a # b",
            "NCCL_X=a NCCL_Y=b # c",
            "Environment=NCCL_X=a # b",
            "export NCCL_X=a # b",
            "environment:\n  NCCL_X: a # b",
        ] {
            assert!(commented(text).is_empty(), "{text}");
        }
        assert_eq!(read("NCCL_X=a # b").get("NCCL_X"), Some("a"));
    }

    #[test]
    fn services_that_have_the_same_are_one() {
        let service = |name: &str, value: &str| {
            format!("  {name}:\n    environment:\n    - NCCL_X={value}\n")
        };
        let text = format!("services:\n{}{}", service("a", "1"), service("b", "1"));
        let env = read(&text);
        assert_eq!((env.get("NCCL_X"), env.services.len()), (Some("1"), 0));
        let env = read(&format!("{text}{}", service("c", "2")));
        let of: Vec<_> = env
            .services
            .iter()
            .map(|env| (env.of.join(" "), env.get("NCCL_X")))
            .collect();
        assert_eq!(
            of,
            [
                ("service a service b".to_owned(), Some("1")),
                ("service c".to_owned(), Some("2"))
            ]
        );
        let text = "#!/bin/sh\ncat <<EOF\nservices:\n  a:\nEOF\nNCCL_X=1\n";
        assert_eq!(read(text).get("NCCL_X"), Some("1"));
    }

    #[test]
    fn paths_of_two_on_a_mesh_of_four_are_told_once() {
        let facts = crate::doctor::changes::facts(&crate::doctor::changes::root().join("base"));
        let hosts: Vec<HostName> = facts.keys().map(|host| host.parse().unwrap()).collect();
        let inventory = |document: &serde_json::Value| {
            crate::facts::Inventory::from_json("facts", document.to_string().as_bytes()).unwrap()
        };
        let inventories: Vec<_> = facts.values().map(inventory).collect();
        let fabric = Fabric::of(&hosts, &inventories, None);
        let of = |paths| plan_of(&fabric, &[0, 1, 2, 3], paths).unwrap();
        let (two, four) = (of(OppositePaths::Two), of(OppositePaths::Four));
        let told = |text: String| {
            let mut seen = Vec::new();
            let env = read(&text);
            let mut look = Look {
                env: &env,
                fabric: &fabric,
                seen: &mut seen,
            };
            maps(&mut look, Some(&four), true);
            seen.into_iter()
                .map(|seen| seen.finding.to_string())
                .collect::<Vec<_>>()
        };
        let maps = |plan: &Plan| format!("B12X_ROCE_PEER_HCA_MAPS={}", plan.peer_maps);
        assert!(told(format!("{} B12X_ROCE_OPPOSITE_PATHS=4", maps(&four))).is_empty());
        let start =
            "B12X_ROCE_OPPOSITE_PATHS: is not set, and 2 counts, and the mesh has the rules of 4";
        assert_eq!(
            told(maps(&four)),
            [format!("{start}, as the peer maps are, 4 wanted")]
        );
        let half = format!(
            "{start}: half of the paths to opposite nodes carry nothing, 4, with the peer maps of 4, or a mesh planned with --opposite-paths 2 wanted"
        );
        assert_eq!(told(maps(&two)), [half]);
        let strange = told("B12X_ROCE_PEER_HCA_MAPS=1=0/1 B12X_ROCE_OPPOSITE_PATHS=4".to_owned());
        assert_eq!(strange.len(), 1, "{strange:?}");
        let shown = told(format!("{} B12X_ROCE_OPPOSITE_PATHS=4", maps(&two)));
        assert_eq!(shown.len(), 1);
        assert!(
            shown[0].contains("they are the maps of 2 paths to each opposite node"),
            "{shown:?}"
        );
    }

    #[test]
    fn a_port_behind_a_device_is_known_to_nccl_alone() {
        let items = |variable: &str| Sockets::of(variable, "a:1,b").items;
        assert_eq!(items("NCCL_SOCKET_IFNAME"), ["a", "b"].into());
        assert_eq!(items("GLOO_SOCKET_IFNAME"), ["a:1", "b"].into());
    }

    #[test]
    fn devices_are_all_excluded_where_some_were_known() {
        let fabric = Fabric::of(&[], &[], None);
        let told = |management: &[&'static str]| {
            let mut seen = Vec::new();
            let env = Environment::default();
            let mut look = Look {
                env: &env,
                fabric: &fabric,
                seen: &mut seen,
            };
            let devices = Devices {
                fabric: ["enp1"].into(),
                management: management.iter().copied().collect(),
                others: BTreeSet::new(),
            };
            let sockets = Sockets::of("NCCL_SOCKET_IFNAME", "^en");
            excluded(&mut look, "NCCL_SOCKET_IFNAME", "^en", &sockets, &devices);
            seen.len()
        };
        assert_eq!(
            (told(&[]), told(&["enP7"]), told(&["enP7", "wl0"])),
            (0, 1, 0)
        );
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
