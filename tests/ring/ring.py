#!/usr/bin/env python3
"""The virtual ring: starts, runs and stops four machines and their cables.  See README.md.

`cargo xtask ring` installs what this needs, builds the program and starts this.  Everything that it
writes is below the folder of --cache (made once) and of --rings (one folder for each running ring).
"""

import argparse
import contextlib
import ctypes
import fcntl
import hashlib
import io
import json
import os
import pathlib
import queue
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
NODES = ["spark1", "spark2", "spark3", "spark4"]
QEMU = "qemu-system-x86_64"
MEMORY = 512  # MiB a machine; 230 to 530 are used
# Without KVM: features whose emulation costs and that nothing here needs.
TCG_CPU = "max,-erms,-la57,-smap,-smep,-pku,-umip"
BOOT_LIMIT = 240  # s; 40 to 80 are usual on two cores without KVM
RESTORE_LIMIT = 120  # s; 4 to 7 are usual
CHECK_LIMIT = 900  # s; 40 to 90 are usual
SHOWN_LINES = 40  # of each console and log, when something failed
KVM_LIMIT = 15  # s, for the first word of a machine under KVM; it takes less than one where KVM works


class Trouble(Exception):
    """What ends the work, for the user to read."""


class Stopped(Trouble):
    """A signal told us to end."""


def say(text):
    print(f"ring: {text}", file=sys.stderr, flush=True)


def show(what, lines):
    """The end of what explains a failure."""
    lines = lines[-SHOWN_LINES:] or ["(nothing)"]
    print("\n".join([f"ring: {what}:", *lines]), file=sys.stderr, flush=True)


# ---- The ring that is wanted ----------------------------------------------------------------------

# The fabric functions of a node: port and domain, names as on the real nodes, PCI address, and the
# virtual card below it (its number is the last octet of the MAC).
FUNCTIONS = {
    "enp1s0f0np0": dict(port="f0", domain=0, rdma="rocep1s0f0", pci="0000:01:00.0", card="00"),
    "enp1s0f1np1": dict(port="f1", domain=0, rdma="rocep1s0f1", pci="0000:01:00.1", card="01"),
    "enP2p1s0f0np0": dict(port="f0", domain=1, rdma="roceP2p1s0f0", pci="0002:01:00.0", card="10"),
    "enP2p1s0f1np1": dict(port="f1", domain=1, rdma="roceP2p1s0f1", pci="0002:01:00.1", card="11"),
}
# What a port can be made other than, and what it is otherwise.
SETTINGS = {
    "mtu": ("9000", r"[0-9]{2,5}"),
    "address": (None, r"none|[0-9.]+/[0-9]+"),
    "rdma": (None, r"none|[A-Za-z0-9]+"),
    "offload": ("on", r"on|off"),
    "steering": ("hmfs", r"dmfs|smfs|hmfs"),
    "queue": ("1024", r"[0-9]+(:loaded|:unrecorded|:pending)"),
    "queues": ("4", r"[0-9]+"),
    "link": ("up", r"up|down"),
}


class Case:
    """A ring as it is wanted: lines as README.md describes them."""

    def __init__(self, name, lines):
        self.name = name
        self.order = list(NODES)
        self.ports = {(node, netdev): {} for node in NODES for netdev in FUNCTIONS}
        self.refused = []
        self.facts = []
        cables = []
        for number, line in enumerate(lines, 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            try:
                if words[0] == "order":
                    self._order(words[1:])
                elif words[0] == "refused":
                    self.refused.append(line.split(None, 1)[1].strip())
                elif words[0] == "fact":
                    self.facts.append(self._fact(words[1:]))
                elif words[0] == "cable":
                    cables.append(self._cable(words[1:]))
                else:
                    self._set(words)
            except (ValueError, IndexError) as error:
                raise Trouble(f"case {name}, line {number}: {line.strip()!r}: {error}") from None
        if not cables:
            cables = [((a, "f0"), (b, "f1"), (0, 1)) for a, b in zip(NODES, NODES[1:] + NODES[:1])]
        self._connect(cables)

    def _order(self, words):
        if sorted(words) != NODES:
            raise ValueError("the four nodes in TP rank order wanted")
        self.order = words

    def _cable(self, words):
        ends = []
        for word in words[:2]:
            node, _, port = word.partition(".")
            if node not in NODES or port not in ("f0", "f1"):
                raise ValueError(f"{word}: an end like spark1.f0 wanted")
            ends.append((node, port))
        if len(ends) != 2:
            raise ValueError("two ends wanted")
        if words[2:] in (["domain", "0"], ["domain", "1"]):
            return (*ends, (int(words[3]),))
        if words[2:]:
            raise ValueError("nothing, or `domain 0` or `domain 1`, wanted after the ends")
        return (*ends, (0, 1))

    def _fact(self, words):
        if len(words) != 4 or tuple(words[:2]) not in self.ports:
            raise ValueError("fact NODE NETDEV NAME VALUE wanted, the value as in JSON")
        return [*words[:3], json.loads(words[3])]

    def _set(self, words):
        if len(words) != 4:
            raise ValueError("NODE NETDEV SETTING VALUE wanted")
        nodes = NODES if words[0] == "*" else [words[0]]
        netdevs = list(FUNCTIONS) if words[1] == "*" else [words[1]]
        setting, value = words[2:]
        if setting not in SETTINGS:
            raise ValueError(f"one of {' '.join(SETTINGS)} wanted as the setting")
        if not re.fullmatch(SETTINGS[setting][1], value):
            raise ValueError(f"{SETTINGS[setting][1]} wanted as the value")
        for node in nodes:
            for netdev in netdevs:
                if (node, netdev) not in self.ports:
                    raise ValueError(f"{' '.join(NODES)}, {' '.join(FUNCTIONS)}, or * for all of them wanted")
                self.ports[node, netdev][setting] = value

    def _connect(self, cables):
        """Wires: pairs of ends, an end a node and a network device.  Addresses follow the cables."""
        self.wires = []
        for number, (one, other, domains) in enumerate(cables):
            for domain in domains:
                wire = []
                for (node, port), last in ((one, 10), (other, 11)):
                    netdev = next(n for n, f in FUNCTIONS.items() if (f["port"], f["domain"]) == (port, domain))
                    if any((node, netdev) in w for w in [*self.wires, wire]):
                        raise Trouble(f"case {self.name}: {node}.{port}: a second cable of domain {domain}")
                    wire.append((node, netdev))
                    self.ports[node, netdev].setdefault("address", f"10.{(domain + 1) * 10}.{number}.{last}/24")
                self.wires.append(wire)
                # A cable without a link has none at both ends.
                if any(self.ports[end_].get("link") == "down" for end_ in wire):
                    for end_ in wire:
                        self.ports[end_]["link"] = "down"

    def port_table(self, node):
        """/run/ring/ports of a node: see image/node/usr/local/sbin/ring-apply."""
        rows = []
        for netdev, function in FUNCTIONS.items():
            own = self.ports[node, netdev]
            value = {name: own.get(name, default) for name, (default, _) in SETTINGS.items()}
            rows.append(
                [netdev, value["rdma"] or function["rdma"], f"card{function['card']}", function["pci"], value["mtu"]]
                + [value["address"] or "none", value["offload"], value["steering"], value["queue"], value["queues"]]
                + [value["link"]]
            )
        return "".join(" ".join(row) + "\n" for row in rows)


def find_case(name, more):
    """The case of that name with more lines after its own."""
    file = HERE / "cases" / f"{name}.case"
    if pathlib.Path(name).suffix == ".case":
        file = pathlib.Path(name)
    try:
        lines = file.read_text().splitlines()
    except OSError:
        known = sorted(path.stem for path in (HERE / "cases").glob("*.case"))
        raise Trouble(f"--case {name}: no such case; there are {' '.join(known)}, or a file NAME.case") from None
    return Case(name, lines + more)


# ---- Processes ------------------------------------------------------------------------------------


def started_at(pid):
    """When a process started, in clock ticks: with its number, who it is.  None when it has ended."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    state, *rest = stat.rpartition(")")[2].split()
    return None if state in "ZX" else int(rest[18])


def end(pid, start, patience=5.0):
    """Ends one process that we started, and no other that has its number by now."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if started_at(pid) != start:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            # The handle is readable when the process has ended.
            if select_readable(handle, patience):
                break
    finally:
        os.close(handle)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)


def select_readable(descriptor, seconds):
    return bool(select.select([descriptor], [], [], seconds)[0])


def die_with_parent():
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def free_ports(count):
    with contextlib.ExitStack() as open_ones:
        found = []
        for _ in range(count):
            one = open_ones.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            found.append(one.getsockname()[1])
        return found


def each(function, over):
    """Calls it for all at once and gives what it returned in order; the first failure is raised."""
    # Nobody waits for these threads when we are told to stop: what they wait for ends with the machines.
    results = [None] * len(over)
    done = queue.Queue()

    def call(index, one):
        try:
            results[index] = function(one)
            done.put(None)
        except BaseException as error:
            done.put(error)

    for index, one in enumerate(over):
        threading.Thread(target=call, args=(index, one), daemon=True).start()
    for _ in over:
        if error := done.get():
            raise error
    return results


# ---- The machine monitor of QEMU --------------------------------------------------------------------


class Monitor:
    """QMP over a Unix socket."""

    def __init__(self, path, deadline):
        self.socket = socket.socket(socket.AF_UNIX)
        while True:
            try:
                # Relative, because the path of a Unix socket is short.
                self.socket.connect(os.path.relpath(path))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if time.monotonic() > deadline:
                    raise Trouble(f"{path}: QEMU does not answer") from None
                time.sleep(0.02)
        self.socket.settimeout(max(1.0, deadline - time.monotonic()))
        self.lines = self.socket.makefile("rw")
        self.lines.readline()
        self("qmp_capabilities")

    def __call__(self, command, **arguments):
        try:
            self.lines.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
            self.lines.flush()
            while True:
                line = self.lines.readline()
                if not line:
                    raise Trouble(f"QEMU ended at {command}")
                answer = json.loads(line)
                if "error" in answer:
                    raise Trouble(f"QEMU: {command}: {answer['error'].get('desc')}")
                if "return" in answer:
                    return answer["return"]
        except OSError as error:
            raise Trouble(f"QEMU: {command}: {error}") from None

    def close(self):
        self.lines.close()
        self.socket.close()


# ---- What is made once ------------------------------------------------------------------------------


class Cache:
    def __init__(self, folder, instructions):
        self.folder = folder
        self.instructions = instructions  # whether the machines' clock counts what they execute
        folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def lock(self):
        with open(self.folder / "lock", "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("waiting for another run that builds the machines")
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def build(self):
        build = subprocess.Popen(
            [HERE / "image/build.sh", self.folder],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
        try:
            code = build.wait()
        except BaseException:
            # A group of its own, which has everything that it started.
            os.killpg(build.pid, signal.SIGTERM)
            build.wait()
            raise
        if code:
            raise Trouble("the image of the machines could not be built")
        self.accelerator = "tcg" if self.instructions else self._accelerator()
        version = subprocess.run([QEMU, "--version"], capture_output=True, check=True).stdout
        # A saved state fits one QEMU, one machine and one image.
        key = hashlib.sha256(version + (self.folder / "image.key").read_bytes())
        key.update(json.dumps([machine_options(self, n, ["-"] * 4, 0, 0) for n in range(4)]).encode())
        kind = "counted" if self.instructions else "states"
        self.states = self.folder / f"{kind}-{key.hexdigest()[:16]}"
        for old in self.folder.glob(f"{kind}-*"):
            if old != self.states:
                shutil.rmtree(old, ignore_errors=True)

    def _accelerator(self):
        """kvm where it really works (the device may be there and machines hang), else tcg."""
        boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()
        file = self.folder / "accelerator"
        with contextlib.suppress(OSError, ValueError):
            known, accelerator = file.read_text().split()
            if known == boot.strip():
                return accelerator
        accelerator = "tcg"
        if os.access("/dev/kvm", os.R_OK | os.W_OK):
            say("trying KVM")
            with subprocess.Popen(
                [QEMU, "-accel", "kvm", "-cpu", "host", "-M", "q35", "-m", "256", "-nodefaults", "-no-user-config"]
                + ["-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", self.folder / "vmlinux"]
                + ["-initrd", self.folder / "initrd", "-append", "console=ttyS0 panic=-1 quiet"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                preexec_fn=die_with_parent,
            ) as probe:
                seen, until = b"", time.monotonic() + KVM_LIMIT
                while b"RING: initramfs" not in seen and select_readable(probe.stdout, until - time.monotonic()):
                    more = os.read(probe.stdout.fileno(), 4096)
                    if not more:
                        break
                    seen += more
                probe.kill()
            if b"RING: initramfs" in seen:
                accelerator = "kvm"
        say(f"machines run under {'KVM' if accelerator == 'kvm' else 'software emulation'}")
        file.write_text(f"{boot.strip()} {accelerator}\n")
        return accelerator


def machine_options(cache, number, cards, management, ssh_port):
    """QEMU's options of a machine; cards are file descriptors in the order of FUNCTIONS."""
    node = NODES[number]
    words = [QEMU, "-accel", cache.accelerator, "-cpu", "host" if cache.accelerator == "kvm" else TCG_CPU]
    if cache.instructions:
        # A nanosecond of the machine is one instruction; idle, it keeps to the real clock.
        words += ["-icount", "shift=0"]
    words += ["-M", "q35", "-smp", "1", "-m", str(MEMORY), "-nodefaults", "-no-user-config", "-display", "none"]
    words += ["-global", "virtio-net-pci.romfile=", "-device", "virtio-rng-pci", "-serial", "stdio"]
    words += ["-kernel", f"{cache.folder}/vmlinux", "-initrd", f"{cache.folder}/initrd"]
    words += ["-drive", f"if=none,id=root,file={cache.folder}/root.squashfs,format=raw,readonly=on"]
    words += ["-device", "virtio-blk-pci,drive=root"]
    identity = f"{number + 1}123456789abcdef0123456789abcde{number + 1}"
    words += [
        "-append",
        "console=ttyS0 panic=-1 quiet loglevel=4 mitigations=off nokaslr random.trust_cpu=on net.ifnames=0 "
        "tsc=reliable no_timer_check systemd.show_status=0 "
        f"systemd.hostname={node} systemd.machine_id={identity}",
    ]
    for card, function in zip(cards, FUNCTIONS.values()):
        name = f"card{function['card']}"
        mac = f"4c:bb:47:{number + 1:02x}:00:{function['card']}"
        words += ["-netdev", f"socket,id={name},fd={card}", "-device", f"virtio-net-pci,netdev={name},mac={mac}"]
    words += ["-netdev", f"socket,id=lan,mcast=239.77.0.1:{management},localaddr=127.0.0.1"]
    words += ["-device", f"virtio-net-pci,netdev=lan,mac=52:54:00:01:00:{number + 1:02x}"]
    words += ["-netdev", f"user,id=ssh,restrict=on,hostfwd=tcp:127.0.0.1:{ssh_port}-:22"]
    words += ["-device", f"virtio-net-pci,netdev=ssh,mac=52:54:00:02:00:{number + 1:02x}"]
    return words


# ---- A running ring ---------------------------------------------------------------------------------


class Ring:
    """A folder with the console and the monitor of each machine, and how to reach it."""

    def __init__(self, folder):
        self.folder = folder

    # -- start

    def start(self, cache, case, program, keep):
        """Starts the machines and makes them the ring that is wanted; all or none."""
        began = time.monotonic()
        self.folder.mkdir(parents=True)
        (self.folder / "case").write_text(case.name + "\n")
        (self.folder / "order").write_text(" ".join(case.order) + "\n")
        (self.folder / "refused").write_text("".join(line + "\n" for line in case.refused))
        (self.folder / "facts").write_text(json.dumps(case.facts))
        (self.folder / "program").write_text(f"{program or ''}\n")
        (self.folder / "clock").write_text("instructions\n" if cache.instructions else "time\n")
        try:
            saved = cache.states / "complete"
            if not saved.exists():
                say("starting four machines (a minute on two cores without KVM)")
                shutil.rmtree(cache.states, ignore_errors=True)
                self._machines(cache, case, keep, None)
                self._await_greeting(BOOT_LIMIT)
                each(self._try_ssh, NODES)
                say(f"four machines answer after {time.monotonic() - began:.0f} s; saving them as the right ring")
                self._apply(Case("ring", []), None)
                self._save(cache.states)
            else:
                say("starting four machines from their saved states")
                self._machines(cache, case, keep, cache.states)
                self._await_greeting(RESTORE_LIMIT)
            say(f"making it the ring {case.name}")
            self._apply(case, program)
        except BaseException as error:
            if not isinstance(error, Stopped):
                self.report("start")
            self.stop()
            raise
        say(f"the ring {case.name} is ready after {time.monotonic() - began:.0f} s")

    def _machines(self, cache, case, keep, states):
        # A cable is a pair of connected sockets that two QEMUs inherit: no ports, no order of start.
        sockets = {}
        for wire in case.wires:
            for end_, one in zip(wire, socket.socketpair()):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
                sockets[end_] = one
        loose = []  # the far ends of cables that are not plugged in
        for node in NODES:
            for netdev in FUNCTIONS:
                if (node, netdev) not in sockets:
                    sockets[node, netdev], far = socket.socketpair()
                    loose.append(far)
        *ssh_ports, management = free_ports(len(NODES) + 1)
        machines = []
        for number, node in enumerate(NODES):
            cards = [sockets[node, netdev] for netdev in FUNCTIONS]
            words = machine_options(cache, number, [c.fileno() for c in cards], management, ssh_ports[number])
            words += ["-qmp", f"unix:{os.path.relpath(self.folder / f'{node}.monitor')},server=on,wait=off"]
            words += ["-name", self._name(node)]
            if states:
                words += ["-incoming", f"exec:cat '{states}/{node}'"]
            with open(self.folder / f"{node}.console", "wb") as console:
                process = subprocess.Popen(
                    words,
                    pass_fds=[c.fileno() for c in cards],
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # Ctrl-C is for us, not for it
                    preexec_fn=None if keep else die_with_parent,
                )
            machines.append({"pid": process.pid, "start": started_at(process.pid), "ssh": ssh_ports[number]})
            (self.folder / "machines").write_text(json.dumps(machines))
        for one in [*sockets.values(), *loose]:
            one.close()
        self._ssh_files(cache, ssh_ports)
        if states:
            until = time.monotonic() + RESTORE_LIMIT
            for node in NODES:
                monitor = Monitor(self.folder / f"{node}.monitor", until)
                # It was saved while it stood still, so it is restored standing still.
                while monitor("query-status")["status"] == "inmigrate":
                    if time.monotonic() > until:
                        raise Trouble(f"{node}: its saved state was not read within {RESTORE_LIMIT} s")
                    time.sleep(0.02)
                monitor("cont")
                monitor.close()

    def _ssh_files(self, cache, ports):
        config = "".join(f"Host {node}\n  Port {port}\n" for node, port in zip(NODES, ports))
        config += f"""Host *
  HostName 127.0.0.1
  User root
  IdentityFile "{cache.folder}/key"
  IdentitiesOnly yes
  StrictHostKeyChecking no
  UserKnownHostsFile /dev/null
  GSSAPIAuthentication no
  LogLevel ERROR
  # A login costs an emulated machine most of a second, and the tests log in a thousand times: one connection
  # a node for all of them. It ends with the machine.
  ControlMaster auto
  ControlPath "{self.folder}/%n.ssh"
  ControlPersist yes
"""
        (self.folder / "ssh_config").write_text(config)
        # Plain `ssh NODE` with this folder's bin first in PATH.
        (self.folder / "bin").mkdir()
        for tool in ("ssh", "scp"):
            wrapper = self.folder / "bin" / tool
            real = shutil.which(tool)
            if real:
                wrapper.write_text(f"#!/bin/sh\nexec {real} -F '{self.folder}/ssh_config' \"$@\"\n")
                wrapper.chmod(0o755)

    def _await_greeting(self, limit):
        until = time.monotonic() + limit

        def answers(node):
            port = self.machines()[NODES.index(node)]["ssh"]
            while True:
                self._alive()
                # Connecting works at once, because QEMU takes the connection; the greeting is the node's.
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as one:
                    one.settimeout(5)
                    if one.recv(4) == b"SSH-":
                        break
                if time.monotonic() > until:
                    raise Trouble(f"{node} did not answer within {limit} s")
                time.sleep(0.2)

        each(answers, NODES)

    def _try_ssh(self, node):
        done = self.ssh(node, "systemctl is-system-running --wait", timeout=BOOT_LIMIT)
        if done.returncode:
            raise Trouble(f"{node}: {(done.stdout + done.stderr).decode(errors='replace').strip()}")

    def _alive(self):
        for node, machine in zip(NODES, self.machines()):
            if started_at(machine["pid"]) != machine["start"]:
                raise Trouble(f"the machine of {node} ended; its console: {self.folder}/{node}.console")

    def _hang_up(self):
        """Ends the connections that ssh keeps open."""
        for node in NODES:
            words = ["ssh", "-F", self.folder / "ssh_config", "-O", "exit", node]
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)

    def _save(self, states):
        # A saved machine is to know of no peer.
        self._hang_up()
        states.mkdir(parents=True)
        until = time.monotonic() + BOOT_LIMIT
        monitors = {node: Monitor(self.folder / f"{node}.monitor", until) for node in NODES}
        for node, monitor in monitors.items():
            monitor("stop")
            monitor("migrate-set-parameters", **{"max-bandwidth": 1 << 40})
            monitor("migrate", uri=f"exec:cat > '{states}/{node}'")
        for node, monitor in monitors.items():
            while (status := monitor("query-migrate").get("status")) != "completed":
                if status in ("failed", "cancelled") or time.monotonic() > until:
                    raise Trouble(f"{node}: its state could not be saved ({status})")
                time.sleep(0.05)
            monitor("cont")
            monitor.close()
        (states / "complete").touch()

    def _apply(self, case, program):
        def apply(node):
            files = io.BytesIO()
            with tarfile.open(fileobj=files, mode="w") as tar:
                if program:
                    info = tar.gettarinfo(program, "opt/dsv41-mesh/bin/hairpin-mesh")
                    info.uid = info.gid = 0
                    info.uname = info.gname = "root"
                    info.mode = 0o755
                    with open(program, "rb") as file:
                        tar.addfile(info, file)
                table = case.port_table(node).encode()
                info = tarfile.TarInfo("run/ring/ports")
                info.size = len(table)
                tar.addfile(info, io.BytesIO(table))
            # A restored machine has the clock of the day it was saved.
            command = f"date -s @{time.time():.3f} >/dev/null && tar -x -C / -f - && exec ring-apply"
            done = self.ssh(node, command, input=files.getvalue(), timeout=120)
            if done.returncode:
                raise Trouble(f"{node}: ring-apply failed: {done.stderr.decode(errors='replace').strip()}")

        each(apply, NODES)

    # -- use

    def machines(self):
        try:
            return json.loads((self.folder / "machines").read_text())
        except (OSError, ValueError):
            return []

    def runs(self):
        machines = self.machines()
        return len(machines) == len(NODES) and all(started_at(m["pid"]) == m["start"] for m in machines)

    def ssh(self, node, command, timeout, **options):
        words = ["ssh", "-F", self.folder / "ssh_config", "-o", "BatchMode=yes", node, command]
        if "input" not in options:
            options["stdin"] = subprocess.DEVNULL
        try:
            return subprocess.run(words, capture_output=True, timeout=timeout, **options)
        except subprocess.TimeoutExpired:
            raise Trouble(f"{node}: no answer within {timeout} s") from None

    def environment(self):
        return {
            **os.environ,
            "PATH": f"{self.folder}/bin:{os.environ.get('PATH', os.defpath)}",
            "RING_DIR": str(self.folder),
            "RING_CASE": (self.folder / "case").read_text().strip(),
            "RING_NODES": (self.folder / "order").read_text().strip(),
            "RING_PROGRAM": (self.folder / "program").read_text().strip(),
            "RING_CLOCK": (self.folder / "clock").read_text().strip(),
            "RING_SSH_CONFIG": f"{self.folder}/ssh_config",
        }

    def report(self, what):
        """Leaves what a failure is understood from as text; says where."""
        if not self.machines():
            return
        into = self.folder.parent / "failed" / f"{time.strftime('%Y%m%d-%H%M%S')}-{what}"
        into.mkdir(parents=True, exist_ok=True)
        for node in NODES:
            with contextlib.suppress(OSError):
                text = (self.folder / f"{node}.console").read_bytes().decode(errors="replace")
                text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f]", "", text)
                (into / f"{node}.console.txt").write_text(text)
                # A log that outlives this machine has these only.
                show(f"console of {node}", text.strip().splitlines())

        def state(node):
            try:
                told = self.ssh(node, "ring-state --all", timeout=60)
                text = (told.stdout + told.stderr).decode(errors="replace")
            except (Trouble, OSError) as error:
                text = f"not observed: {error}\n"
            (into / f"{node}.state.txt").write_text(text)
            return text

        if self.runs():
            for node, text in zip(NODES, each(state, NODES)):
                journal = text.partition("\n== journalctl ")[2].partition("\n== dmesg")[0].splitlines()[1:]
                # Each command that we ran is a login.
                show(f"journal of {node}", [line for line in journal if " sshd" not in line])
        say(f"consoles and kernel states of the machines: {into}")

    def _name(self, node):
        """What the command line of its QEMU is known by."""
        return f"{self.folder}/{node}".replace(",", ",,")

    def processes(self):
        """Number and start time of each of our machines: also of one whose starter was killed before it wrote
        the number down."""
        names = {self._name(node).encode() for node in NODES}
        found = set()
        for entry in os.scandir("/proc"):
            if not entry.name.isdigit():
                continue
            start = started_at(int(entry.name))
            try:
                words = pathlib.Path(entry.path, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if start and words[0] == QEMU.encode() and (b"-name" in words[:-1]) and words[words.index(b"-name") + 1] in names:
                found.add((int(entry.name), start))
        return found

    def stop(self):
        if (self.folder / "ssh_config").exists():
            self._hang_up()
        for pid, start in self.processes():
            end(pid, start)
        shutil.rmtree(self.folder, ignore_errors=True)


# ---- Commands ---------------------------------------------------------------------------------------


def clean(rings):
    """Removes what killed runs left: their machines have ended with them."""
    for folder in rings.glob("run-*"):
        pid = folder.name.removeprefix("run-")
        if pid.isdigit() and started_at(int(pid)) is None:
            Ring(folder).stop()


def prepare(options):
    cache = Cache(options.cache, options.instructions)
    clean(options.rings)
    return cache


def start(cache, ring, case, options, keep):
    with cache.lock():
        cache.build()
        # The first start saves the states that the others use, so it is alone too.
        if not (cache.states / "complete").exists():
            return ring.start(cache, case, options.program, keep)
    ring.start(cache, case, options.program, keep)


def up(options):
    case = find_case(options.case or "ring", options.set)
    ring = Ring(options.rings / "up")
    if ring.runs():
        raise Trouble("a ring is up already: `ring down` first, or `ring run` to use it")
    ring.stop()
    start(prepare(options), ring, case, options, keep=True)
    print(f"ssh -F {ring.folder}/ssh_config {NODES[0]}")
    return 0


@contextlib.contextmanager
def ring_for(options):
    """The ring that is up, or one of its own when another is wanted, which ends here."""
    ring = Ring(options.rings / "up")
    own = bool(not ring.runs() or options.case or options.set or options.instructions)
    if own:
        case = find_case(options.case or "ring", options.set)
        ring = Ring(options.rings / f"run-{os.getpid()}")
        start(prepare(options), ring, case, options, keep=False)
    try:
        yield ring
    finally:
        if own:
            ring.stop()


def command(ring, words):
    """Runs a command of the user in the ring's environment; its exit code."""
    try:
        code = subprocess.run(words, env=ring.environment(), preexec_fn=die_with_parent).returncode
    except OSError as error:
        raise Trouble(f"{words[0]}: {error.strerror}") from None
    return ended(ring, words, code)


def ended(ring, words, code):
    if code:
        say(f"{words[0]} failed ({code})")
        ring.report(ring.environment()["RING_CASE"])
    return code if code >= 0 else 128 - code


def told(ring, words):
    """Runs a test in the ring's environment: its exit code, and what it said after its last success."""
    said = []
    with subprocess.Popen(
        words, env=ring.environment(), preexec_fn=die_with_parent, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as running:
        try:
            for line in running.stdout:
                print(line, end="", flush=True)
                said = [] if line.startswith("ok ") else said + [line.rstrip()]
        except BaseException:
            running.kill()  # nobody waits for a test that was stopped
            raise
    return ended(ring, words, running.returncode), said


def run(options):
    with ring_for(options) as ring:
        return command(ring, options.command)


def mesh(*words):
    return [sys.executable, str(HERE / "mesh.py"), *words]


def native(*words):
    return [sys.executable, str(HERE / "native.py"), *words]


def down(options):
    ring = Ring(options.rings / "up")
    was = bool(ring.processes())
    ring.stop()
    clean(options.rings)
    say("the ring is down" if was else "no ring was up")
    return 0


def test(options):
    """Every case on a ring of its own: those that tell why they are refused, or facts, and those that work."""
    names = options.cases or sorted(path.stem for path in (HERE / "cases").glob("*.case"))
    tried, failed = 0, {}
    for round_ in range(options.rounds):
        for name in names:
            options.case, options.set = name, []
            case = find_case(name, [])
            # One ring for each list of tests.
            if case.refused:
                rings = [[mesh("refused")]]
            elif case.facts:
                rings = [[mesh("told")]]
            else:
                rings = [[mesh("works", "--reruns", str(options.reruns))]]
            if name == "ring":
                # What does not depend on the cables is tried on one case. The last of each leaves ports that
                # were re-initialised.
                rings[0] += [mesh("needed"), mesh("nic")]
                rings.append(
                    [
                        native("works", "--reruns", str(min(20, options.reruns))),
                        native("killed", "--every", str(options.kill_every)),
                        native("faults"),
                        native("marker"),
                        native("probe"),
                        native("doctor"),
                    ]
                )
                # Each kill costs two re-initialisations: every fifth call in the long run, a few in the gate.
                # Six minutes: of the long run alone. What deploy does on a host is tested over a local sshd, too.
                if options.kill_every == 1:
                    rings.append([native("deploy")])
                rings.append([native("queue"), native("queue-killed", "--every", str(5 * options.kill_every))])
            for tests in rings:
                with ring_for(options) as ring:
                    for test in tests:
                        what = " ".join([name, pathlib.Path(test[1]).stem, *test[2:]])
                        if options.rounds > 1:
                            what += f", round {round_ + 1}"
                        print(f"case {what}", flush=True)
                        tried += 1
                        code, said = told(ring, test)
                        if code:
                            failed[what] = said
                            break
    # Once more at the end: a log that is kept may be kept in part.
    for what, said in failed.items():
        print("\n".join([f"FAIL: ring {what}:", *said[:40]]))
    print(f"{tried - len(failed)} of {tried} tests of {len(names)} cases passed" + "".join(f"; FAIL: {what}" for what in failed))
    return 1 if failed else 0


def check(options):
    """The checks of what imitates the NIC, each on a machine of its own."""
    # The imitation is checked on ports that its check makes itself.
    clear = "for one in /sys/class/infiniband/*; do rdma link del ${one##*/}; done; rmmod fakehw; dmesg -C"
    checks = [("spark1", "fakehw"), ("spark2", "mlx5-shim")]
    options.case, options.set = "ring", []
    with ring_for(options) as ring:

        def one(node_and_name):
            node, name = node_and_name
            folder = f"/usr/local/lib/{name}"
            return ring.ssh(node, f"set -e; {clear}; sh {folder}/check.sh {folder} 2>&1", timeout=CHECK_LIMIT)

        failed = False
        for (_, name), done in zip(checks, each(one, checks)):
            text = (done.stdout + done.stderr).decode(errors="replace").rstrip()
            counts = re.fullmatch(r"([0-9]+) passed, ([0-9]+) failed", text.rpartition("\n")[2])
            if done.returncode or not counts or counts[2] != "0" or counts[1] == "0":
                failed = True
                print(f"{text}\nFAIL: {name}: its check ended with {done.returncode}", flush=True)
            else:
                print(f"{name}: {counts[1]} of {counts[1]} checks passed", flush=True)
        if failed:
            ring.report("check")
    return 1 if failed else 0


def gate(options):
    return check(options) or test(options)


def demo(options):
    options.case, options.set = "ring", []
    with ring_for(options) as ring:
        code = command(ring, native("demo"))
    if not code:
        print(
            "That was the whole job, on four machines with a kernel, systemd and RDMA stack of their own.\n"
            "It shows that the rules and routes are right; not speed, nor what mlx5 makes of them.\n"
            "To look around in such a ring: cargo xtask ring up"
        )
    return code


def image(options):
    cache = prepare(options)
    with cache.lock():
        cache.build()
    return 0


def main():
    parser = argparse.ArgumentParser(prog="ring.py", description=__doc__)
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--rings", type=pathlib.Path, required=True)
    parser.add_argument("--program", type=pathlib.Path, help="the binary that the nodes get")
    parser.set_defaults(instructions=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for name, function in dict(up=up, run=run, down=down, test=test, check=check, gate=gate, demo=demo, image=image).items():
        verb = verbs.add_parser(name)
        verb.set_defaults(function=function)
        if name in ("up", "run"):
            verb.add_argument("--case")
            verb.add_argument("--set", action="append", default=[], metavar="LINE", help="a line more of the case")
        if name == "run":
            verb.add_argument("--instructions", action="store_true", help="a nanosecond of the machines is one instruction")
            verb.add_argument("command", nargs="+")
        if name in ("test", "gate"):
            verb.add_argument("--reruns", type=int, default=3, help="of mesh-up and up on each node")
            verb.add_argument("--rounds", type=int, default=1, help="how often each case is tried")
            verb.add_argument("--kill-every", type=int, default=5, metavar="N", help="kill `up` at each Nth system call that changes something")
            verb.add_argument("cases", nargs="*", metavar="CASE")
    options = parser.parse_args()
    options.cache = options.cache.resolve()
    options.rings = options.rings.resolve()
    options.program = options.program.resolve() if options.program else None

    signals = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

    def stopped(number, _):
        for one in signals:  # cleaning up is not stopped again
            signal.signal(one, signal.SIG_IGN)
        raise Stopped(f"stopped by {signal.Signals(number).name}")

    for number in signals:
        signal.signal(number, stopped)
    try:
        return options.function(options)
    except Trouble as trouble:
        say(trouble)
        return 2


if __name__ == "__main__":
    sys.exit(main())
