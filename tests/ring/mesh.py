#!/usr/bin/env python3
"""The mesh end to end on a running ring.  `ring.py run -- mesh.py ...` gives it the ring.

  mesh.py works [--reruns N]   facts and plan over SSH; the scripts of the plan on each node; every rule
                               in hardware; RDMA over every diagonal, forwarded by the NIC alone; a second
                               run changes nothing, N times; no trace afterwards
  mesh.py needed               each rule and a marker are needed: without them no RDMA, or no NIC that
                               forwards; mesh-up puts back exactly what is missing
  mesh.py nic                  what a verifier relies on: when counters move, what a re-initialisation
                               leaves, what a hairpin queue loses
  mesh.py told                 inventory says the facts that its case tells
  mesh.py refused              the plan refuses the ring with every line that its case tells
"""

import argparse
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

NODES = os.environ["RING_NODES"].split()
PROGRAM = os.environ["RING_PROGRAM"]
# Removed when this ends.
SCRATCH = []
LIMIT = 90  # s, for one command on one node; the machines may be slow, and the host may have other work
MESSAGES = 100  # sent each way
BEGAN = time.monotonic()


class Failed(Exception):
    pass


def ok(text):
    print(f"ok   {time.monotonic() - BEGAN:5.0f} s  {text}", flush=True)


def check(right, text):
    if not right:
        raise Failed(text)


def on(node, command, fails=False, **options):
    """Runs a command on a node over plain `ssh NODE`; gives its output."""
    if "input" not in options:
        options["stdin"] = subprocess.DEVNULL
    done = subprocess.run(["ssh", node, command], capture_output=True, timeout=LIMIT, **options)
    said = (done.stdout + done.stderr).decode(errors="replace").strip()
    if done.returncode and not fails:
        raise Failed(f"{node}: {command}: exit code {done.returncode}\n{said}")
    if fails and not done.returncode:
        raise Failed(f"{node}: {command}: works, and must not\n{said}")
    # 255 is ssh's own failure: nothing was tried.
    check(done.returncode != 255, f"{node}: ssh: {said}")
    return done.stdout.decode()


def at_once(function, over, workers=4):
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, over))


def program(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, timeout=LIMIT)


def hosts():
    return [word for node in NODES for word in ("--host", node)]


# ---- What is seen on the nodes ---------------------------------------------------------------------


def forwarded(node):
    """Packets that the kernel of a node forwarded."""
    names, values = [line.split() for line in on(node, "grep ^Ip: /proc/net/snmp").splitlines()]
    return int(values[names.index("ForwDatagrams")])


def filters(node, devs):
    """The flower rules of a node's ports: by port and preference, what tc says of them."""
    text = on(node, " && ".join(f"echo '{dev}' && tc -s -j filter show dev {dev} ingress && echo" for dev in devs))
    found, dev = {}, None
    for line in text.splitlines():
        if line in devs:
            dev = line
        elif line.strip():
            for row in json.loads(line):
                if "handle" in row.get("options", {}):
                    found[dev, row["pref"]] = row["options"]
    return found


def in_hardware(options):
    """Packets that the rule forwarded in the NIC."""
    return sum(a.get("stats", {}).get("hw_packets", 0) for a in options["actions"][-1:])


class Mesh:
    def __init__(self, plan):
        self.plan = plan
        self.ports = {(p["host"], p["netdev"]): p for p in plan["ports"]}
        self.diagonals = [path for path in plan["paths"] if path["kind"] == "diagonal"]

    def rules_of(self, node):
        return [rule for rule in self.plan["rules"] if rule["host"] == node]

    def read_rules(self, node):
        return filters(node, sorted({rule["dev"] for rule in self.rules_of(node)}))

    def ends(self, path):
        """The source's port, the destination's, and the rules there and back on the middle node."""
        source = next(p for p in self.ports.values() if (p["host"], p["rdma"]) == (path["from"], path["device"]))
        facing = dict(host=path["to"], peer_host=path["via"], domain=path["domain"])
        target = next(p for p in self.ports.values() if all(p[k] == v for k, v in facing.items()))
        rules = [
            next(r for r in self.rules_of(path["via"]) if (r["src_mac"], r["set_dst_mac"]) == (a["mac"], b["mac"]))
            for a, b in ((source, target), (target, source))
        ]
        return source, target, rules

    def write(self, number, fails=False, limit=None, size=1024, count=MESSAGES):
        """RDMA writes with flow label 16383 over diagonal `number`, answered by as many."""
        path = self.diagonals[number]
        source, target, _ = self.ends(path)
        port, gid = 20000 + number, self.plan["gid_index"]
        lat = f"SIZE={size} COUNT={count} ring-lat"
        if limit:
            lat = f"LIMIT={limit} {lat}"
        on(path["to"], f"{lat} serve {target['rdma']} {port} {gid}")
        on(path["from"], f"{lat} send {source['rdma']} {port} {gid} {path['to']}", fails=fails)
        on(path["to"], f"{lat} result {port}", fails=fails)

    def counted(self, rule):
        """Packets that a rule forwarded in the NIC, as tc tells it."""
        return in_hardware(self.read_rules(rule["host"])[rule["dev"], rule["pref"]])

    def rises(self, rules, before, least, seconds=5):
        """How far the counters of rules are beyond `before`, once each is that far. A driver samples its
        counters about once a second."""
        until = time.monotonic() + seconds
        while True:
            rise = [self.counted(rule) - then for rule, then in zip(rules, before)]
            if min(rise) >= least:
                return rise
            check(time.monotonic() < until, f"the rules forwarded {rise}, {least} each wanted")
            time.sleep(0.2)


def port_counter(node, netdev, counter):
    """A counter of a port that the imitated NIC keeps for tests."""
    return int(on(node, f"ethtool -S {netdev} | sed -n 's/^ *{counter}: //p'"))


# ---- Steps that the tests share ------------------------------------------------------------------------


def inventory(folder):
    """The facts of each node's fabric ports, over SSH."""
    done = program("inventory", "--out", str(folder / "facts"), *hosts())
    check(done.returncode == 0, f"inventory: exit code {done.returncode}\n{done.stderr}")
    return {node: json.loads((folder / "facts" / f"{node}.json").read_text())["ports"] for node in NODES}


def planned(folder):
    """The plan of this ring, made over SSH, and its scripts on their nodes."""
    done = program("plan", "--out", str(folder / "ring-mesh"), *NODES)
    check(done.returncode == 0, f"plan: exit code {done.returncode}\n{done.stderr}")
    plan = json.loads((folder / "ring-mesh" / "plan.json").read_text())
    check(plan["gid_index"] == 1, f"GID index {plan['gid_index']}, Soft-RoCE's 1 wanted")
    mesh = Mesh(plan)
    check(len(mesh.diagonals) == 8, f"{len(mesh.diagonals)} diagonals, 8 wanted")

    def give(node):
        files = io.BytesIO()
        with tarfile.open(fileobj=files, mode="w") as tar:
            for verb in ("up", "down"):
                tar.add(folder / "ring-mesh" / f"mesh-{verb}-{node}.sh", f"root/mesh-{verb}.sh")
        on(node, "tar -x -C / --no-same-owner -f -", input=files.getvalue())

    at_once(give, NODES)
    ok("plan over SSH: " + " - ".join(plan["ring"]))
    return mesh


def state(node):
    return on(node, "ring-state")


def up(node):
    return on(node, "bash /root/mesh-up.sh").strip().splitlines()[-1]


def changed(node, count):
    """What mesh-up says last."""
    return f"{node}: done, {count} changed" if count else f"{node}: nothing to do"


def installed():
    """A plan and its scripts, run on every node."""
    mesh = planned(scratch())
    at_once(up, NODES)
    ok("mesh-up on four nodes")
    return mesh


def scratch():
    """A folder until this ends. Root takes a plan from no folder that others may write, as that of a checkout may be."""
    folder = tempfile.TemporaryDirectory(prefix="plan-", dir=os.environ["RING_DIR"] if os.geteuid() else "/run")
    SCRATCH.append(folder)
    return pathlib.Path(folder.name)


def delete_rule(rule):
    command = "tc filter del dev {dev} ingress protocol {protocol} pref {pref} handle {handle} flower"
    on(rule["host"], command.format(**rule))


# ---- The tests ---------------------------------------------------------------------------------------


def works(reruns):
    folder = scratch()
    facts = inventory(folder)
    for node in NODES:
        check(len(facts[node]) == 4, f"{node}: {len(facts[node])} fabric ports, 4 wanted: {list(facts[node])}")
    ok("inventory over SSH: four nodes, four fabric ports each")

    mesh = planned(folder)
    before = at_once(state, NODES)
    for node, line in zip(NODES, at_once(up, NODES)):
        check(re.fullmatch(changed(node, "[1-9][0-9]*"), line), f"{node}: mesh-up says {line!r}")

    def see(node):
        found = mesh.read_rules(node)
        for rule in mesh.rules_of(node):
            there = found.get((rule["dev"], rule["pref"]))
            check(there, f"{node}: no rule at {rule['dev']} {rule['pref']}")
            flags = {key: there.get(key) for key in ("in_hw", "skip_sw")}
            check(all(flags.values()), f"{node}: the rule at {rule['dev']} {rule['pref']}: {flags}")
        check(len(found) == len(mesh.rules_of(node)), f"{node}: {len(found)} rules")
        return state(node)

    after_up = at_once(see, NODES)
    ok(f"mesh-up on four nodes: {len(mesh.plan['rules'])} rules, every one in hardware")

    quiet = at_once(forwarded, NODES)

    def crosses(number):
        path = mesh.diagonals[number]
        *_, rules = mesh.ends(path)
        first = [mesh.counted(rule) for rule in rules]
        mesh.write(number)
        rise = mesh.rises(rules, first, MESSAGES)
        ok(f"{path['name']}: written and answered; the NIC forwarded {rise[0]} and {rise[1]}")

    # Two at a time, one for each core; a diagonal and its reverse share both rules, and are apart.
    at_once(crosses, range(len(mesh.diagonals)), workers=2)
    check(at_once(forwarded, NODES) == quiet, "IpForwDatagrams rose: a kernel forwarded packets")
    ok("IpForwDatagrams is where it was on every node")

    if reruns:

        def again(node):
            loop = f'for i in $(seq {reruns}); do said=$(bash /root/mesh-up.sh 2>&1); test "$said" = "{changed(node, 0)}" || {{ echo "run $i: $said"; exit 1; }}; done'
            # Each takes about a second.
            done = subprocess.run(["ssh", node, loop], capture_output=True, text=True, timeout=LIMIT + 10 * reruns)
            check(done.returncode == 0, f"{node}: mesh-up again: {done.stdout}{done.stderr}")
            return state(node)

        same(after_up, at_once(again, NODES), "mesh-up again")
        ok(f"mesh-up again, {reruns} times on each node: changes nothing")

    def down(node):
        said = on(node, "bash /root/mesh-down.sh").strip().splitlines()[-1]
        check(re.fullmatch(rf"{node}: done, [1-9][0-9]* removed", said), f"{node}: mesh-down says {said!r}")
        return state(node)

    same(before, at_once(down, NODES), "mesh-down")
    ok("mesh-down leaves no trace: the state of every node is what it was before mesh-up")


def needed():
    mesh = installed()
    quiet = at_once(forwarded, NODES)
    ends = [mesh.ends(path) for path in mesh.diagonals]
    # A diagonal and its reverse share two rules, one for each way. In two rounds each rule is missing once,
    # the way there of one of the two and the way back of the other.
    one_way = [n for n, (*_, rules) in enumerate(ends) if not any(rules[0] in e[2] for e in ends[:n])]
    other_way = [n for n in range(len(ends)) if n not in one_way]
    check(len(one_way) == len(other_way) == 4, f"{len(one_way)} diagonals with a reverse, 4 wanted")
    tried = set()
    for without, with_ in ((one_way, other_way), (other_way, one_way)):
        gone = [ends[n][2][0] for n in without]
        at_once(delete_rule, gone)
        # Four at a time, no two of them on the same rules: waiting is most of it.
        at_once(lambda n: fails_at(mesh, n, ends[n][2][0]), without)
        at_once(lambda n: fails_at(mesh, n, ends[n][2][1]), with_)
        check(at_once(forwarded, NODES) == quiet, "IpForwDatagrams rose: a kernel forwarded marked packets")
        places = ", ".join(f"{rule['host']} {rule['dev']}" for rule in gone)
        ok(f"without the rules of {places}: all eight diagonals fail, and no kernel forwards")
        for node, line in zip(NODES, at_once(up, NODES)):
            wanted = changed(node, sum(rule["host"] == node for rule in gone))
            check(line == wanted, f"mesh-up says {line!r}, {wanted!r} wanted: it puts back what is missing")
        ok("mesh-up puts back exactly those rules")
        tried |= {(rule["host"], rule["dev"], rule["pref"]) for rule in gone}
    check(len(tried) == len(mesh.plan["rules"]), f"{len(tried)} of {len(mesh.plan['rules'])} rules were missing once")
    at_once(mesh.write, range(len(ends)), workers=2)
    check(at_once(forwarded, NODES) == quiet, "IpForwDatagrams rose: a kernel forwarded packets")
    ok("all eight diagonals work again")

    # Without its marker a node's packets are ordinary ones, which the neighbour's kernel forwards.
    path, (source, _, (there, _)) = mesh.diagonals[0], ends[0]
    unit = f"dsv41-mesh-marker@{source['rdma']}.service"
    on(path["from"], f"systemctl stop {unit}")
    before, kernel = mesh.counted(there), forwarded(path["via"])
    mesh.write(0)
    rise = forwarded(path["via"]) - kernel
    check(rise >= MESSAGES, f"without {unit} of {path['from']}, the kernel of {path['via']} forwarded {rise}")
    time.sleep(2)  # two refreshes of the counter
    check(mesh.counted(there) == before, f"without {unit}, the rule forwarded {mesh.counted(there) - before}")
    ok(f"{path['name']} without its marker: the kernel forwards {rise} packets, and the NIC none")
    check(up(path["from"]) == changed(path["from"], 1), "mesh-up did not start exactly the one marker")
    kernel = at_once(forwarded, NODES)
    mesh.write(0)
    check(at_once(forwarded, NODES) == kernel, "IpForwDatagrams rose: a kernel forwarded packets")
    ok("mesh-up starts the marker, and the NIC forwards again")


def fails_at(mesh, number, missing):
    """Diagonal `number` fails, and because of this rule: its port has marked packets and no rule for them."""
    misses = lambda: port_counter(missing["host"], missing["dev"], "rx_tag_miss")
    # A machine that was too slow to send anything has shown nothing.
    for limit in (10, 40):
        before = misses()
        mesh.write(number, fails=True, limit=limit)
        if misses() > before:
            return
    raise Failed(f"{mesh.diagonals[number]['name']}: fails, but not by the missing rule of {missing['host']} {missing['dev']}")


def nic_behaves():
    mesh = installed()
    path = mesh.diagonals[0]
    _, _, (there, back) = mesh.ends(path)
    node, near, far = path["via"], there["dev"], there["redirect"]
    check(back["dev"] == far, f"the way back enters by {back['dev']}, {far} wanted")
    port = mesh.ports[node, far]
    quiet = at_once(forwarded, NODES)

    # A counter is refreshed now and then: a verifier that reads twice in between sees no traffic.
    stats = lambda milliseconds: on(node, f"echo {milliseconds} >/sys/module/fakehw/parameters/stats_ms")
    stats(600_000)
    shown, real = mesh.counted(there), port_counter(node, near, "hairpin_forwarded")
    mesh.write(0)
    rise = port_counter(node, near, "hairpin_forwarded") - real
    check(rise >= MESSAGES, f"the NIC forwarded {rise}, {MESSAGES} wanted")
    check(mesh.counted(there) == shown, "the counter moved between two refreshes")
    stats(0)
    check(mesh.counted(there) >= shown + rise, "a counter that is refreshed at each look does not show all")
    stats(1000)
    ok("a rule's counter stays until it is refreshed, and then shows all")

    # The messages of this test are 60 packets of 4096 bytes each.
    large = dict(size=245760, count=5)
    lost = lambda dev: port_counter(node, dev, "rx_out_of_buffer")
    before = lost(near)
    # Soft-RoCE may or may not get over the loss in time.
    with contextlib.suppress(Failed):
        mesh.write(0, **large)
    rise = lost(near) - before
    check(rise > 0, "queue 1024 lost nothing of 240 KB")
    ok(f"messages of 240 KB: a queue of 1024 loses {rise} packets")

    # Re-initialised: the target of the rule first, then the rule's own port.
    def reinitialised(dev):
        handle = "pci/" + on(node, f"basename $(readlink /sys/class/net/{dev}/device)").strip()
        text = on(
            node,
            f"devlink dev param set {handle} name hairpin_queue_size value 8192 cmode driverinit && "
            f"devlink dev reload {handle} action driver_reinit >/dev/null && "
            f"ethtool -k {dev} && tc qdisc show dev {dev} && tc filter show dev {dev} ingress",
        )
        check("hw-tc-offload: off" in text, f"{dev} after its re-initialisation: hw-tc-offload is not off")
        check("clsact" not in text and "filter" not in text.partition("qdisc ")[2], f"{dev}: has a clsact or rules:\n{text}")

    unit = f"dsv41-mesh-marker@{port['rdma']}.service"
    pid = on(node, f"systemctl show -P MainPID {unit}")
    check(pid.strip() != "0", f"{unit} does not run")
    reinitialised(far)
    ok(f"{node} {far} re-initialised: hw-tc-offload off, no qdisc, no rule")
    wait = (
        f"for i in $(seq 300); do grep -qx 1 /sys/class/net/{far}/fakehw/mark && systemctl -q is-active {unit} && exit 0; sleep 0.1; done; "
        f"systemctl status {unit}; exit 1"
    )
    on(node, wait)
    check(on(node, f"systemctl show -P MainPID {unit}") != pid, f"{unit} is the process that it was")
    on(node, f"rdma link show {port['rdma']}/1 | grep -q 'netdev {far}' && ip -4 -br addr show dev {far} | grep -qF '{port['ipv4']}'")
    ok("its RDMA device, its address and its marker are back by themselves")

    rule = mesh.read_rules(node)[near, there["pref"]]
    check(rule.get("in_hw"), "the rule that leads there is not in_hw any more")
    real = port_counter(node, near, "hairpin_dead_egress")
    # The server of ib_write_lat writes first, so it has to be at the side of the dead rule.
    reverse = next(n for n, other in enumerate(mesh.diagonals) if mesh.ends(other)[2] == [back, there])
    mesh.write(reverse, fails=True, limit=15)
    check(port_counter(node, near, "hairpin_dead_egress") > real, f"{path['name']} fails, but not by the dead rule")
    check(at_once(forwarded, NODES) == quiet, "IpForwDatagrams rose: a kernel forwarded packets")
    ok("a rule that leads there still reads in_hw, and forwards nothing")

    reinitialised(near)
    on(node, f"ethtool -K {near} hw-tc-offload on && ethtool -K {far} hw-tc-offload on")
    line = up(node)
    check(re.fullmatch(changed(node, "[1-9][0-9]*"), line), f"{node}: mesh-up says {line!r}")
    mesh.write(0)
    ok("mesh-up makes it right again")
    before = lost(near), lost(far)
    mesh.write(0, limit=60, **large)
    check((lost(near), lost(far)) == before, "a loaded queue of 8192 lost packets of 240 KB")
    ok("messages of 240 KB: a loaded queue of 8192 loses none")


def same(before, after, what):
    import difflib

    for node, one, other in zip(NODES, before, after):
        difference = "\n".join(difflib.unified_diff(one.splitlines(), other.splitlines(), "before", "after", n=0, lineterm=""))
        check(not difference, f"{node}: {what} changed the state:\n{difference}")


def told():
    wanted = json.loads((pathlib.Path(os.environ["RING_DIR"]) / "facts").read_text())
    check(wanted, "the case tells no fact")
    facts = inventory(scratch())
    for node, netdev, name, value in wanted:
        found = facts[node][netdev].get(name)
        check(found == value, f"{node} {netdev}: {name} is {found!r}, {value!r} wanted")
    ok(f"inventory says the {len(wanted)} facts that the case tells")


def refused():
    wanted = (pathlib.Path(os.environ["RING_DIR"]) / "refused").read_text().splitlines()
    check(wanted, "the case tells no line that refuses it")
    folder = pathlib.Path(os.environ["RING_DIR"]) / "refused-plan"
    done = program("plan", "--out", str(folder), *NODES)
    check(done.returncode == 1, f"plan: exit code {done.returncode}, 1 wanted\n{done.stderr}")
    for line in wanted:
        check(line in done.stderr, f"plan does not say {line!r}; it says\n{done.stderr}")
    check(not folder.exists(), "a refused plan wrote its folder")
    ok(f"refused with {len(wanted)} lines as the case tells")


def judged(test):
    """Runs a test; the exit code."""
    try:
        test()
    except (Failed, subprocess.TimeoutExpired) as what:
        print(f"FAIL {time.monotonic() - BEGAN:5.0f} s  {what}", flush=True)
        return 1
    return 0


def main():
    parser = argparse.ArgumentParser(prog="mesh.py", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("works").add_argument("--reruns", type=int, default=3)
    for verb in ("needed", "nic", "told", "refused"):
        verbs.add_parser(verb)
    options = parser.parse_args()
    tests = {"works": lambda: works(options.reruns), "needed": needed, "nic": nic_behaves, "told": told, "refused": refused}
    return judged(tests[options.verb])


if __name__ == "__main__":
    sys.exit(main())
