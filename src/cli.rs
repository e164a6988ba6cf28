//! What can be typed. What is meant by it is in `commands`.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::builder::{Resettable, StyledStr};
use clap::{ArgMatches, Args, Command, FromArgMatches, Parser, Subcommand};

use crate::names::{EtherType, HostName, PlainPath, RdmaName};
use crate::plan::mesh::{MARKED_ETHERTYPE, MARKED_UDP_SOURCE_PORT};
use crate::plan::{OppositePaths, is_queue_size};
use crate::probe::protocol::{LONGEST_RUN_MS, MOST_MESSAGES};
use crate::probe::run::DIRECT_FLOW_LABEL;
use crate::verbs::LARGEST_MESSAGE;

/// RDMA fabric verifier and hairpin mesh installer for switchless rings of DGX Sparks.
///
/// The method is research-only and off by default, in the words of those who made it.
/// Results go to stdout; progress, warnings and refusals to stderr.
///
/// Exit codes: 0 yes; 1 no (refused, drift); 2 trouble (usage, bad input, no permission);
/// 3 failed, the host is as it was; 4 failed, and it is not; 75 links or peers not ready in time.
#[derive(Debug, Parser)]
#[command(name = "hairpin-mesh", version, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// The verbs.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Print the facts of this host, or of other hosts over SSH.
    Inventory(Later<InventoryArgs>),
    /// Plan a ring: from its hosts' facts to everything that each host needs.
    Plan(Later<PlanArgs>),
    /// Make this host what its plan says: transit rules, markers, routes. Run again, it does nothing.
    Up(Later<UpArgs>),
    /// Remove from this host exactly what `up` made.
    Down(Later<DownArgs>),
    /// Compare this host, or all hosts over SSH, with the plan; change nothing.
    Verify(Later<VerifyArgs>),
    /// Put this program, its units and a plan on this host: all of them or none.
    Install(Later<InstallArgs>),
    /// Take the mesh down on this host, and take away everything that `install` put there.
    Uninstall(Later<UninstallArgs>),
    /// Install on other hosts over SSH, all at once; each is as it was or fully installed.
    Deploy(Later<DeployArgs>),
    /// Find what is wrong with a fabric, the first cause on top; live, or from captured facts.
    ///
    /// Exit code 0 when nothing is wrong, 1 with findings, 2 when hosts or files could not be read. Changes
    /// nothing.
    Doctor(Later<DoctorArgs>),
    /// Print the second plane's netplan file of hosts, to review and install; writes nothing.
    Netplan(Later<NetplanArgs>),
    /// Print what completes the command line in a shell.
    Completions(Later<CompletionsArgs>),
    /// Tag what one RDMA device sends from one UDP source port with another EtherType, until told to stop.
    ///
    /// The rule is in the NIC for as long as this runs. Exit code 0 when SIGTERM or SIGINT ended it, 1
    /// when the rule can no longer be there, 2 when it could not be made, 75 when the device did not
    /// come in time.
    Marker(Later<MarkerArgs>),
    /// Measure RDMA writes over the paths of a plan, and prove by counters which way they took.
    ///
    /// Each end is this program, installed on its host, over SSH. Exit code 0 when every path that was
    /// measured was carried by NICs alone, 1 when one was not, or that is not proven.
    // Not later: `help probe` and the completions list its own verbs.
    Probe(ProbeArgs),
    /// One end of a probe: questions on standard input, answers on standard output.
    #[command(hide = true)]
    ProbeAgent,
    /// Show the hairpin queues of the fabric functions, or load a size, one function at a time.
    HairpinQueue(Later<HairpinQueueArgs>),
}

/// The options of a verb, which are made when it is the one that is meant: making those of all of them is a
/// third of what a start costs.
#[derive(Debug)]
pub struct Later<A>(pub A);

impl<A: Args> Args for Later<A> {
    fn augment_args(command: Command) -> Command {
        command.defer(|verb| described_as(&verb.clone(), A::augment_args(verb)))
    }
    fn augment_args_for_update(command: Command) -> Command {
        command.defer(|verb| described_as(&verb.clone(), A::augment_args_for_update(verb)))
    }
}

/// The command with options, described as without: they come with a description of themselves.
fn described_as(verb: &Command, with_options: Command) -> Command {
    let own = |text: Option<&StyledStr>| text.map_or(Resettable::Reset, |text| text.clone().into());
    with_options
        .about(own(verb.get_about()))
        .long_about(own(verb.get_long_about()))
}

impl<A: FromArgMatches> FromArgMatches for Later<A> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Later<A>, clap::Error> {
        A::from_arg_matches(matches).map(Later)
    }
    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// Which plan, and which host of it this is.
#[derive(Debug, Clone, Args)]
pub struct HostArgs {
    /// The plan; root reads it only where root alone may write.
    #[arg(long, value_name = "FILE", default_value = crate::node::identity::INSTALLED_PLAN)]
    pub plan: PathBuf,
    /// What the plan calls this host; without it what /etc/dsv41-mesh/host says, else the host name.
    #[arg(long, value_name = "NAME")]
    pub host: Option<HostName>,
}

/// `up`
#[derive(Debug, Args)]
pub struct UpArgs {
    #[command(flatten)]
    pub on: HostArgs,
    /// Wait up to this long for links, addresses, RDMA ports and GIDs that are on their way.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86400))]
    pub wait: u32,
    /// Load the plan's hairpin queue size first, where it is not loaded: this re-initialises the driver of
    /// each such function, whose link goes away for seconds. Never while somebody's queue pairs are open.
    #[arg(long)]
    pub set_hairpin_queue: bool,
    /// Replace, remove and restart also while somebody's queue pairs are open, whose traffic notices; and
    /// give up, with a warning, what did not come back from a re-initialisation that ended in the middle.
    #[arg(long)]
    pub force: bool,
    /// Show what would be done, and do nothing.
    #[arg(long, conflicts_with = "check")]
    pub dry_run: bool,
    /// Say by the exit code whether there is anything to do (1), and do nothing.
    #[arg(long)]
    pub check: bool,
    /// One JSON report on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `down`
#[derive(Debug, Clone, Args)]
pub struct DownArgs {
    #[command(flatten)]
    pub on: HostArgs,
    /// Wait up to this long for another run that changes this host to end.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86400))]
    pub wait: u32,
    /// Go on although somebody's queue pairs are open, whose traffic over the mesh ends.
    #[arg(long)]
    pub force: bool,
    /// Show what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// One JSON report on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `marker`
#[derive(Debug, Args)]
pub struct MarkerArgs {
    /// The RDMA device, of mlx5.
    #[arg(long, value_name = "RDMA_DEVICE")]
    pub device: RdmaName,
    /// UDP source port of the packets that are tagged.
    #[arg(long, value_name = "PORT", default_value_t = MARKED_UDP_SOURCE_PORT, value_parser = clap::value_parser!(u16).range(1..))]
    pub source_port: u16,
    /// EtherType that they leave with (0x0600 to 0xffff).
    #[arg(long, value_name = "ETHERTYPE", default_value_t = EtherType(MARKED_ETHERTYPE), value_parser = replacement_ethertype)]
    pub replacement_ethertype: EtherType,
    /// Tag packets to this address alone. Experimental: no NIC was tried.
    #[arg(long, value_name = "ADDR")]
    pub match_destination: Option<Ipv4Addr>,
    /// Wait up to this long for the device.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86400))]
    pub wait: u32,
    /// Accepted, and always so: the rule is made.
    #[arg(long)]
    pub attach: bool,
    /// Accepted, and always so: the rule is held until a signal comes.
    #[arg(long)]
    pub managed: bool,
    /// Accepted: what is printed is one JSON object with and without it.
    #[arg(long)]
    pub json: bool,
}

/// `probe`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ProbeArgs {
    /// The plan.
    #[arg(long, value_name = "FILE", default_value = crate::node::identity::INSTALLED_PLAN)]
    pub plan: PathBuf,
    /// Only paths from this host.
    #[arg(long, value_name = "HOST")]
    pub from: Option<HostName>,
    /// Only paths to this host.
    #[arg(long, value_name = "HOST")]
    pub to: Option<HostName>,
    /// Only the path of this name (may be repeated).
    #[arg(long = "path", value_name = "NAME")]
    pub paths: Vec<String>,
    /// Bytes of a message, 1 to 8388608 (may be repeated); without it 2, 4096, 61440 and the plan's size cap, and
    /// 2 and 4096 alone while somebody's queue pairs are open.
    #[arg(long = "size", value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=i64::from(LARGEST_MESSAGE)))]
    pub sizes: Vec<u32>,
    /// Messages each way that count, 4 to 100000.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(4..=MOST_MESSAGES))]
    pub iterations: u64,
    /// Messages each way before them that do not.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(0..=MOST_MESSAGES))]
    pub warm_up: u64,
    /// No messages before those that count.
    #[arg(long)]
    pub no_warmup: bool,
    /// How long a run may take, 1 to 120.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=i64::from(LONGEST_RUN_MS / 1000)))]
    pub limit: u32,
    /// Send messages of rising size (--size says which) over each diagonal that is asked for until something is
    /// lost, and say which size cap this ring has.
    #[arg(long)]
    pub sweep: bool,
    /// Sweep although somebody's queue pairs are open: their traffic notices.
    // clap asks for no `requires` that conflicts with what is given: then this conflicts as well.
    #[arg(long, requires = "sweep", conflicts_with = "svg")]
    pub beside_others: bool,
    /// Draw the ring with the latencies on its paths.
    #[arg(long, value_name = "FILE", conflicts_with = "sweep")]
    pub svg: Option<PathBuf>,
    /// With `--json`, every sample, too.
    #[arg(long, requires = "json")]
    pub raw: bool,
    /// One JSON report on stdout.
    #[arg(long)]
    pub json: bool,
    /// By hand, between two shells.
    #[command(subcommand)]
    pub end: Option<ProbeEnd>,
}

/// An end of a probe that is started by hand.
#[derive(Debug, Subcommand)]
pub enum ProbeEnd {
    /// Wait for a client, serve it, and end. Prints where, and a one-time token that the client reads from its
    /// standard input.
    Server(ProbeServerArgs),
    /// Measure to a server. Whether NICs alone carried it is not looked at: exit code 0 says that every message
    /// arrived as it was sent.
    Client(ProbeClientArgs),
}

/// `probe server`
#[derive(Debug, Args)]
pub struct ProbeServerArgs {
    /// An address of this machine on the management network, and a port (0: any).
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub listen: std::net::SocketAddr,
    /// The RDMA device that is measured.
    #[arg(long, value_name = "RDMA_DEVICE")]
    pub device: RdmaName,
    /// The address of its port, where it has several.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<Ipv4Addr>,
    /// How long to wait for the client.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub wait: u32,
    /// One JSON object a line on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `probe client`
#[derive(Debug, Args)]
pub struct ProbeClientArgs {
    /// Where the server waits.
    #[arg(value_name = "ADDRESS:PORT")]
    pub server: std::net::SocketAddr,
    /// The RDMA device that is measured.
    #[arg(long, value_name = "RDMA_DEVICE")]
    pub device: RdmaName,
    /// The address of its port, where it has several.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Option<Ipv4Addr>,
    /// Bytes of a message, 1 to 8388608 (may be repeated).
    #[arg(long = "size", value_name = "BYTES", default_values_t = [2, 4096], value_parser = clap::value_parser!(u32).range(1..=i64::from(LARGEST_MESSAGE)))]
    pub sizes: Vec<u32>,
    /// Messages each way that count, 4 to 100000.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(4..=MOST_MESSAGES))]
    pub iterations: u64,
    /// Messages each way before them that do not.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(0..=MOST_MESSAGES))]
    pub warm_up: u64,
    /// How long a run may take, 1 to 120.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=i64::from(LONGEST_RUN_MS / 1000)))]
    pub limit: u32,
    /// Flow label of both queue pairs, 1 to 1048575: 16383 between opposite nodes (UDP source port 65535).
    #[arg(long, value_name = "LABEL", default_value_t = DIRECT_FLOW_LABEL, value_parser = clap::value_parser!(u32).range(1..=0xf_ffff))]
    pub flow_label: u32,
    /// With `--json`, every sample, too.
    #[arg(long, requires = "json")]
    pub raw: bool,
    /// One JSON report on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `hairpin-queue`
#[derive(Debug, Args)]
pub struct HairpinQueueArgs {
    #[command(flatten)]
    pub on: HostArgs,
    /// The size to load (packets, a power of two from 1024 to 8192); without it, what is loaded is shown.
    /// Loading re-initialises the driver of each function that has it not: its link, addresses and queue
    /// pairs go, and the next one follows when it is back. Where it is loaded already nothing is touched.
    #[arg(value_name = "SIZE", value_parser = queue_size)]
    pub size: Option<u32>,
    /// The number of queues to load too (the mesh was qualified on 4).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_QUEUES))]
    pub num_queues: Option<u32>,
    /// This RDMA device's function alone (may be repeated), in place of every port of the plan.
    #[arg(long = "device", value_name = "RDMA_DEVICE")]
    pub devices: Vec<RdmaName>,
    /// How long each function may take to come back with its addresses.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub wait: u32,
    /// Go on although queue pairs are open on a function: all of them are destroyed, and what uses them fails.
    #[arg(long)]
    pub destroy_queue_pairs: bool,
    /// Go on although the default route leaves by a function: it is cut, with every connection over it.
    #[arg(long)]
    pub cut_default_route: bool,
    /// Go on with a function that is no port of the plan: its link is taken away, and what was on it is
    /// left to others.
    #[arg(long)]
    pub outside_plan: bool,
    /// Go on although addresses, offload, RDMA port, GID or steering mode of a function cannot be seen: what of
    /// these does not come back is then not noticed.
    #[arg(long)]
    pub unobserved: bool,
    /// Forget what a run left that ended in the middle of a re-initialisation, and show what it was: nothing is
    /// waited for or made again any more.
    #[arg(long, conflicts_with_all = ["size", "num_queues", "devices", "dry_run", "check"])]
    pub forget: bool,
    /// Show what would be done, and do nothing.
    #[arg(long, conflicts_with = "check")]
    pub dry_run: bool,
    /// Say by the exit code whether there is anything to do (1), and do nothing.
    #[arg(long)]
    pub check: bool,
    /// One JSON report on stdout.
    #[arg(long)]
    pub json: bool,
}

impl ProbeArgs {
    /// How many messages come before those that count.
    pub fn messages_before(&self) -> u64 {
        if self.no_warmup { 0 } else { self.warm_up }
    }
}

/// `inventory`
#[derive(Debug, Args)]
pub struct InventoryArgs {
    /// Ask this host over SSH, where the program must be installed (may be repeated); without it,
    /// this host.
    #[arg(long = "host", value_name = "NAME")]
    pub hosts: Vec<HostName>,
    /// Write DIR/<host>.json per host in place of printing.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Take this RDMA device as a fabric function (may be repeated) in place of every mlx5 device.
    #[arg(long = "device", value_name = "RDMA_DEVICE", conflicts_with = "hosts")]
    pub devices: Vec<RdmaName>,
    /// Ask for this address by ARP on every fabric port, and note whose MAC answers where (may be repeated;
    /// needs root).
    #[arg(long = "ask-wire", value_name = "ADDR")]
    pub wire: Vec<Ipv4Addr>,
    /// Look into this NCCL library, or the one in this folder (an absolute path; may be repeated).
    #[arg(long = "nccl-library", value_name = "PATH")]
    pub nccl_libraries: Vec<PlainPath>,
    /// Replace names of hosts, addresses (but for their last octet), MACs, GUIDs and command lines,
    /// the same by the same within one run, so that the facts can be shown to others: name all
    /// hosts of a ring in one run.
    #[arg(long)]
    pub redact: bool,
    /// One JSON document on stdout (the inventory itself is JSON with and without it).
    #[arg(long)]
    pub json: bool,
}

/// `plan`
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Take DIR/<host>.json as the facts of each host; without it they are asked over SSH.
    #[arg(long, value_name = "DIR", conflicts_with = "topology")]
    pub inventory: Option<PathBuf>,
    /// Take the fabric from the peer project's topology document.
    #[arg(long, value_name = "FILE")]
    pub topology: Option<PathBuf>,
    /// The plan folder; replaced as a whole or not at all.
    #[arg(long, value_name = "DIR", default_value = "ring-mesh")]
    pub out: PathBuf,
    /// Paths per pair of opposite nodes.
    #[arg(long, value_name = "2|4", default_value = "2", value_parser = opposite_paths)]
    pub opposite_paths: OppositePaths,
    /// Demand this GID index (0 to 255); without it, the one that all ports share, 3 if it is one.
    #[arg(long, value_name = "N")]
    pub gid_index: Option<u8>,
    /// The hairpin queue size (packets, a power of two from 1024 to 8192) that `up` sets and
    /// `verify` compares with; `keep` to leave it as it is.
    #[arg(long, value_name = "N|keep", default_value = "8192", value_parser = hairpin_queue)]
    pub hairpin_queue: Queue,
    /// One JSON report on stdout.
    #[arg(long)]
    pub json: bool,
    /// The ring's hosts in TP rank order, the head first.
    #[arg(value_name = "HOST", required = true)]
    pub hosts: Vec<HostName>,
}

/// `verify`
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// The plan; `-` for standard input. Root reads a file only where root alone may write.
    #[arg(long, value_name = "FILE", default_value = crate::node::identity::INSTALLED_PLAN)]
    pub plan: PathBuf,
    /// What the plan calls this host; without it what /etc/dsv41-mesh/host says, else the host name.
    #[arg(long, value_name = "NAME")]
    pub host: Option<HostName>,
    /// Every host of the plan, over SSH, where the program must be installed.
    #[arg(long, conflicts_with = "host")]
    pub all: bool,
    /// One JSON report on stdout.
    #[arg(long)]
    pub json: bool,
}

/// Most hairpin queues of a pair of functions. The driver bounds it by what the device has; mlx5 starts with one
/// for each 50 Gb/s of the link, so this is four times what the mesh was qualified on, and stops slips.
const MOST_QUEUES: i64 = 16;

/// What `install` and `deploy` have in common.
#[derive(Debug, Args)]
pub struct InstallChoices {
    /// Start markers anew that run an earlier program. Without it they go on as they are.
    #[arg(long)]
    pub restart: bool,
    /// With --restart: also while somebody's queue pairs are open, whose traffic notices.
    #[arg(long, requires = "restart")]
    pub force: bool,
    /// Replace units of the same names that this program did not write (those of the scripts of today).
    #[arg(long)]
    pub replace: bool,
}

/// `install`
#[derive(Debug, Args)]
pub struct InstallArgs {
    /// The plan; `-` for standard input. Root reads a file only where root alone may write. Without a
    /// plan the program alone is installed, and units where there are some already.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// What the plan calls this host; without it what /etc/dsv41-mesh/host says, else the host name.
    #[arg(long, value_name = "NAME", requires = "plan")]
    pub host: Option<HostName>,
    /// Then have the mesh start at every boot, and start it now (where it runs: make right what is wrong).
    #[arg(long)]
    pub enable: bool,
    #[command(flatten)]
    pub choices: InstallChoices,
    /// Refuse unless this program has this SHA-256.
    #[arg(long, value_name = "HEX", hide = true)]
    pub program_sha256: Option<String>,
    /// Refuse unless the plan has this SHA-256.
    #[arg(long, value_name = "HEX", hide = true, requires = "plan")]
    pub plan_sha256: Option<String>,
    /// One JSON report on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `uninstall`
#[derive(Debug, Args)]
pub struct UninstallArgs {
    /// Go on although somebody's queue pairs are open, whose traffic over the mesh ends, or although
    /// what the mesh is here cannot be known.
    #[arg(long)]
    pub force: bool,
    /// Wait up to this long for another run that changes this host to end.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=86400))]
    pub wait: u32,
    /// One JSON report on stdout.
    #[arg(long)]
    pub json: bool,
}

/// `deploy`
#[derive(Debug, Args)]
pub struct DeployArgs {
    /// The plan folder, as `plan` wrote it. Without it the program alone is deployed, so that the first
    /// inventory can run.
    #[arg(long, value_name = "DIR")]
    pub plan: Option<PathBuf>,
    /// Then set the hairpin queues on all hosts, wait for all ports of all hosts, have the mesh start at
    /// every boot and now on all hosts, and verify.
    #[arg(long, requires = "plan")]
    pub enable: bool,
    /// Deploy this build of the program in place of the one that runs, for hosts of another architecture.
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    #[command(flatten)]
    pub choices: InstallChoices,
    /// One JSON report on stdout.
    #[arg(long)]
    pub json: bool,
    /// Hosts to deploy to, as ssh and the plan call them.
    #[arg(value_name = "HOST", required = true)]
    pub hosts: Vec<HostName>,
}

/// What `doctor` looks at without `--watch`. clap asks for no `--watch` beside these, since it conflicts with them: what
/// needs it conflicts as well.
const NOT_WATCHED: [&str; 5] = ["inventory", "envs", "logs", "nccl_libraries", "wire"];

/// `doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Take DIR/<host>.json as the facts of each host, of every file there when no host is named; without it
    /// the hosts are asked over SSH.
    #[arg(long, value_name = "DIR")]
    pub inventory: Option<PathBuf>,
    /// The plan that the fabric was set up by: the mesh is held against it, and its hosts are the default.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Hold the environment of an engine or launcher against the fabric (may be repeated).
    #[arg(long = "env", value_name = "FILE")]
    pub envs: Vec<PathBuf>,
    /// Explain an NCCL log, and errors of the engine, perftest, tc or the kernel in it (may be repeated); `-` for
    /// standard input.
    #[arg(long = "nccl-log", value_name = "FILE")]
    pub logs: Vec<PathBuf>,
    /// Compare this NCCL library, or the one in this folder (an absolute path), of all hosts (may be repeated).
    #[arg(
        long = "nccl-library",
        value_name = "PATH",
        conflicts_with = "inventory"
    )]
    pub nccl_libraries: Vec<PlainPath>,
    /// Ask the wire, too: ARP probes on every fabric port of every live host tell whose MAC answers on which
    /// cable, before any subnet agrees. Needs root on the hosts.
    #[arg(long, conflicts_with = "inventory")]
    pub wire: bool,
    /// Watch the counters of the live hosts for so long while a load runs: bytes and losses of each function
    /// each second, and which function carries nothing. With `--json` one line a second.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = NOT_WATCHED, value_parser = clap::value_parser!(u32).range(1..=86400))]
    pub watch: Option<u32>,
    /// With `--watch`: keep the counters in this file for node_exporter's textfile collector (NAME.prom),
    /// replaced as a whole each second.
    #[arg(long, value_name = "FILE", requires = "watch", conflicts_with_all = NOT_WATCHED)]
    pub metrics: Option<PathBuf>,
    /// Watch this RDMA device of this host (may be repeated) in place of every mlx5 device.
    #[arg(
        long = "device",
        value_name = "RDMA_DEVICE",
        requires = "watch",
        conflicts_with_all = NOT_WATCHED,
        conflicts_with = "hosts"
    )]
    pub devices: Vec<RdmaName>,
    /// One JSON report on stdout.
    #[arg(long)]
    pub json: bool,
    /// The ring's hosts in TP rank order, the head first. Without any: the plan's, else those of the folder,
    /// else this host alone.
    #[arg(value_name = "HOST")]
    pub hosts: Vec<HostName>,
}

/// `netplan`
#[derive(Debug, Args)]
pub struct NetplanArgs {
    /// Take the addresses of this plan.
    #[arg(long, value_name = "FILE", conflicts_with = "inventory")]
    pub plan: Option<PathBuf>,
    /// Take the facts of all hosts of the ring from this folder: the second plane that they have, or one that
    /// follows the first plane. Without this and without a plan the installed plan counts.
    #[arg(long, value_name = "DIR")]
    pub inventory: Option<PathBuf>,
    /// Print the steps that take the second plane away for good.
    #[arg(long)]
    pub remove: bool,
    /// One JSON report on stdout.
    #[arg(long)]
    pub json: bool,
    /// Hosts to print for.
    #[arg(value_name = "HOST", required = true)]
    pub hosts: Vec<HostName>,
}

/// `completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_name = "SHELL", value_enum)]
    pub shell: clap_complete::Shell,
    /// One JSON report on stdout, with the script in it.
    #[arg(long)]
    pub json: bool,
}

/// A hairpin queue size, or "keep".
#[derive(Debug, Clone, Copy)]
pub struct Queue(pub Option<u32>);

fn opposite_paths(text: &str) -> Result<OppositePaths, String> {
    match text {
        "2" => Ok(OppositePaths::Two),
        "4" => Ok(OppositePaths::Four),
        _ => Err("2 or 4 wanted".into()),
    }
}

/// Below 0x0600 the field is a length (IEEE 802.3, 3.2.6).
fn replacement_ethertype(text: &str) -> Result<EtherType, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) if digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u16::from_str_radix(digits, 16).ok()
        }
        Some(_) => None,
        None => text.parse().ok(),
    };
    number
        .filter(|number| *number >= 0x0600)
        .map(EtherType)
        .ok_or_else(|| "0x0600 to 0xffff wanted".into())
}

fn hairpin_queue(text: &str) -> Result<Queue, String> {
    if text == "keep" {
        return Ok(Queue(None));
    }
    queue_size(text)
        .map(|size| Queue(Some(size)))
        .map_err(|_| "a power of two from 1024 to 8192, or keep, wanted".into())
}

fn queue_size(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|size| is_queue_size(*size))
        .ok_or_else(|| "a power of two from 1024 to 8192 wanted".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_units_run_is_a_command_line_of_this_program() {
        use crate::install::{MARKER_UNIT_TEXT, MESH_UNIT_TEXT};
        let texts = [MESH_UNIT_TEXT, MARKER_UNIT_TEXT];
        let lines = texts.iter().flat_map(|text| text.lines());
        let commands = lines
            .filter(|line| line.starts_with("Exec"))
            .filter_map(|line| line.split_once('='));
        let mut seen = 0;
        for (key, command) in commands {
            let command = command.replace("%i", "rocep1s0f0");
            let parsed = Cli::try_parse_from(command.split(' '));
            assert!(parsed.is_ok(), "{key}: {parsed:?}");
            seen += 1;
        }
        assert_eq!(seen, 4);
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_verb_is_described_alike_in_the_list_and_in_its_own_help() {
        use clap::CommandFactory;
        let listed = Cli::command();
        let mut whole = Cli::command();
        whole.build();
        for verb in listed.get_subcommands() {
            let own = whole.find_subcommand(verb.get_name()).unwrap();
            assert!(verb.get_about().is_some(), "{}", verb.get_name());
            assert_eq!(verb.get_about(), own.get_about());
            assert_eq!(verb.get_long_about(), own.get_long_about());
        }
        assert_eq!(listed.get_subcommands().count(), 15);
    }

    #[test]
    fn queue_sizes_are_powers_of_two_within_the_drivers_range() {
        for good in ["1024", "2048", "4096", "8192"] {
            assert!(hairpin_queue(good).is_ok_and(|q| q.0.is_some()));
        }
        assert!(hairpin_queue("keep").is_ok_and(|q| q.0.is_none()));
        for bad in [
            "0",
            "512",
            "1000",
            "8191",
            "16384",
            "",
            "-1",
            "Keep",
            "99999999999",
        ] {
            assert!(hairpin_queue(bad).is_err(), "{bad}");
            assert!(queue_size(bad).is_err(), "{bad}");
        }
    }
}
