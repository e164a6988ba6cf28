//! `deploy`: `install` on other hosts over SSH, all at once.
//!
//! One connection does the whole of it on a host. The program goes into a new folder that only the SSH user
//! may enter, and is held there against its SHA-256. Root then takes a copy into a new folder of its own and
//! holds that against the sum, because the first file is the user's, whose other processes may change it at
//! any time. What root runs is this copy, which puts itself in place ([`crate::install`]), with the plan
//! from its standard input: nothing that root reads afterwards is the user's. Both folders go when their
//! shell ends, however that is, but for a kill: `/opt/.hairpin-mesh.*` of root is removed by the next
//! deployment after an hour, and by `uninstall`.

use std::time::Duration;

use serde::Serialize;

use super::host::plan_again;
use super::install::REPORT as INSTALL_REPORT;
use super::verify;
use super::{Exit, Trouble};
use crate::cli::DeployArgs;
use crate::files::{Links, read_program};
use crate::install::START_LIMIT;
use crate::install::transaction::own_program;
use crate::json::{At, DocumentError, Value, parse, pretty};
use crate::names::HostName;
use crate::node::identity::{PlanDocument, read_plan, sha256};
use crate::output;
use crate::remote::{Answer, Line, remote_line, run_all};

/// Where root's copies are made: where the program is to run, so nothing can be mounted `noexec` there.
pub(super) const COPIES: &str = "/opt";
/// How the name of such a folder begins.
pub(super) const COPY: &str = ".hairpin-mesh.";

/// Tells the machine, and how root is reached: `x86_64 root`, `aarch64 sudo`, `aarch64 none`.
const LOOK: &str = "m=$(uname -m) || exit 2; if test $(id -u) = 0; then r=root; \
     elif sudo -n true </dev/null 2>/dev/null; then r=sudo; else r=none; fi; echo $m $r";

/// As the SSH user: $1 bytes of standard input are the program, $2 its sum, $3 is the next script, the
/// rest are arguments of `install`.
const UPLOAD: &str = "set -u; umask 077; d=$(mktemp -d) || exit 2; gone() { rm -rf -- \"$d\"; }; trap gone EXIT; \
     trap \"exit 2\" HUP INT TERM; size=$1; sum=$2; root=$3; shift 3; \
     head -c $size >\"$d/hairpin-mesh\" || exit 2; \
     test \"$(sha256sum <\"$d/hairpin-mesh\")\" = \"$sum  -\" || \
     { echo \"what arrived is not what was sent (SHA-256)\" >&2; exit 2; }; \
     if test $(id -u) = 0; then sh -c \"$root\" sh \"$d\" $size $sum \"$@\"; \
     else sudo -n -- sh -c \"$root\" sh \"$d\" $size $sum \"$@\"; fi";

/// As root: $1 is the folder with the program, $2 and $3 its size and sum, the rest are arguments of
/// `install`.
const INSTALL: &str = "set -u; umask 077; PATH=/usr/sbin:/usr/bin:/sbin:/bin; export PATH; \
     from=$1; size=$2; sum=$3; shift 3; test -d /opt || mkdir -m 755 /opt || exit 2; \
     case $(stat -c %u:%A /opt) in 0:d????-??-?) ;; \
     *) echo \"/opt is not a folder of root alone\" >&2; exit 2;; esac; \
     find /opt -maxdepth 1 -name \".hairpin-mesh.*\" -type d -user 0 -mmin +60 -exec rm -rf -- {} +; \
     d=$(mktemp -d /opt/.hairpin-mesh.XXXXXXXXXX) || exit 2; gone() { rm -rf -- \"$d\"; }; trap gone EXIT; \
     trap \"exit 2\" HUP INT TERM; head -c $size <\"$from/hairpin-mesh\" >\"$d/hairpin-mesh\" || exit 2; \
     test \"$(sha256sum <\"$d/hairpin-mesh\")\" = \"$sum  -\" || \
     { echo \"the program was changed after its upload\" >&2; exit 2; }; \
     chmod 700 \"$d/hairpin-mesh\"; \"$d/hairpin-mesh\" install --json --program-sha256 $sum \"$@\"";

/// How long looking at a host may take.
const LOOK_LIMIT: Duration = Duration::from_secs(60);
/// How long one installation may take: some megabytes over a slow line, and a reload of units.
const INSTALL_LIMIT: Duration = Duration::from_secs(300);
/// Four functions, one after the other, with their ports back after each.
const QUEUE_LIMIT: Duration = Duration::from_secs(600);
/// Seconds for all ports of a host to come back: what the mesh's unit gives them.
const READY: &str = "120";
const READY_LIMIT: Duration = Duration::from_secs(120 + 60);
/// The mesh's unit may take [`START_LIMIT`].
const ENABLE_LIMIT: Duration = Duration::from_secs(START_LIMIT + 60);

/// Most files, markers and lines that are taken from one report.
const MOST: usize = 64;

/// How far a host came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Stage {
    /// It is looked at: its machine, and how root is reached.
    Look,
    /// Everything is installed.
    Install,
    /// The hairpin queues have the plan's size.
    HairpinQueue,
    /// All planned ports are back, and nothing is in the way.
    Ready,
    /// The mesh is up, and starts at boot.
    Enable,
    /// It is as planned.
    Verify,
}

/// A host, and what there is to tell of it.
#[derive(Debug, Serialize)]
struct Told {
    host: HostName,
    /// The stage that it was in last.
    stage: Stage,
    /// The exit code of that stage; 0 when it did what it should.
    exit: u8,
    /// Why it did not.
    why: Option<String>,
    warnings: Vec<String>,
    /// The files of the installation: path, and what became of it.
    files: Vec<[String; 2]>,
    /// Whether the mesh starts at boot there, as systemd called it last; `null` where nobody could tell.
    mesh_unit: Option<String>,
}

impl Told {
    fn new(host: &HostName) -> Told {
        Told {
            host: host.clone(),
            stage: Stage::Look,
            exit: 0,
            why: None,
            warnings: Vec::new(),
            files: Vec::new(),
            mesh_unit: None,
        }
    }

    fn failed(&mut self, exit: Exit, why: impl std::fmt::Display) {
        self.exit = exit as u8;
        self.why = Some(why.to_string());
    }

    fn is_well(&self) -> bool {
        self.exit == 0
    }

    /// That the mesh does not start at boot, where that is known, and why this run did not see to it.
    fn not_enabled(&self) -> Option<String> {
        let state = self
            .mesh_unit
            .as_deref()
            .filter(|state| *state != "enabled")?;
        let why = match self.is_well() {
            true => ": every host has to come through a stage before the next begins",
            false => "",
        };
        Some(format!(
            "{}: the mesh is not enabled ({state}){why}",
            self.host
        ))
    }
}

#[derive(Serialize, Default)]
struct Report<'a> {
    schema: &'static str,
    program_sha256: Option<&'a str>,
    plan_sha256: Option<String>,
    /// Whether the mesh was to be enabled, and is, on every host.
    enabled: bool,
    hosts: &'a [Told],
    /// What `verify` told of each host.
    verified: &'a [Value<'static>],
    /// The command that makes the plan again, while its queue size is below the applied one.
    plan_again: Option<&'a str>,
    /// Why no host was asked (exit 2), a line each.
    trouble: Vec<String>,
}

const REPORT: &str = "hairpin-mesh.deploy-report/v1";

pub(super) fn run(args: DeployArgs) -> Result<Exit, Trouble> {
    let result = run_with(&args);
    if let (Err(trouble), true) = (&result, args.json) {
        output::result(&pretty(&Report {
            schema: REPORT,
            trouble: trouble.lines(),
            ..Report::default()
        }))?;
    }
    result
}

fn run_with(args: &DeployArgs) -> Result<Exit, Trouble> {
    let hosts = &args.hosts;
    if let Some((_, host)) = hosts
        .iter()
        .enumerate()
        .find(|(i, host)| hosts[..*i].contains(host))
    {
        return Err(Trouble::Usage(format!(
            "{host} is given twice, every host once wanted"
        )));
    }
    let plan = match &args.plan {
        Some(folder) => Some(read_plan(&folder.join("plan.json"))?),
        None => None,
    };
    if let Some(document) = &plan {
        let strange: Vec<String> = hosts
            .iter()
            .filter(|host| !document.plan.hosts.contains(host))
            .map(|host| format!("{host} is not in the plan"))
            .collect();
        if !strange.is_empty() {
            return Err(Trouble::Several(strange));
        }
    }
    let (name, program) = match &args.binary {
        Some(path) => (
            path.display().to_string(),
            read_program(path, Links::Follow)?,
        ),
        None => ("this program".to_owned(), own_program()?),
    };
    let machine = machine(&program).map_err(|why| Trouble::Usage(format!("{name}: {why}")))?;
    let mut deploy = Deploy {
        args,
        plan: plan.as_ref(),
        sum: sha256(&program),
        program,
        machine,
        hosts: hosts.iter().map(Told::new).collect(),
        verified: Vec::new(),
        plan_again: None,
        enabled: false,
    };
    deploy.look();
    deploy.install();
    if args.enable {
        deploy.enable();
    }
    deploy.say()?;
    Ok(deploy.exit())
}

struct Deploy<'a> {
    args: &'a DeployArgs,
    plan: Option<&'a PlanDocument>,
    program: Vec<u8>,
    sum: String,
    /// What the program runs on, as `uname -m` names it.
    machine: &'static str,
    hosts: Vec<Told>,
    verified: Vec<Value<'static>>,
    plan_again: Option<String>,
    enabled: bool,
}

impl Deploy<'_> {
    /// One stage on all hosts that are well so far, all at once. `line` makes a host's line, and `judge`
    /// takes what it answered.
    fn stage<'l>(
        hosts: &mut [Told],
        stage: Stage,
        doing: &str,
        line: impl Fn(&HostName) -> Line<'l>,
        mut judge: impl FnMut(&mut Told, Answer),
    ) {
        let mut well: Vec<&mut Told> = hosts.iter_mut().filter(|told| told.is_well()).collect();
        let lines: Vec<(HostName, Line)> = well
            .iter()
            .map(|told| (told.host.clone(), line(&told.host)))
            .collect();
        let lines: Vec<(&HostName, Line)> = lines
            .iter()
            .map(|(host, line)| (host, line.clone()))
            .collect();
        for (told, result) in well.iter_mut().zip(run_all(doing, &lines)) {
            told.stage = stage;
            match result {
                Ok(answer) => judge(told, answer),
                Err(error) => told.failed(Exit::Trouble, error),
            }
        }
    }

    /// Whether the program can run there, and root can be reached.
    fn look(&mut self) {
        let machine = self.machine;
        let line = |_: &HostName| Line {
            shell: Line::script(LOOK, &[]),
            input: [&[], &[]],
            answers: Some(&[0]),
            limit: LOOK_LIMIT,
        };
        Self::stage(
            &mut self.hosts,
            Stage::Look,
            "looking",
            line,
            |told, answer| {
                let text = String::from_utf8_lossy(&answer.stdout).into_owned();
                // What a login shell prints of its own comes before it.
                let last = text.lines().last().unwrap_or_default();
                match last.split_once(' ') {
                Some((found, "root" | "sudo")) if found == machine => {}
                Some((found, "root" | "sudo")) => told.failed(
                    Exit::No,
                    format!(
                        "it is {}, and the program is for {machine}: --binary FILE gives another",
                        crate::names::quoted(found)
                    ),
                ),
                Some((_, "none")) => told.failed(
                    Exit::Trouble,
                    "needs root there: log in as root, or let the SSH user use sudo without a password",
                ),
                _ => told.failed(
                    Exit::Trouble,
                    format!("says {}, its machine wanted", crate::names::quoted(last)),
                ),
            }
            },
        );
    }

    fn install(&mut self) {
        let (size, sum) = (self.program.len().to_string(), self.sum.clone());
        let plan_sum = self.plan.map(PlanDocument::sha256);
        let choices = &self.args.choices;
        let plan = self.plan.map_or(&[][..], |document| &document.bytes);
        let program: &[u8] = &self.program;
        let line = |host: &HostName| {
            let mut arguments = vec![size.as_str(), &sum, INSTALL];
            if let Some(plan_sum) = &plan_sum {
                arguments.extend(["--plan", "-", "--plan-sha256", plan_sum]);
                arguments.extend(["--host", host.as_str()]);
            }
            for (given, option) in [
                (choices.restart, "--restart"),
                (choices.force, "--force"),
                (choices.replace, "--replace"),
            ] {
                arguments.extend(given.then_some(option));
            }
            Line {
                shell: Line::script(UPLOAD, &arguments),
                input: [program, plan],
                answers: None,
                limit: INSTALL_LIMIT,
            }
        };
        Self::stage(
            &mut self.hosts,
            Stage::Install,
            "installing",
            line,
            |told, answer| {
                if answer.code != 0 {
                    return told.failed(exit_of(answer.code), answer.said);
                }
                if let Err(error) = take_report(told, &answer.stdout, &sum, plan_sum.as_deref()) {
                    told.failed(Exit::Trouble, error);
                }
            },
        );
    }

    /// The stages of `--enable`, each on all hosts before the next on any.
    fn enable(&mut self) {
        let Some(document) = self.plan.filter(|_| self.all_well()) else {
            return;
        };
        if let Some(size) = document.plan.hairpin_queue_wanted {
            let size = size.to_string();
            let line = |_: &HostName| ask_installed(&["hairpin-queue", &size], QUEUE_LIMIT);
            Self::stage(
                &mut self.hosts,
                Stage::HairpinQueue,
                "hairpin queues",
                line,
                |told, answer| {
                    match answer.code {
                        0 => {}
                        // It is guarded: while queue pairs are open, say. The mesh works with what there is.
                        1 => told
                            .warnings
                            .push(format!("hairpin-queue {size}: {}", answer.said)),
                        code => told.failed(exit_of(code), answer.said),
                    }
                },
            );
            if !self.all_well() {
                return;
            }
        }
        let line = |_: &HostName| {
            ask_installed(&["up", "--check", "--wait", READY, "--json"], READY_LIMIT)
        };
        Self::stage(
            &mut self.hosts,
            Stage::Ready,
            "ports",
            line,
            |told, answer| match (answer.code, verdict_of(&told.host, &answer.stdout)) {
                (0, _) => {}
                (1, Ok(verdict)) if verdict == "work-to-do" => {}
                (code, _) => told.failed(exit_of(code), answer.said),
            },
        );
        if !self.all_well() {
            return;
        }
        let line = |_: &HostName| ask_installed(&["install", "--enable", "--json"], ENABLE_LIMIT);
        Self::stage(
            &mut self.hosts,
            Stage::Enable,
            "up",
            line,
            |told, answer| {
                // Also one that did not start is enabled.
                if let Ok(state) = mesh_unit_of(&told.host, &answer.stdout) {
                    told.mesh_unit = state;
                }
                if answer.code != 0 {
                    told.failed(exit_of(answer.code), answer.said);
                }
            },
        );
        if !self.all_well() {
            return;
        }
        self.enabled = true;
        self.verify(document);
    }

    fn verify(&mut self, document: &PlanDocument) {
        let asked = verify::ask(document, &self.args.hosts);
        for told in &mut self.hosts {
            told.stage = Stage::Verify;
            if let Some(failed) = asked.failed.iter().find(|failed| failed.host == told.host) {
                told.failed(Exit::Trouble, &failed.why);
            }
            let differs =
                |part: &&Value| verify::is_of(part, &told.host) && !verify::is_in_sync(part);
            if asked.told.iter().any(|part| differs(&part)) {
                told.failed(Exit::No, "not as planned: hairpin-mesh verify");
            }
        }
        let folder = self.args.plan.as_deref();
        self.plan_again = verify::smallest_queue(&asked.told)
            .and_then(|applied| plan_again(&document.plan, folder, applied));
        self.verified = asked.told;
    }

    fn all_well(&self) -> bool {
        self.hosts.iter().all(Told::is_well)
    }

    /// The worst of all hosts: one that is not as it was, one that gave no answer, one that failed and is
    /// as it was, one that is not ready, one that refused.
    fn exit(&self) -> Exit {
        [
            Exit::NotRestored,
            Exit::Trouble,
            Exit::Restored,
            Exit::NotReady,
            Exit::No,
        ]
        .into_iter()
        .find(|exit| self.hosts.iter().any(|told| told.exit == *exit as u8))
        .unwrap_or(Exit::Yes)
    }

    fn say(&self) -> Result<(), Trouble> {
        for told in &self.hosts {
            for line in &told.warnings {
                output::warning(&format!("{}: {line}", told.host));
            }
            if let Some(why) = &told.why {
                let stage = match told.stage {
                    Stage::Look => "not deployed",
                    Stage::Install => "not installed",
                    _ => "installed, and then",
                };
                output::failure(&format!("{}: {stage}: {why}", told.host));
            }
        }
        for told in self.hosts.iter().filter(|_| self.args.enable) {
            if let Some(line) = told.not_enabled() {
                output::failure(&line);
            }
        }
        if self.args.json {
            output::result(&pretty(&Report {
                schema: REPORT,
                program_sha256: Some(&self.sum),
                plan_sha256: self.plan.map(PlanDocument::sha256),
                enabled: self.enabled,
                hosts: &self.hosts,
                verified: &self.verified,
                plan_again: self.plan_again.as_deref(),
                trouble: Vec::new(),
            }))?;
            return Ok(());
        }
        let mut text = String::new();
        for part in self
            .verified
            .iter()
            .filter(|part| !verify::is_in_sync(part))
        {
            text += &verify::shown(part)?;
        }
        for told in &self.hosts {
            let word = output::standing(if told.is_well() { "ok" } else { "FAIL" });
            let changed: Vec<&str> = told
                .files
                .iter()
                .filter(|[_, did]| did != "kept")
                .map(|[path, _]| path.rsplit('/').next().unwrap_or(path))
                .collect();
            let what = match (told.stage, changed.is_empty()) {
                (Stage::Look, _) => "nothing was changed".to_owned(),
                (Stage::Install, _) if !told.is_well() => "not installed".to_owned(),
                (_, true) => "everything was installed already".to_owned(),
                (_, false) => format!("installed: {}", changed.join(", ")),
            };
            let then = match told.stage {
                Stage::Verify if told.is_well() => "; up, enabled and as planned",
                Stage::Verify => "; up and enabled",
                _ => "",
            };
            text += &format!("{word} {}: {what}{then}\n", told.host);
        }
        if let Some(line) = &self.plan_again {
            text += &format!("the hairpin queues hold more now; plan again: {line}\n");
        }
        output::result(&text)?;
        Ok(())
    }
}

/// The line that asks the installed program, and takes whatever exit code it answers with.
fn ask_installed(arguments: &[&str], limit: Duration) -> Line<'static> {
    Line {
        shell: remote_line(arguments),
        input: [&[], &[]],
        answers: None,
        limit,
    }
}

/// An exit code of this program on another host; anything else is trouble.
fn exit_of(code: i32) -> Exit {
    match code {
        1 => Exit::No,
        3 => Exit::Restored,
        4 => Exit::NotRestored,
        75 => Exit::NotReady,
        _ => Exit::Trouble,
    }
}

/// Takes what `install` on a host reported: it has installed what was sent.
fn take_report(
    told: &mut Told,
    bytes: &[u8],
    program_sum: &str,
    plan_sum: Option<&str>,
) -> Result<(), DocumentError> {
    let name = format!("{}: its report", told.host);
    let bytes = document_in(bytes);
    let value = parse(&name, bytes)?;
    let root = At::root(&name, &value);
    root.need("schema")?.exactly(INSTALL_REPORT)?;
    root.need("program_sha256")?.exactly(program_sum)?;
    if let Some(plan_sum) = plan_sum {
        root.need("plan_sha256")?.exactly(plan_sum)?;
        root.need("host")?.exactly(told.host.as_str())?;
    }
    for file in root.need("files")?.items(MOST)? {
        let field = |key: &str| Ok::<_, DocumentError>(verify::plain(file.need(key)?.text()?));
        told.files.push([field("path")?, field("did")?]);
    }
    told.mesh_unit = mesh_unit(&root)?;
    for marker in root.need("kept_markers")?.items(MOST)? {
        let device = verify::plain(marker.need("device")?.text()?);
        told.warnings.push(format!(
            "the marker of {device} goes on with its earlier program: --restart starts it anew"
        ));
    }
    Ok(())
}

/// What is before the document is of a login shell.
fn document_in(bytes: &[u8]) -> &[u8] {
    let start = bytes
        .split_inclusive(|byte| *byte == b'\n')
        .scan(0, |at, line| {
            let start = *at;
            *at += line.len();
            Some((start, line))
        })
        .find(|(_, line)| line.starts_with(b"{"))
        .map_or(0, |(start, _)| start);
    &bytes[start..]
}

/// Whether the mesh starts at boot, by a report of `install`.
fn mesh_unit(root: &At) -> Result<Option<String>, DocumentError> {
    let state = root.need("mesh_unit")?;
    if state.is_null() {
        return Ok(None);
    }
    Ok(Some(verify::plain(state.text()?)))
}

fn mesh_unit_of(host: &HostName, bytes: &[u8]) -> Result<Option<String>, DocumentError> {
    let name = format!("{host}: its report");
    let value = parse(&name, document_in(bytes))?;
    mesh_unit(&At::root(&name, &value))
}

fn verdict_of(host: &HostName, bytes: &[u8]) -> Result<String, DocumentError> {
    let name = format!("{host}: its report");
    let value = parse(&name, document_in(bytes))?;
    let verdict = At::root(&name, &value).need("verdict")?.text()?.to_owned();
    Ok(verdict)
}

/// What a program runs on, as `uname -m` names it. From the ELF header (elf(5); the numbers are those of
/// `linux/elf-em.h`).
fn machine(program: &[u8]) -> Result<&'static str, String> {
    const CLASS_64: u8 = 2;
    const LITTLE_ENDIAN: u8 = 1;
    // e_ident is 16 bytes, then e_type and e_machine, 16 bits each.
    let header = program
        .get(..20)
        .filter(|header| header.starts_with(b"\x7fELF"))
        .ok_or("is no ELF program")?;
    if (header[4], header[5]) != (CLASS_64, LITTLE_ENDIAN) {
        return Err("is no 64-bit little-endian program".into());
    }
    match u16::from_le_bytes([header[18], header[19]]) {
        62 => Ok("x86_64"),
        183 => Ok("aarch64"),
        other => Err(format!(
            "is for a machine that is not known here (ELF machine {other}), x86_64 or aarch64 wanted"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_of_a_program_is_read_from_its_header() {
        let own = own_program().unwrap();
        assert_eq!(machine(&own), Ok(std::env::consts::ARCH));
        let mut arm = own[..64].to_vec();
        (arm[18], arm[19]) = (183, 0);
        assert_eq!(machine(&arm), Ok("aarch64"));
        arm[18] = 243;
        assert!(machine(&arm).unwrap_err().contains("ELF machine 243"));
        arm[4] = 1;
        assert!(machine(&arm).unwrap_err().contains("64-bit"));
        for short in [&b""[..], b"#!/bin/sh\necho\n", &own[..19]] {
            assert!(machine(short).is_err());
        }
    }

    #[test]
    fn the_scripts_are_words_for_any_shell() {
        for script in [LOOK, UPLOAD, INSTALL] {
            assert!(!script.contains(['\'', '\n', '!']), "{script}");
        }
        assert!(INSTALL.contains(&format!("mktemp -d {COPIES}/{COPY}XXXXXXXXXX")));
    }

    #[test]
    fn that_a_host_is_not_enabled_is_said_of_that_host_and_where_it_is_known() {
        let host: HostName = "spark1".parse().unwrap();
        let told = |state: Option<&str>, exit| Told {
            mesh_unit: state.map(str::to_owned),
            exit,
            ..Told::new(&host)
        };
        assert_eq!(told(Some("enabled"), 0).not_enabled(), None);
        // It was enabled, and its start failed.
        assert_eq!(told(Some("enabled"), 75).not_enabled(), None);
        // Not installed, say.
        assert_eq!(told(None, 2).not_enabled(), None);
        let waited = told(Some("disabled"), 0).not_enabled().unwrap();
        assert!(
            waited.starts_with("spark1: the mesh is not enabled (disabled): every host"),
            "{waited}"
        );
        let failed = told(Some("disabled"), 75).not_enabled().unwrap();
        assert_eq!(failed, "spark1: the mesh is not enabled (disabled)");
    }

    #[test]
    fn trouble_has_the_keys_of_every_other_document() {
        let report = Report {
            schema: REPORT,
            trouble: vec!["why".into()],
            ..Report::default()
        };
        let text = pretty(&report);
        let value = parse("report", text.as_bytes()).unwrap();
        let root = At::root("report", &value);
        for key in [
            "program_sha256",
            "plan_sha256",
            "enabled",
            "hosts",
            "verified",
            "plan_again",
            "trouble",
        ] {
            root.need(key).unwrap();
        }
        assert!(
            text.starts_with("{\n  \"schema\": \"hairpin-mesh.deploy-report/v1\""),
            "{text}"
        );
    }

    #[test]
    fn a_report_counts_when_it_is_of_what_was_sent() {
        let host: HostName = "spark1".parse().unwrap();
        let report = |sum: &str| {
            format!(
                "Welcome!\n{{\"schema\": \"{INSTALL_REPORT}\", \"program_sha256\": \"{sum}\", \"plan_sha256\": \"b\", \
                 \"host\": \"spark1\", \"mesh_unit\": \"disabled\", \"files\": [{{\"path\": \"/opt/x\", \"did\": \"added\"}}], \
                 \"kept_markers\": [{{\"device\": \"rocep1s0f0\", \"program\": \"p\", \"pid\": 7}}]}}"
            )
        };
        let take = |sum: &str, plan: &str| {
            let mut told = Told::new(&host);
            take_report(&mut told, report(sum).as_bytes(), "a", Some(plan)).map(|()| told)
        };
        let told = take("a", "b").unwrap();
        assert_eq!(told.files, [["/opt/x", "added"]]);
        assert_eq!(told.mesh_unit.as_deref(), Some("disabled"));
        assert!(told.warnings[0].contains("rocep1s0f0"));
        assert!(take("c", "b").is_err() && take("a", "c").is_err());
        let mut told = Told::new(&host);
        assert!(take_report(&mut told, b"Welcome!\n", "a", None).is_err());
    }
}
