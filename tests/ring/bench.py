#!/usr/bin/env python3
"""What `up` and `verify` cost on a node of a running ring.  `ring.py run -- bench.py ...` gives it the ring.

  bench.py cost [--runs N]   `up` and `verify` with nothing to do, next to the emitted script and to a script of
                             the shape in use today, and again beside 10,000 foreign filters and routes: times,
                             their ratio, system calls and children. Nothing but counts is ever a failure.
                             With `ring.py run --instructions` times are instructions, of the kernel, too
  bench.py probe [--pairs N] [--iterations N] [--size BYTES ...]
                             ends of `probe` that are started by hand beside `ib_write_lat`, over one diagonal, in
                             alternation: the ratio of the medians of p50 and p99 with its 95 % interval
  bench.py record FOLDER     the rtnetlink messages that `verify` takes on a node, for `cargo bench --bench mesh`
"""

import argparse
import os
import pathlib
import random
import re
import statistics
import subprocess
import sys

import mesh
import native
from mesh import LIMIT, NODES, at_once, check, judged, ok, on
from native import CALLS, PROGRAM

FOREIGN = 10_000  # filters, and routes, of others
FOREIGN_ADDRESS = "198.18.0.1"  # of a block that is kept for benchmarks (RFC 2544)
RATIO = 20  # how much faster than the script of today `up` with nothing to do is to be

# rtnetlink's answers to dumps (linux/rtnetlink.h)
TABLES = {16: "links", 20: "addresses", 24: "routes", 28: "neighbours", 36: "qdiscs", 44: "filters"}
HEADER = 16  # bytes of struct nlmsghdr


def today(ring, node):
    """A script that does as those in use today do, without their sleep: a process of ip, tc or systemctl for each
    object, most of them with a grep behind. Its counts are shown, to be held against those of the real one: 21
    processes, of which the sleep is one, and 4,600 system calls."""
    rules = ring.rules_of(node)
    lines = ["set -eu"]
    for port in ring.plan["ports"]:
        if port["host"] == node and any(port["netdev"] in (r["dev"], r["redirect"]) for r in rules):
            lines.append(f"read -r state </sys/class/net/{port['netdev']}/operstate; test $state = up")
    for route in ring.plan["routes"]:
        if route["host"] == node:
            to = f"{route['destination']}/32"
            lines.append(f"ip route show {to} | grep -q . || ip route add {to} via {route['gateway']} dev {route['dev']} src {route['src']}")
    for dev in sorted({rule["dev"] for rule in rules}):
        lines.append(f"tc qdisc show dev {dev} | grep -q clsact || tc qdisc add dev {dev} clsact")
    for rule in rules:
        # What is missing is not added here: then this is not what is to be measured.
        lines.append(f"tc filter show dev {rule['dev']} ingress | grep 'pref {rule['pref']} flower' >/dev/null || exit 9")
        lines.append(f"tc -s filter show dev {rule['dev']} ingress | grep in_hw >/dev/null || exit 9")
    # It starts them whether they run or not, sleeps, and looks: that is what its sleep is for.
    for words in ("start", "is-active --quiet"):
        for marker in ring.plan["markers"]:
            if marker["host"] == node:
                lines.append(f"systemctl {words} dsv41-mesh-marker@{marker['device']}.service || exit 9")
    return "\n".join(lines) + "\n"


def timed(node, commands, runs):
    """The shortest of `runs` runs of each command, in turn, in ms: from the fork to the end of the process."""
    script = [f"one() {{ local a=$EPOCHREALTIME b; $2 >/dev/null 2>&1 || exit 9; b=$EPOCHREALTIME; echo \"$1 $((${{b/./}} - ${{a/./}}))\"; }}"]
    script.append(f"for run in $(seq {runs}); do")
    script += [f"one {i} '{command}'" for i, command in enumerate(commands)]
    script.append("done")
    text = subprocess.run(
        ["ssh", node, "LC_ALL=C bash -s"], input="\n".join(script), capture_output=True, text=True, timeout=LIMIT + 2 * runs * len(commands)
    )
    check(text.returncode == 0, f"{node}: {text.stdout}{text.stderr}")
    found = [[] for _ in commands]
    for line in text.stdout.splitlines():
        number, microseconds = map(int, line.split())
        found[number].append(microseconds / 1000)
    check(all(len(times) == runs for times in found), f"{node}: {[len(times) for times in found]} runs, {runs} each wanted")
    return [min(times) for times in found]


def calls(node, command):
    """System calls of a command with its children, and how many it started."""
    text = on(node, f"strace -f -c -U calls,name -o /run/ring/calls {command} >/dev/null 2>&1 && cat /run/ring/calls")
    found = {name: int(count) for count, name in re.findall(r"^ *(\d+) +(\w+)$", text, re.M)}
    total = found.pop("total", None)
    check(total and total == sum(found.values()), f"{node}: strace tells\n{text}")
    return total, sum(found.get(name, 0) for name in ("clone", "clone3", "fork", "vfork"))


def findings(node):
    report, _ = native.told(node, "verify", (0, 1))
    return report["hosts"][0]["findings"]


def ready():
    ring = native.installed()
    at_once(native.up, NODES)
    node = ring.diagonals[0]["via"]
    # So that counters and gateways are not those of a mesh that nothing ever used.
    ring.write(0)
    return ring, node


def cost(runs):
    ring, node = ready()
    on(node, "cat >/root/today.sh", input=today(ring, node).encode())
    commands = {
        "up": f"{PROGRAM} up",
        "verify": f"{PROGRAM} verify",
        "nothing (--version)": f"{PROGRAM} --version",
        "emitted script": "bash /root/mesh-up.sh",
        "script of today": "bash /root/today.sh",
    }
    ok(f"four nodes are up; what follows is measured on {node}, which is an emulated machine: ratios hold, times do not")

    counted = {name: calls(node, command) for name, command in commands.items()}
    times = dict(zip(commands, timed(node, commands.values(), runs)))
    unit = "10^6 instr." if os.environ.get("RING_CLOCK") == "instructions" else "ms"
    print(f"{'':22}{unit + ', min of ' + str(runs):>16}{'to up':>9}{'system calls':>14}{'children':>10}")
    for name in commands:
        print(f"{name:22}{times[name]:16.1f}{times[name] / times['up']:8.1f}x{counted[name][0]:14}{counted[name][1]:10}")
    ratio = times["script of today"] / times["up"]
    print(f"the script of today takes {ratio:.0f} times as long as up; {RATIO} is the goal", flush=True)
    beyond = counted["up"][0] - counted["nothing (--version)"][0]
    check(beyond <= CALLS, f"up with nothing to do: {beyond} system calls beyond a process's own, {CALLS} at most wanted")
    check(counted["up"][1] == 0, f"up with nothing to do starts {counted['up'][1]} children or threads")
    ok(f"up with nothing to do: {beyond} system calls beyond a process's own, no child")

    before = findings(node)
    dev = ring.rules_of(node)[0]["dev"]
    routes = "\n".join(f"route add 198.18.{i >> 8}.{i & 255}/32 dev {dev} proto static" for i in range(FOREIGN))
    # Of one preference and mask, as one who writes so many does it.
    filters = "\n".join(
        f"filter add dev {dev} ingress protocol ip pref 100 handle {i + 1} flower skip_hw dst_ip 198.18.{i >> 8}.{i & 255} action pass"
        for i in range(FOREIGN)
    )
    on(node, "ip -batch -", input=routes.encode())
    on(node, "tc -batch -", input=filters.encode())
    ok(f"{FOREIGN} foreign routes, and {FOREIGN} foreign filters at the ingress of {dev}, where a rule is")
    report = native.up(node)
    check(report["verdict"] == "in-sync", f"{node}: beside foreign objects up says {report['verdict']}")
    check(findings(node) == before, f"{node}: beside foreign objects verify finds {findings(node)}, {before} wanted")
    ok("up has nothing to do and verify finds what it found")
    few = max(runs // 10, 2)
    for name, took in zip(("up", "verify"), timed(node, [commands["up"], commands["verify"]], few)):
        total, children = calls(node, commands[name])
        print(f"{name + ' beside them':22}{took:16.1f}{took / times[name]:8.1f}x{total:14}{children:10}   to {name} without", flush=True)
    on(node, f"tc filter del dev {dev} ingress pref 100 && ip route flush root 198.18.0.0/15 proto static")
    check(findings(node) == before, f"{node}: without them again verify finds {findings(node)}")
    at_once(native.down, NODES)


def perftest(path, source, target, gid, port, size, iterations):
    """p50 and p99 of one run of `ib_write_lat`, in microseconds, as it prints them."""
    words = f"timeout {LIMIT} ib_write_lat -p {port} -x {gid} -s {size} -n {iterations} --flow_label=16383 -F"
    on(path["to"], f"SIZE={size} COUNT={iterations} LIMIT={LIMIT} ring-lat serve {target['rdma']} {port} {gid}")
    text = on(path["from"], f"{words} -d {source['rdma']} {path['to']}")
    on(path["to"], f"ring-lat result {port}")
    rows = [line.split() for line in text.splitlines() if re.match(rf" *{size} +{iterations} ", line)]
    check(len(rows) == 1 and len(rows[0]) == 9, f"ib_write_lat prints\n{text}")
    return float(rows[0][4]), float(rows[0][7])


def own(path, source, target, size, iterations):
    """The same of one run of the probe: the figures that perftest would print of its samples."""
    words = ["--size", str(size), "--flow-label", "16383"]
    report, (code, _) = native.by_hand(path, source, target, *words, iterations=iterations, warm_up=0)
    (row,) = report["sizes"]
    check(code == 0 and report["arrived"], f"probe: {report}")
    return row["figures"]["perftest"]["t_typical"], row["figures"]["perftest"]["p99"]


def interval(ours, theirs):
    """The ratio of medians, and between what 95 % of those lie that come of pairs drawn by chance."""
    pairs, draw = list(zip(ours, theirs)), random.Random(1)

    def ratio(chosen):
        return statistics.median(our for our, _ in chosen) / statistics.median(their for _, their in chosen)

    drawn = sorted(ratio(draw.choices(pairs, k=len(pairs))) for _ in range(10_000))
    return ratio(pairs), drawn[250], drawn[9749]


def probe(pairs, iterations, sizes):
    ring = native.installed()
    at_once(native.up, NODES)
    path = ring.diagonals[0]
    source, target, _ = ring.ends(path)
    ok(f"{path['name']}: {pairs} pairs of runs of {iterations} messages each way; emulated machines, in turn: ratios hold, times do not")
    print(f"{'bytes':>8}{'':6}{'probe, us':>12}{'ib_write_lat':>14}{'ratio':>8}   95 % of it", flush=True)
    for size in sizes:
        ours, theirs = [], []
        for pair in range(pairs):
            turns = [
                lambda: ours.append(own(path, source, target, size, iterations)),
                lambda: theirs.append(perftest(path, source, target, ring.plan["gid_index"], 21000 + pair, size, iterations)),
            ]
            for turn in turns if pair % 2 else reversed(turns):
                turn()
        for which, name in enumerate(("p50", "p99")):
            columns = [[row[which] for row in rows] for rows in (ours, theirs)]
            ratio, low, high = interval(*columns)
            mine, other = map(statistics.median, columns)
            said = "" if low <= 1 else "   ABOVE 1"
            print(f"{size:8}  {name:4}{mine:12.1f}{other:14.1f}{ratio:8.3f}   {low:.3f} to {high:.3f}{said}", flush=True)
    at_once(native.down, NODES)


def record(folder):
    ring, node = ready()
    # One route and one filter of others, of which the benchmark makes as many as it wants.
    dev = ring.rules_of(node)[0]["dev"]
    on(node, f"ip route add {FOREIGN_ADDRESS}/32 dev {dev} proto static")
    on(node, f"tc filter add dev {dev} ingress protocol ip pref 100 flower skip_hw dst_ip {FOREIGN_ADDRESS} action pass")
    trace = "-e trace=socket,recvfrom -e read=all -e abbrev=all -s 0"
    text = on(node, f"strace -f {trace} -o /run/ring/taken {PROGRAM} verify >/dev/null; cat /run/ring/taken")
    tables = {name: [] for name in TABLES.values()}
    # The sockets are opened one after the other and none is closed before the end.
    route, datagram = None, None
    datagrams = []
    for line in text.splitlines():
        line = re.sub(r"^\d+ +", "", line)
        if opened := re.match(r"socket\(AF_NETLINK, .*, NETLINK_(\w+)\) += (\d+)", line):
            if opened[1] == "ROUTE":
                route = opened[2]
        elif taken := re.match(r"recvfrom\((\d+),", line):
            datagram = bytearray() if taken[1] == route else None
            if datagram is not None:
                datagrams.append(datagram)
        elif (dumped := re.match(r" ?\| ([0-9a-f]{5,})  (.{48}) ", line)) and datagram is not None:
            check(int(dumped[1], 16) == len(datagram), f"strace tells {line!r} after {len(datagram)} bytes")
            datagram += bytes.fromhex(dumped[2])
    for datagram in datagrams:
        while datagram:
            length = int.from_bytes(datagram[:4], "little")
            check(HEADER <= length <= len(datagram), f"a message of {length} bytes in {len(datagram)}")
            name = TABLES.get(int.from_bytes(datagram[4:6], "little"))
            if name:
                tables[name].append(datagram[HEADER:length].hex())
            datagram = datagram[(length + 3) & ~3 :]
    empty = [name for name, rows in tables.items() if not rows]
    check(not empty, f"no {', '.join(empty)} in what strace tells")
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in tables.items():
        (folder / f"{name}.hex").write_text("".join(f"{row}\n" for row in rows))
    (folder / "plan.json").write_bytes((ring.folder / "plan.json").read_bytes())
    on(node, f"tc filter del dev {dev} ingress pref 100 && ip route del {FOREIGN_ADDRESS}/32 dev {dev}")
    (folder / "host").write_text(f"{node}\n")
    ok(f"{folder}: {node}: " + ", ".join(f"{len(rows)} {name}" for name, rows in tables.items()))
    at_once(native.down, NODES)


def main():
    parser = argparse.ArgumentParser(prog="bench.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("cost").add_argument("--runs", type=int, default=40)
    between = verbs.add_parser("probe")
    between.add_argument("--pairs", type=int, default=20)
    between.add_argument("--iterations", type=int, default=1000)
    between.add_argument("--size", type=int, action="append")
    verbs.add_parser("record").add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    tests = {
        "cost": lambda: cost(options.runs),
        "probe": lambda: probe(options.pairs, options.iterations, options.size or SIZES),
        "record": lambda: record(options.folder),
    }
    return judged(tests[options.verb])


if __name__ == "__main__":
    sys.exit(main())
