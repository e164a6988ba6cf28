#!/usr/bin/env python3
"""`up`, `down` and `verify` on a running ring.  `ring.py run -- native.py ...` gives it the ring.

  native.py works [--reruns N]   the same kernel state as the scripts, to the letter; RDMA over every
                                 diagonal; nothing to do N times under load, by few system calls and no
                                 child; verify of one node and of all; no trace afterwards
  native.py faults               what is wrong, in the way or refused by the NIC: what `up` and `verify` say,
                                 and that nothing else changes
  native.py marker               the marker at rest, killed, refused, and when its device is initialised anew
  native.py probe                verdicts of all paths, and of each misbehaviour of the NIC
  native.py doctor               faults made on live nodes: the one cause that the doctor names, and silence once cured
  native.py demo                 the whole job for a reader: plan, up, verify, RDMA, down
  native.py queue                hairpin-queue and up --set-hairpin-queue: what is loaded, what comes back, what is
                                 kept, who is in the way
  native.py queue-killed [--every N]  hairpin-queue killed at each Nth system call that sends, renames or removes:
                                 the next run finishes it
  native.py deploy               from bare nodes to a mesh and back: deploy, plan, enable, upgrade, roll back, uninstall
  native.py killed [--every N]   killed at each Nth system call that sends, writes or renames: the next `up`
                                 converges, the next `down` leaves what was before
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree

import mesh
from mesh import LIMIT, NODES, at_once, check, delete_rule, forwarded, judged, ok, on, planned, same, scratch
from ring import Monitor

PROGRAM = "/opt/dsv41-mesh/bin/hairpin-mesh"
CALLS = 100  # system calls of `up` with nothing to do, beyond those of a process that does nothing
OURS = re.compile(r".*/run/dsv41-mesh.*\n?")


def state(node):
    """The state of a node without what this program remembers, which the scripts do not have."""
    return OURS.sub("", mesh.state(node))


def told(node, arguments, codes=(0,)):
    """Runs the program on a node; its report, and its exit code."""
    done = subprocess.run(
        ["ssh", node, f"{PROGRAM} {arguments} --json"], capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL
    )
    check(done.returncode in codes, f"{node}: {arguments}: exit code {done.returncode}, {codes} wanted\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout), done.returncode


def up(node, more="", codes=(0,)):
    return told(node, f"up {more}", codes)[0]


def down(node, more="", codes=(0,)):
    return told(node, f"down {more}", codes)[0]


def codes_of(findings):
    return [code for f in findings for code in [f["code"], *codes_of(f.get("consequences", []))]]


def verify(node, *codes):
    """What verify finds on a node: exactly these codes, beside remarks on the queue, which is not applied here."""
    report, code = told(node, "verify", (0, 1))
    (host,) = report["hosts"]
    found = sorted(set(c for c in codes_of(host["findings"]) if not c.startswith("hairpin-queue-")))
    check(found == sorted(codes), f"{node}: verify finds {found}, {sorted(codes)} wanted\n{json.dumps(host['findings'], indent=1)}")
    return code


def installed():
    """The plan on every node, where the program looks for it."""
    folder = scratch()
    ring = planned(folder)
    ring.folder = folder / "ring-mesh"
    text = (ring.folder / "plan.json").read_bytes()
    at_once(lambda node: on(node, "install -d -m 755 /etc/dsv41-mesh && cat >/etc/dsv41-mesh/plan.json", input=text), NODES)
    return ring


def verify_all(ring, codes=(0,)):
    with open(ring.folder / "plan.json") as plan:
        done = subprocess.run([mesh.PROGRAM, "verify", "--all", "--plan", "-", "--json"], stdin=plan, capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode in codes, f"verify --all: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def dropped_at(node, dev):
    """Packets that came in at a port and that the kernel dropped."""
    return json.loads(on(node, f"ip -s -j link show {dev}"))[0]["stats64"]["rx"]["dropped"]


# ---- works ---------------------------------------------------------------------------------------------


def works(reruns):
    ring = installed()
    before = at_once(state, NODES)
    at_once(mesh.up, NODES)
    scripts = at_once(state, NODES)
    # A mesh of which no plan is known: all of it is seen, and nothing is uninstalled.
    node = NODES[1]
    on(node, "mv /etc/dsv41-mesh/plan.json /etc/dsv41-mesh/plan.away; rm -f /run/dsv41-mesh/applied.json")
    unknown = mesh.state(node)
    found = codes_of(told(node, "uninstall", (1,))[0]["findings"])
    routes = [r for r in ring.plan["routes"] if r["host"] == node]
    check(found.count("left-over-route") == len(routes), f"{node}: uninstall without a plan: {found}")
    check(found.count("left-over-rule") == len(ring.rules_of(node)), f"{node}: uninstall without a plan: {found}")
    same_on(node, unknown, mesh.state(node), "an uninstall that is refused")
    on(node, "mv /etc/dsv41-mesh/plan.away /etc/dsv41-mesh/plan.json")
    at_once(lambda node: on(node, "bash /root/mesh-down.sh"), NODES)

    for node in NODES:
        dry = up(node, "--dry-run")
        check(dry["verdict"] == "work-to-do" and dry["changes"], f"{node}: --dry-run: {dry['verdict']}")
        check(up(node, "--check", (1,))["verdict"] == "work-to-do", f"{node}: --check")
    same(before, at_once(state, NODES), "--dry-run and --check")
    wanted = {node: [c["what"] for c in up(node, "--dry-run")["changes"]] for node in NODES}
    done = dict(zip(NODES, at_once(up, NODES)))
    for node in NODES:
        check([c["what"] for c in done[node]["changes"]] == wanted[node], f"{node}: up did other than --dry-run said")
    same(scripts, at_once(state, NODES), "up in place of the script")
    ok("up on four nodes: the same state as the scripts make, to the letter; --dry-run said exactly what was done")

    quiet = at_once(forwarded, NODES)
    at_once(ring.write, range(len(ring.diagonals)), workers=2)
    check(at_once(forwarded, NODES) == quiet, "IpForwDatagrams rose: a kernel forwarded packets")
    ok("RDMA over all eight diagonals, and no kernel forwards")

    for node in NODES:
        check(verify(node) == 0, f"{node}: verify does not say 0")
    report = verify_all(ring)
    check([h["host"] for h in report["hosts"]] == ring.plan["hosts"] and report["in_sync"], "verify --all")
    other = json.dumps({**ring.plan}, indent=1).encode()
    on(NODES[1], "cat >/etc/dsv41-mesh/plan.json", input=other)
    found = {h["host"]: codes_of(h["findings"]) for h in verify_all(ring, (1,))["hosts"]}
    check([n for n in NODES if "plan-other-installed" in found[n]] == [NODES[1]], f"another plan on {NODES[1]}: {found}")
    on(NODES[1], "cat >/etc/dsv41-mesh/plan.json", input=(ring.folder / "plan.json").read_bytes())
    ok("verify of each and of all nodes; a node with another plan is named")

    up_state = at_once(state, NODES)

    def again(node):
        # With other work on the node's only processor.
        loop = (
            f"timeout 300 sh -c 'while :; do :; done' & busy=$!; trap 'kill $busy' EXIT; for i in $(seq {reruns}); do "
            f"said=$({PROGRAM} up 2>&1) && test \"$said\" = '{node}: nothing to do' || {{ echo \"run $i: $said\"; exit 1; }}; done"
        )
        done = subprocess.run(["ssh", node, loop], capture_output=True, text=True, timeout=LIMIT + 20 * reruns)
        check(done.returncode == 0, f"{node}: up again: {done.stdout}{done.stderr}")

    at_once(again, NODES)
    same(up_state, at_once(state, NODES), "up again")
    ok(f"up again, {reruns} times on each node under load: nothing to do")

    node = NODES[1]
    count = lambda words: int(on(node, f"strace -f -o /run/ring/calls {words} >/dev/null && grep -vc -e '^[0-9]* +++' /run/ring/calls"))
    calls = count(f"{PROGRAM} up") - count(f"{PROGRAM} --version")
    on(node, f"strace -f -o /run/ring/calls {PROGRAM} up >/dev/null")
    children = int(on(node, "grep -c -e 'execve(' -e 'fork(' -e 'clone' /run/ring/calls"))
    check(children == 1, f"up with nothing to do starts {children - 1} children or threads")
    check(calls <= CALLS, f"up with nothing to do: {calls} system calls beyond a process's own, {CALLS} at most wanted")
    ok(f"up with nothing to do: {calls} system calls beyond a process's own, no child")

    at_once(down, NODES)
    same(before, at_once(state, NODES), "down")
    at_once(lambda node: on(node, "test ! -e /run/dsv41-mesh"), NODES)
    check(all(d["verdict"] == "in-sync" for d in at_once(down, NODES)), "a second down has something to do")
    ok("down leaves no trace")

    # What one makes the other takes away.
    at_once(mesh.up, NODES)
    check(all(u["verdict"] == "in-sync" for u in at_once(up, NODES)), "up after the script has something to do")
    at_once(down, NODES)
    same(before, at_once(state, NODES), "down after the script's up")
    at_once(up, NODES)
    at_once(lambda node: on(node, "bash /root/mesh-down.sh"), NODES)
    same(before, at_once(state, NODES), "the script's down after up")
    at_once(lambda node: on(node, "rm -rf /run/dsv41-mesh"), NODES)
    ok("script and program take each other's work for their own")


# ---- demo ----------------------------------------------------------------------------------------------


def demo():
    ring = installed()
    print("\non each node: hairpin-mesh up          (the plan is in /etc/dsv41-mesh/plan.json)")
    for text in at_once(lambda node: on(node, f"{PROGRAM} up"), NODES):
        print(text.strip())
    print("\nhere: hairpin-mesh verify --all --plan ring-mesh/plan.json")
    with open(ring.folder / "plan.json") as plan:
        done = subprocess.run([mesh.PROGRAM, "verify", "--all", "--plan", "-"], stdin=plan, capture_output=True, text=True, timeout=LIMIT)
    print(done.stdout + done.stderr)
    check(done.returncode == 0, f"verify --all: exit code {done.returncode}")
    quiet = at_once(forwarded, NODES)

    def crosses(number):
        path = ring.diagonals[number]
        *_, rules = ring.ends(path)
        first = [ring.counted(rule) for rule in rules]
        ring.write(number)
        rise = ring.rises(rules, first, mesh.MESSAGES)
        ok(f"RDMA {path['from']} to {path['to']}, which no cable joins: the NIC of {path['via']} forwarded {rise[0]} there and {rise[1]} back")

    at_once(crosses, range(len(ring.diagonals)), workers=2)
    check(at_once(forwarded, NODES) == quiet, "IpForwDatagrams rose: a kernel forwarded packets")
    ok("IpForwDatagrams is where it was on every node: no kernel forwarded any of it")
    print("\non each node: hairpin-mesh down")
    for text in at_once(lambda node: on(node, f"{PROGRAM} down"), NODES):
        print(text.strip())


# ---- faults --------------------------------------------------------------------------------------------


class Node:
    """One node of the ring that is made wrong, and what its plan has."""

    def __init__(self, ring, name):
        self.ring, self.name = ring, name
        self.rules = ring.rules_of(name)
        self.routes = [r for r in ring.plan["routes"] if r["host"] == name]
        self.markers = [m["device"] for m in ring.plan["markers"] if m["host"] == name]

    def on(self, command, **options):
        return on(self.name, command, **options)

    def switch(self, dev, name, value):
        self.on(f"echo {value} >/sys/class/net/{dev}/fakehw/{name}")

    def refused(self, code, *words, more="", exit_code=1):
        """`up` refuses, changes nothing, and says these words."""
        before = state(self.name)
        report = up(self.name, more, (exit_code,))
        text = json.dumps([report["findings"], report["failures"], report["trouble"]])
        for word in words:
            check(word in text, f"{self.name}: up does not say {word!r}: {text}")
        if code:
            check(code in codes_of(report["findings"]), f"{self.name}: up finds {codes_of(report['findings'])}, {code} wanted")
        same_on(self.name, before, state(self.name), f"an up that is refused ({code or words})")
        return report

    def heals(self, count, more=""):
        report = up(self.name, more)
        check(len(report["changes"]) == count, f"{self.name}: up changed {[c['what'] for c in report['changes']]}, {count} wanted")
        check(verify(self.name) == 0, f"{self.name}: not healed")
        return report


def same_on(node, before, after, what):
    lines = [f"- {line}" for line in before.splitlines() if line not in after.splitlines()]
    lines += [f"+ {line}" for line in after.splitlines() if line not in before.splitlines()]
    check(before == after, f"{node}: {what} changed the state:\n" + "\n".join(lines))


def came_back(node, dev):
    """Waits for what a port that was re-initialised gets back by itself: its address and its RDMA device."""
    back = f"ip -4 -br addr show dev {dev} | grep -q 10. && rdma link | grep -q 'netdev {dev} '"
    on(node, f"for i in $(seq 300); do if {back}; then exit 0; fi; sleep 0.1; done; exit 1")


def faults():
    ring = installed()
    before = at_once(state, NODES)
    at_once(up, NODES)
    n = Node(ring, ring.diagonals[0]["via"])
    rule, route, marker = n.rules[0], n.routes[0], n.markers[0]
    dev = rule["dev"]
    place = f"dev {dev} ingress protocol 0x88b5 pref {rule['pref']} handle {rule['handle']} flower"
    right = state(n.name)

    # Each object missing, and wrong.
    n.on(f"tc filter del {place}")
    verify(n.name, "rule-missing")
    n.heals(1)
    n.on(f"ip route del {route['destination']}/32 proto 141")
    verify(n.name, "route-missing")
    n.heals(1)
    n.on(f"systemctl stop dsv41-mesh-marker@{marker}")
    verify(n.name, "marker-missing")
    n.heals(1)
    other = (
        f"tc filter replace {place} skip_sw src_mac 02:00:00:00:00:01 dst_mac {rule['dst_mac']} action pedit ex munge eth type set 0x0800 pipe "
        f"action pedit ex munge eth dst set {rule['set_dst_mac']} pipe action mirred egress redirect dev {rule['redirect']}"
    )
    n.on(other)
    verify(n.name, "rule-other")
    report = n.heals(1)
    check(report["changes"][0]["do"] == "replace-rule" and "remark" not in report["changes"][0], f"replaced with a gap: {report['changes']}")
    via = f"via {route['gateway']} dev {route['dev']}"
    n.on(f"ip route replace {route['destination']}/32 {via} src {route['src']} proto static")
    verify(n.name, "route-other")
    n.heals(1)
    same_on(n.name, right, state(n.name), "wrong and right again")
    ok("a rule, a route and a marker that are missing or wrong: verify names each, and up makes that one right")

    # In the way, and not ours: named, left alone, with the way out.
    n.on(f"ip route add {route['destination']}/32 {via} metric 7 proto static")
    n.refused("in-the-way", f"{route['destination']}/32", "metric 7", "ip route del")
    verify(n.name, "route-in-the-way")
    n.on(f"ip route del {route['destination']}/32 metric 7")
    n.on(f"tc filter add dev {dev} ingress protocol 0x88b5 pref {rule['pref']} handle 7 flower skip_hw src_mac 02:00:00:00:00:07 action drop")
    n.refused("in-the-way", "handle 0x7", "tc filter del")
    verify(n.name, "rule-in-the-way")
    n.on(f"tc filter del dev {dev} ingress protocol 0x88b5 pref {rule['pref']} handle 7 flower")
    down(n.name)
    n.on(f"tc qdisc add dev {dev} ingress")
    n.refused("in-the-way", "ingress", f"tc qdisc del dev {dev} ingress")
    n.on(f"tc qdisc del dev {dev} ingress")
    # A clsact that others made and use stays.
    n.on(f"tc qdisc add dev {dev} clsact && tc filter add dev {dev} egress protocol ip pref 1 flower dst_ip 192.0.2.1 action drop")
    foreign = state(n.name)
    up(n.name)
    down(n.name)
    same_on(n.name, foreign, state(n.name), "up and down beside a foreign clsact")
    n.on(f"tc qdisc del dev {dev} clsact")
    up(n.name)
    n.on(f"tc filter add dev {dev} egress protocol ip pref 1 flower dst_ip 192.0.2.1 action drop")
    check(down(n.name)["kept_clsact"] == [dev], "our clsact with a filter of others does not stay")
    n.on(f"tc filter del dev {dev} egress pref 1")
    up(n.name)
    down(n.name)
    same_on(n.name, before[NODES.index(n.name)], state(n.name), "down at last")
    ok("what is not ours is named and never touched; a clsact that others use stays")

    # The NIC refuses: taken back, with the kernel's own words.
    for nth in range(1, len(n.rules) + 1):
        port = n.rules[nth - 1]["dev"]
        n.switch(port, "refuse_nth", 1)
        report = n.refused(None, "fakehw", exit_code=3)
        check(report["verdict"] == "restored", f"{n.name}: {report}")
        n.switch(port, "refuse_nth", 0)
    n.on(f"ethtool -K {dev} hw-tc-offload off")
    n.refused("port-tc-offload", f"ethtool -K {dev} hw-tc-offload on")
    verify(n.name, *sorted({"port-tc-offload", "clsact-missing", "rule-missing", "route-missing", "marker-missing"}))
    n.on(f"ethtool -K {dev} hw-tc-offload on")
    # A unit that cannot start: the rules are taken back.
    n.on(f"mkdir -p /run/systemd/system/dsv41-mesh-marker@{marker}.service.d && "
         f"printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\nRestart=no\\n' >/run/systemd/system/dsv41-mesh-marker@{marker}.service.d/no.conf && systemctl daemon-reload")
    report = n.refused(None, f"dsv41-mesh-marker@{marker}.service", exit_code=3)
    n.on(f"rm -r /run/systemd/system/dsv41-mesh-marker@{marker}.service.d && systemctl daemon-reload && systemctl reset-failed")
    ok("the NIC refuses a rule, offload is off, a marker does not start: the host is as it was, and the kernel's words are told")

    # What waiting cures, and what it does not.
    up(n.name)
    n.on(f"ip link set {dev} down")
    verify(n.name, *sorted(["port-link", "port-rdma-state", "route-linkdown"] if route["dev"] == dev else ["port-link", "port-rdma-state"]))
    n.on(f"ip link set {dev} up")
    down(n.name)
    n.on(f"ip link set {dev} down")
    n.refused("port-link", more="--wait 1", exit_code=75)
    n.on(f"(sleep 3; ip link set {dev} up) >/dev/null 2>&1 &")
    up(n.name, "--wait 60")
    n.on(f"ip link set {dev} mtu 1500")
    verify(n.name, "port-mtu", "port-rdma-mtu")
    down(n.name)
    n.refused("port-mtu", "9000", more="--wait 30")
    n.on(f"ip link set {dev} mtu 9000")
    up(n.name)
    ok("a link that is down is waited for, an MTU that is wrong is not")

    # Another host, another's file.
    elsewhere = next(node for node in NODES if node != n.name)
    n.refused(None, f"this is not {elsewhere}", more=f"--host {elsewhere}", exit_code=2)
    n.on("chmod 666 /etc/dsv41-mesh/plan.json")
    n.refused(None, "is not root's alone", exit_code=2)
    n.on("chmod 644 /etc/dsv41-mesh/plan.json")
    ok("another host's name and a plan that others may write: nothing is done")

    # Two at once.
    n.on(f"ip route del {route['destination']}/32 proto 141")
    text = n.on(f"for i in 1 2 3 4; do {PROGRAM} up --wait 60 >/run/ring/up-$i 2>&1 & done; wait; cat /run/ring/up-*")
    check(text.count("1 changed") == 1 and text.count("nothing to do") == 3, f"four up at once: {text}")
    ok("four up at once: one does the work, the others wait for it")

    # Open queue pairs: what adds is done, what disturbs is not.
    path = ring.diagonals[0]
    # A server that has opened its queue pair and waits for somebody.
    device = ring.ports[n.name, dev]["rdma"]
    n.on(f"setsid ibv_rc_pingpong -d {device} -g {ring.plan['gid_index']} -p 20555 >/dev/null 2>&1 </dev/null & disown")
    n.on("for i in $(seq 300); do rdma resource show qp | grep -q ibv_rc_pingpong && exit 0; sleep 0.1; done; exit 1")
    n.on(f"ip route del {route['destination']}/32 proto 141")
    n.on(other)
    report = up(n.name, "", (1,))
    check([c["do"] for c in report["changes"]] == ["add-route"] and [c["do"] for c in report["not_done"]] == ["replace-rule"], f"{report}")
    check("ibv_rc_pingpong" in json.dumps(report["findings"]), f"the owner is not named: {report['findings']}")
    check(down(n.name, "", (1,))["verdict"] == "refused", "down goes on while queue pairs are open")
    check(up(n.name, "--force")["verdict"] == "applied", "up --force")
    check(down(n.name, "--force")["verdict"] == "removed", "down --force")
    n.on("pkill ibv_rc_pingpong")
    up(n.name)
    ok("open queue pairs: their owner is named, only what is missing is added; --force goes on")

    # A rule that the NIC forgot, and one that stopped: the packets end in the kernel.
    _, _, (there, _) = ring.ends(path)
    for switch, value, back in (("forget", 1, None), ("stop", 1, 0)):
        down(path["via"])
        up(path["via"])
        before_it = dropped_at(path["via"], there["dev"])
        on(path["via"], f"echo {value} >/sys/class/net/{there['dev']}/fakehw/{switch}")
        for limit in (10, 40):
            ring.write(0, fails=True, limit=limit)
            if dropped_at(path["via"], there["dev"]) > before_it:
                break
        verify(path["via"], "rule-takes-nothing")
        if back is not None:
            on(path["via"], f"echo {back} >/sys/class/net/{there['dev']}/fakehw/{switch}")
    down(path["via"])
    up(path["via"])
    ring.write(0)
    ok("a rule that the NIC lost or does not obey: verify tells of the packets that nothing takes")

    # A re-initialisation: of the target of a rule, then `up` makes everything right.
    far = rule["redirect"]
    handle = n.on(f"basename $(readlink /sys/class/net/{far}/device)").strip()
    n.on(f"devlink dev reload pci/{handle} action driver_reinit >/dev/null")
    came_back(n.name, far)
    report, _ = told(n.name, "verify", (1,))
    found = codes_of(report["hosts"][0]["findings"])
    check("rule-dead-egress" in found and "port-tc-offload" in found, f"after a re-initialisation verify finds {found}")
    n.refused("port-tc-offload", more="--wait 30")
    n.on(f"ethtool -K {far} hw-tc-offload on")
    up(n.name, "--wait 60")
    check(verify(n.name) == 0, f"{n.name}: not healed")
    ring.write(0)
    ok("after a re-initialisation: the dead rule is named, and up makes the port, its rules and markers right")

    at_once(down, NODES)
    after = at_once(state, NODES)
    # The re-initialised port is a new device.
    for node, one, now in zip(NODES, before, after):
        if node != n.name:
            same_on(node, one, now, "down")
    ok("down leaves no trace")


# ---- marker --------------------------------------------------------------------------------------------

RESIDENT = 4096  # KiB of a marker at rest, at most, libraries included
STAND_IN = "LD_PRELOAD=/usr/local/lib/mlx5-shim/libmlx5.so.1"


def marker():
    ring = installed()
    before = at_once(state, NODES)
    at_once(up, NODES)
    path = ring.diagonals[0]
    n = Node(ring, path["from"])
    port, _, _ = ring.ends(path)
    device = port["rdma"]
    unit = f"dsv41-mesh-marker@{device}.service"

    def pid():
        return int(n.on(f"systemctl show -P MainPID {unit}"))

    def status(key):
        return n.on(f"sed -n 's/^{key}:[[:space:]]*//p' /proc/{pid()}/status").strip()

    def back(since):
        n.on(f"for i in $(seq 300); do systemctl -q is-active {unit} && test $(systemctl show -P MainPID {unit}) != {since} && exit 0; sleep 0.1; done; systemctl status {unit}; exit 1")

    def rules():
        return n.on(f"cat /sys/class/net/{port['netdev']}/fakehw/mark").split()[0]

    def by_hand(words, code, preload=STAND_IN, more=""):
        done = subprocess.run(
            ["ssh", n.name, f"{preload} timeout 30 {PROGRAM} marker --device {device} {more}"],
            capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL,
        )
        check(done.returncode == code, f"marker by hand: exit code {done.returncode}, {code} wanted\n{done.stdout}{done.stderr}")
        check(words in done.stderr, f"marker by hand says {done.stderr!r}, {words!r} wanted")

    check(rules() == "1", f"{device}: {rules()} markers in force")
    text = n.on(f"systemctl show -P StatusText {unit}").strip()
    check(text == f"tags what leaves {device} with UDP source port 65535 with EtherType 0x88b5", f"{unit}: status {text!r}")
    calls = status("voluntary_ctxt_switches")
    n.on("sleep 5")
    check(status("voluntary_ctxt_switches") == calls, "a marker at rest was woken")
    resident = int(status("VmRSS").split()[0])
    check(resident < RESIDENT, f"a marker at rest has {resident} KiB, {RESIDENT} at most wanted")
    check(status("CapEff") == status("CapPrm") == "0" * 16, "a marker at rest has capabilities")
    ok(f"at rest: not woken in 5 s, {resident} KiB resident, no capability")

    by_hand(f"{device} has a marker already: process {pid()}", 2)
    by_hand("is not a device of mlx5", 2, preload="")
    n.on(f"systemctl stop {unit}")
    check(rules() == "0", "a marker that was stopped left its rule")
    text = n.on(f"journalctl -o cat -u {unit} -n 3")
    check("FAIL" not in text, f"a marker that was stopped says {text}")
    for errno, words in ((95, "flow_steering_mode"), (12, "no room"), (17, "such a rule already")):
        n.switch(port["netdev"], "marker_errno", errno)
        by_hand(words, 2)
    n.refused(None, unit, more="", exit_code=3)
    n.switch(port["netdev"], "marker_errno", 0)
    n.heals(1)
    ok("a second marker, one without mlx5, one that the NIC refuses: each has its reason; stopped, it leaves no rule")

    for signal in ("KILL", "TERM", "INT"):
        was = pid()
        n.on(f"kill -{signal} {was}")
        back(was)
    check(rules() == "1" and verify(n.name) == 0, "not healed after signals")
    ring.write(0)
    ok("killed, or told to stop by another than systemd: it is back, and RDMA over the diagonal works")

    was = pid()
    handle = n.on(f"basename $(readlink /sys/class/net/{port['netdev']}/device)").strip()
    n.on(f"devlink dev reload pci/{handle} action driver_reinit >/dev/null")
    back(was)
    text = n.on(f"journalctl -o cat -u {unit} _PID={was}")
    check(f"{device} has no rule any more" in text, f"the marker of before says {text!r}")
    came_back(n.name, port["netdev"])
    n.on(f"ethtool -K {port['netdev']} hw-tc-offload on")
    up(n.name, "--wait 60")
    check(rules() == "1" and verify(n.name) == 0, "not healed after a re-initialisation")
    ring.write(0)
    ok("its device is initialised anew: it ends, and comes back by itself")

    at_once(down, NODES)
    for node, one, now in zip(NODES, before, at_once(state, NODES)):
        if node != n.name:  # the re-initialised port is a new device
            same_on(node, one, now, "down")
    check(rules() == "0", "down left a marker")
    ok("down leaves no trace")


# ---- probe ---------------------------------------------------------------------------------------------


def probe_report(ring, *arguments, codes=(0,)):
    words = [mesh.PROGRAM, "probe", "--plan", str(ring.folder / "plan.json"), "--iterations", "20", "--warm-up", "2", "--json", *arguments]
    done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT * 4, stdin=subprocess.DEVNULL)
    check(done.returncode in codes, f"{' '.join(words[1:])}: exit code {done.returncode}, {codes} wanted\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)


def probed(ring, *arguments, codes=(0,)):
    """What the probe says of the paths that are asked for, by their names."""
    return {path["path"]: path for path in probe_report(ring, *arguments, codes=codes)["paths"]}


def swept(ring, path, *sizes, codes):
    """How far a sweep went over a diagonal, and the cap that it found."""
    words = [word for size in sizes for word in ("--size", str(size))]
    report = probe_report(ring, "--sweep", "--path", path["name"], *words, "--limit", "20", codes=codes)
    (diagonal,) = report["sweep"]["diagonals"]
    check((diagonal["largest_clean"] or 0) == (report["sweep"]["size_cap_bytes"] or 0), f"sweep: {report['sweep']}")
    return diagonal, report["sweep"]


def by_hand(path, source, target, *arguments, codes=(0,), token=None, iterations=20, warm_up=2):
    """Two ends that are started by hand: what the client says, and how the server ended."""
    words = f"{PROGRAM} probe server --json --wait 60 --device {target['rdma']}"
    # The nodes know each other's management address by name.
    address = on(path["from"], f"getent hosts {path['to']}").split()[0]
    server = subprocess.Popen(["ssh", path["to"], f"{words} --listen {address}:0"], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    listening = json.loads(server.stdout.readline())
    words = f"{PROGRAM} probe client {listening['listen']} --device {source['rdma']} --iterations {iterations} --warm-up {warm_up} --json"
    words = f"{words} {' '.join(arguments)}"
    done = subprocess.run(["ssh", path["from"], words], input=(token or listening["token"]) + "\n", capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode in codes, f"{words}: exit code {done.returncode}, {codes} wanted\n{done.stdout}{done.stderr}")
    if token:
        server.kill()
        server.wait()
        on(path["to"], "pkill -f '[p]robe server' || true")
        return json.loads(done.stdout), None
    ended, _ = server.communicate(timeout=LIMIT)
    return json.loads(done.stdout), (server.returncode, json.loads(ended)["event"])


def underway(ring, path):
    """A probe of one path that would take as long as it may, once its queue pairs are open at both ends."""
    words = [mesh.PROGRAM, "probe", "--plan", str(ring.folder / "plan.json"), "--path", path["name"], "--size", "64"]
    words += ["--no-warmup", "--iterations", "100000", "--limit", "30", "--json"]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    for host in (path["from"], path["to"]):
        on(host, "for i in $(seq 300); do rdma resource show qp | grep -q hairpin-mesh && exit 0; sleep 0.1; done; exit 1")
    return running


def nothing_left(path):
    """No end of a probe is left on the path, and none of its queue pairs."""
    for host in (path["from"], path["to"]):
        gone = "! pgrep -f '[p]robe' >/dev/null && ! rdma resource show qp | grep -q hairpin-mesh"
        on(host, f"for i in $(seq 100); do if {gone}; then exit 0; fi; sleep 0.1; done; pgrep -af '[p]robe'; exit 1")


def broken_off(ring):
    """A probe that is ended, and one whose function goes away."""
    path = next(path for path in ring.plan["paths"] if path["kind"] == "direct")
    running = underway(ring, path)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=LIMIT)
    nothing_left(path)
    ok("Ctrl-C in a run: no end and no queue pair is left on either node")
    running = underway(ring, path)
    (port,) = [p for p in ring.plan["ports"] if p["host"] == path["from"] and p["rdma"] == path["device"]]
    handle = on(path["from"], f"basename $(readlink /sys/class/net/{port['netdev']}/device)").strip()
    # Soft-RoCE's port goes when nobody has its device open any more.
    reload = ["ssh", path["from"], f"devlink dev reload pci/{handle} action driver_reinit >/dev/null"]
    with subprocess.Popen(reload, stdin=subprocess.DEVNULL) as reloading:
        said, _ = running.communicate(timeout=LIMIT)
        check(reloading.wait(timeout=LIMIT) == 0, "the function was not re-initialised")
    (found,) = json.loads(said)["paths"]
    (size,) = found["sizes"]
    reasons = " ".join(size["reasons"])
    check(running.returncode == 1 and size["verdict"] == "failed" and path["from"] in reasons, f"exit code {running.returncode}: {size['verdict']} for {reasons!r}")
    nothing_left(path)
    came_back(path["from"], port["netdev"])
    # What follows finds the port as it was.
    on(path["from"], f"ethtool -K {port['netdev']} hw-tc-offload on")
    ok(f"a function that goes away in a run: failed ({reasons})")


def probe():
    ring = installed()
    before = at_once(state, NODES)
    at_once(up, NODES)
    quiet = at_once(forwarded, NODES)
    drawn = ring.folder / "probe.svg"
    report = probe_report(ring, "--size", "1024", "--svg", str(drawn))
    picture = xml.etree.ElementTree.parse(drawn)
    labels = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
    check(sum(" d0 " in label or " d1 " in label for label in labels) == len(ring.plan["paths"]), f"probe.svg: {labels}")
    devices = {(port["host"], port["rdma"]) for port in ring.plan["ports"]}
    told = {(row["host"], row["device"]) for row in report["environment"] if row["kernel"] and row["program"] and row["link"]}
    check(told == devices, f"environment: {report['environment']}")
    found = {path["path"]: path for path in report["paths"]}
    check(len(found) == len(ring.plan["paths"]), f"{len(found)} paths of {len(ring.plan['paths'])}")
    wrong = {name: path["sizes"] for name, path in found.items() if path["verdict"] != "hardware"}
    check(not wrong, f"not proven: {json.dumps(wrong, indent=1)}")
    for name, path in found.items():
        (size,) = path["sizes"]
        check(size["figures"]["n"] == 19 and 0 < size["figures"]["min"] <= size["figures"]["p99"], f"{name}: {size['figures']}")
        check(path["kind"] == "direct" or None not in size["direct"]["p50"], f"{name}: no direct neighbour")
        check(sum(size["histogram"]["counts"]) + size["histogram"]["beyond"] == 19, f"{name}: {size['histogram']}")
        check(all(end["gid_index"] == ring.plan["gid_index"] for end in size["ends"]) and size["path_mtu"] == 4096, f"{name}: {size['ends']}")
        # (An answer may be late on an emulated machine, and is asked for again.)
        check(path["kind"] == "direct" or not size["counters"]["drops"], f"{name}: {size}")
        check(all("sent again" in reason for reason in size["reasons"]), f"{name}: {size['reasons']}")
    check(at_once(forwarded, NODES) == quiet, "IpForwDatagrams rose: a kernel forwarded packets")
    ok("all direct paths and diagonals: carried by NICs alone")

    path = ring.diagonals[0]
    source, target, (there, back) = ring.ends(path)
    one = ["--path", path["name"], "--size", "64", "--limit", "4"]
    report = probe_report(ring, *one, "--svg", "/nowhere/probe.svg", codes=(2,))
    check(report["proven"] and report["paths"] and "/nowhere" in report["trouble"][0], f"a picture that cannot be written: {report}")

    def verdict(wanted, *words, codes=(1,)):
        (size,) = probed(ring, *one, codes=codes)[path["name"]]["sizes"]
        said = " ".join(size["reasons"])
        check(size["verdict"] == wanted and all(word in said for word in words), f"{size['verdict']} for {said!r}, {wanted} for {words} wanted\n{size['counters']}")

    def switch(rule, name, value):
        on(path["via"], f"echo {value} >/sys/class/net/{rule['dev']}/fakehw/{name}")

    verdict("hardware", codes=(0,))
    for host, port in ((path["from"], source), (path["to"], target)):
        unit = f"dsv41-mesh-marker@{port['rdma']}.service"
        on(host, f"systemctl stop {unit}")
        verdict("software-forwarded", f"the marker of {host} is off")
        on(host, f"systemctl start {unit}")
    verdict("hardware", codes=(0,))
    ok("a marker that is off at either end: software-forwarded, and whose it is")
    for rule, of in ((there, path["from"]), (back, path["to"])):
        switch(rule, "stop", 1)
        verdict("failed", f"no packet of {of} to")
        switch(rule, "stop", 0)
    switch(there, "forget", 1)
    verdict("failed", f"no packet of {path['from']} to")
    down(path["via"])
    up(path["via"])
    switch(there, "drop_nth", 7)
    (size,) = probed(ring, *one, codes=(0, 1))[path["name"]]["sizes"]
    check(size["counters"]["errors"], f"every 7th packet is lost, and no counter of errors rose: {size}")
    lost = [drop[:3] for drop in size["counters"]["drops"]]
    check(lost == [[path["via"], there["dev"], "rx_out_of_buffer"]], f"every 7th packet is lost at {there['dev']}: {size}")
    check(any("hairpin queue" in reason for reason in size["reasons"]), f"lost packets are not told of: {size['reasons']}")
    switch(there, "drop_nth", 0)
    verdict("hardware", codes=(0,))
    ok("rules that do not take, in either direction or at all: failed, and where packets ended; lost ones are counted")
    on(path["from"], "ip route del {0}/32".format(target["ipv4"].split("/")[0]))
    verdict("failed", "RTR")
    up(path["from"])
    verdict("hardware", codes=(0,))
    ok("no route: failed on the way to RTR")
    diagonal, sweep = swept(ring, path, 65536, 245760, codes=(1,))
    check((diagonal["largest_clean"], diagonal["first_loss"]) == (65536, 245760), f"queue 1024: {diagonal}")
    check("SGLANG_ROCE_MAX_SIZE=65536" in sweep["env"], f"sweep: {sweep}")
    ok("a sweep: a queue of 1024 carries 64 KB and loses of 240 KB")
    report, (code, event) = by_hand(path, source, target, "--size", "64", "--flow-label", str(path["flow_label"]))
    (size,) = report["sizes"]
    check(report["arrived"] and size["verdict"] == "not-proven" and size["figures"]["n"] == 19, f"by hand: {report}")
    check((code, event) == (0, "served"), f"the server: {event}, exit code {code}")
    report, _ = by_hand(path, source, target, codes=(2,), token="0" * 32)
    check("token" in report["trouble"][0], f"another token: {report}")
    (other,) = [p["ipv4"].split("/")[0] for p in ring.plan["ports"] if p["host"] == path["to"] and p["netdev"] != target["netdev"]][:1]
    words = f"{PROGRAM} probe server --json --wait 1 --device {target['rdma']} --listen {other}:0"
    done = subprocess.run(["ssh", path["to"], words], capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 2 and "is an address of roce" in done.stdout, f"a server on the fabric: {done.returncode}\n{done.stdout}{done.stderr}")
    ok("two ends by hand over a diagonal; with another token nothing")
    owner = pingpong(path["to"], target["rdma"], ring.plan["gid_index"])
    report = probe_report(ring, "--sweep", "--path", path["name"], codes=(2,))
    check(any("ibv_rc_pingpong" in row for row in report["others"]) and "nothing was sent" in report["trouble"][0], f"sweep beside others: {report}")
    (found,) = probed(ring, "--path", path["name"]).values()
    check([size["size"] for size in found["sizes"]] == [2, 4096], f"beside others: {[size['size'] for size in found['sizes']]}")
    on(path["to"], f"kill {owner}")
    ok("beside somebody's queue pairs: no sweep, and small messages alone")
    for host in (path["from"], path["to"]):
        check(not on(host, "pgrep -f '[p]robe' || true").strip(), f"{host}: an end was left behind")
    at_once(down, NODES)
    same(before, at_once(state, NODES), "probes")
    ok("nothing is left behind")
    # After all else: the re-initialised port is a new device.
    broken_off(ring)


# ---- doctor --------------------------------------------------------------------------------------------


def doctor():
    """Faults made on live nodes: the first cause that the doctor names, and silence once it is cured."""
    ring = installed()
    folder = ring.folder.parent

    def told_of(*arguments):
        words = [mesh.PROGRAM, "doctor", "--json", *arguments]
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT * 2, stdin=subprocess.DEVNULL)
        check(done.returncode in (0, 1), f"doctor: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def causes(done):
        # The driver's default is what these nodes start with, and tests before this one may have re-initialised
        # functions behind the program's back.
        findings = json.loads(done.stdout)["findings"]
        return [f for f in findings if f["code"] not in ("hairpin-queue-size", "hairpin-queue-unknown")]

    def finds(what, code, host):
        done = told_of(*NODES)
        found = causes(done)
        said = json.dumps(found, indent=1)
        check(done.returncode == 1 and found and found[0]["code"] == code, f"{what}: {code} first wanted\n{said}")
        check(host in (found[0]["host"] or found[0]["found"]), f"{what}: {host} wanted\n{said}")
        others = [f["code"] for f in found[1:] if f["severity"] == "problem"]
        check(not others, f"{what}: one cause wanted, and there is {others}\n{said}")
        ok(f"{what}: {code} alone, with {len(codes_of(found)) - 1} that follow")

    def silent(what):
        found = causes(told_of(*NODES))
        check(not found, f"{what}: nothing wanted\n{json.dumps(found, indent=1)}")

    # Nor has anybody asked again for a neighbour that was away in a test before.
    for node in NODES:
        on(node, "ip neigh flush nud failed")
    silent("a ring without a mesh")
    at_once(up, NODES)
    silent("a mesh that is up")
    facts = folder / "facts"
    words = [mesh.PROGRAM, "inventory", "--out", str(facts), *(word for node in NODES for word in ("--host", node))]
    subprocess.run(words, check=True, capture_output=True, timeout=LIMIT * 2)
    once = told_of("--inventory", str(facts), *NODES)
    check(once.stdout == told_of("--inventory", str(facts), *NODES).stdout and not causes(once), "captured facts are judged in another way")
    ok("a healthy ring: nothing, live and from its captured facts")

    asked = told_of("--wire", *NODES)
    cables = json.loads(asked.stdout)["cabling"]["cables"]
    check(not causes(asked) and len(cables) == len(NODES) and all(c["shown_by"] == "wire" for c in cables), f"the wire shows {cables}")
    ok("the wire, asked on every port: every cable")

    path = ring.diagonals[0]
    source, target, (there, _) = ring.ends(path)
    node = path["from"]
    on(node, "ip route del {0}/32".format(target["ipv4"].split("/")[0]))
    finds("a route is gone", "route-missing", node)
    up(node)
    delete_rule(there)
    finds("a rule is gone", "rule-missing", path["via"])
    up(path["via"])
    unit = f"dsv41-mesh-marker@{source['rdma']}.service"
    on(node, f"systemctl stop {unit}")
    finds("a marker is stopped", "marker-missing", node)
    on(node, f"systemctl start {unit}")
    dev = source["netdev"]
    on(node, f"ip link set {dev} mtu 1500")
    finds("the MTU of one end is 1500", "port-mtu", node)
    on(node, f"ip link set {dev} mtu 9000")
    # Offload of a port whose rules are in the NIC cannot be turned off.
    ruled = [rule["dev"] for rule in ring.plan["rules"] if rule["host"] == node]
    free = next(port["netdev"] for port in ring.plan["ports"] if port["host"] == node and port["netdev"] not in ruled)
    on(node, f"ethtool -K {free} hw-tc-offload off")
    finds("offload is off", "port-tc-offload", node)
    on(node, f"ethtool -K {free} hw-tc-offload on")
    far = next(port for port in ring.plan["ports"] if port["host"] == source["peer_host"] and port["netdev"] == source["peer_netdev"])
    on(node, f"ip neigh replace {far['ipv4'].split('/')[0]} lladdr 02:00:00:00:00:77 dev {dev} nud reachable")
    finds("a neighbour has another MAC", "neighbour-mac", node)
    on(node, f"ip neigh del {far['ipv4'].split('/')[0]} dev {dev}")
    second = [port for port in ring.plan["ports"] if port["host"] == node and port["domain"] == 1]
    for port in second:
        on(node, f"ip -4 addr flush dev {port['netdev']}")
    finds("a host's second plane has no address", "plane-unaddressed", node)
    for port in second:
        on(node, f"ip addr add {port['ipv4']} dev {port['netdev']}")
    at_once(up, NODES)
    silent("everything is cured")
    at_once(down, NODES)
    ok("cured, and silent again")


# ---- queue ---------------------------------------------------------------------------------------------


def loaded(node, dev):
    """The hairpin queue size that the imitated NIC works with, which a real one tells nobody."""
    return int(on(node, f"cat /sys/class/net/{dev}/fakehw/loaded_queue_size"))


def does(report):
    return [change["do"] for change in report["changes"]]


def main_pids(node, markers):
    return {marker: on(node, f"systemctl show -P MainPID dsv41-mesh-marker@{marker}").strip() for marker in markers}


def pingpong(node, device, gid_index):
    """A process with an open queue pair, which waits for somebody; its number."""
    on(node, f"setsid ibv_rc_pingpong -d {device} -g {gid_index} -p 20556 >/dev/null 2>&1 </dev/null & disown")
    on(node, "for i in $(seq 300); do rdma resource show qp | grep -q ibv_rc_pingpong && exit 0; sleep 0.1; done; exit 1")
    return on(node, "pidof ibv_rc_pingpong").strip()


def queue():
    ring = installed()
    at_once(up, NODES)
    n = Node(ring, ring.diagonals[0]["via"])
    wanted = ring.plan["hairpin_queue_wanted"]
    check(wanted == 8192, f"the plan wants {wanted}")
    ports = [p for p in ring.plan["ports"] if p["host"] == n.name]
    devs = [p["netdev"] for p in ports]
    size = lambda node=n.name, over=devs: [loaded(node, dev) for dev in over]
    loads = lambda words, codes=(0,): told(n.name, f"hairpin-queue {words}", codes)[0]

    shown = loads("")
    check([f["netdev"] for f in shown["functions"]] == devs and shown["verdict"] == "shown", f"shown: {shown}")
    for f in shown["functions"]:
        # Nobody recorded what an earlier test loaded here.
        state_wanted = "unknown" if f["reload_count"] else "applied"
        found = f["hairpin_queue_size"], f["hairpin_queue_state"], f["planned"]
        check(found == (1024, state_wanted, True), f"{n.name} {f['netdev']}: {found}, {state_wanted} wanted")
    ok("hairpin-queue shows 1024 on the four functions of the plan")

    ring.write(0)
    before = state(n.name)
    dry = loads("8192 --dry-run")
    check(does(dry).count("reinitialise") == 4 and dry["verdict"] == "work-to-do", f"--dry-run: {does(dry)}")
    check(loads("8192 --check", (1,))["verdict"] == "work-to-do", "--check")
    for bad in ("5000", "512", "16384", "x"):
        on(n.name, f"{PROGRAM} hairpin-queue {bad}", fails=True)
    same_on(n.name, before, state(n.name), "--dry-run, --check and sizes that there are none of")
    ok("--dry-run and --check say what would be done, and sizes that are none are refused: nothing changes")

    # Refused: the default route, open queue pairs, what is no port of the plan.
    peer = next(p for p in ring.plan["ports"] if (p["peer_host"], p["peer_netdev"]) == (n.name, devs[0]))
    n.on(f"ip route add default via {peer['ipv4'].split('/')[0]} dev {devs[0]} metric 9999")
    report = loads("8192", (1,))
    check(codes_of(report["findings"]) == ["default-route"] and not report["changes"], f"default route: {report}")
    n.on(f"ip route del default dev {devs[0]} metric 9999")
    # As good as one: a half, and one over what is made of the port.
    n.on(f"ip route add 128.0.0.0/1 dev {devs[0]} metric 9999")
    report = loads("8192", (1,))
    check("128.0.0.0/1" in json.dumps(report["findings"]) and not report["changes"], f"half of the default route: {report}")
    n.on(f"ip route del 128.0.0.0/1 dev {devs[0]} metric 9999")
    n.on(f"ip link add link {devs[0]} name above0 type macvlan && ip link set above0 up && ip route add default dev above0 metric 9999")
    report = loads("8192", (1,))
    check(codes_of(report["findings"]) == ["default-route"] and "above0" in json.dumps(report["findings"]), f"over a macvlan: {report}")
    n.on("ip link del above0")
    device = ports[0]["rdma"]
    pid = pingpong(n.name, device, ring.plan["gid_index"])
    report = loads("8192", (1,))
    text = json.dumps(report["findings"])
    check(codes_of(report["findings"]) == ["queue-pairs-open"] and pid in text and "ibv_rc_pingpong" in text, f"open queue pair: {text}")
    check(report["verdict"] == "refused" and not report["changes"], f"open queue pair: {report}")
    n.on(f"kill {pid} && while pidof -q ibv_rc_pingpong; do sleep 0.1; done")
    n.on("mv /etc/dsv41-mesh/plan.json /etc/dsv41-mesh/plan.away")
    applied = n.on("cat /run/dsv41-mesh/applied.json")
    n.on("rm /run/dsv41-mesh/applied.json")
    report = loads(f"8192 --device {device}", (1,))
    check(codes_of(report["findings"]) == ["not-in-plan"], f"without a plan: {report['findings']}")
    n.on("cat >/run/dsv41-mesh/applied.json && mv /etc/dsv41-mesh/plan.away /etc/dsv41-mesh/plan.json", input=applied.encode())
    same_on(n.name, before, state(n.name), "what was refused")
    ok("refused: the default route, an open queue pair with its process and command, a function outside the plan")

    # Ended between the setting and the re-initialisation: whoever finishes it says that the size waits.
    killed = f"strace -f -o /dev/null -e trace=renameat -e inject=renameat:signal=KILL:when=3 {PROGRAM} hairpin-queue 8192 --device {device}"
    n.on(f"{killed} >/dev/null 2>&1; test $? = 137")
    report = up(n.name)
    check(codes_of(report["findings"]) == ["hairpin-queue-pending"], f"a size that waits: {report}")
    check(size() == [1024] * 4 and "reinit.json" not in n.on("ls /run/dsv41-mesh"), f"a size that waits: {size()}")
    loads(f"1024 --device {device}")
    # A note of what does not come back.
    note = {
        "schema": "hairpin-mesh.reinit/v1", "netdev": devs[0], "rdma": device, "pci": ports[0]["pci"], "reload_count": 0, "index": 1, "up": True,
        "mtu": 1234, "addresses": [], "active": True, "gid": None, "offload": True, "steering": None, "objects": [],
    }
    write = lambda text: n.on("cat >/run/dsv41-mesh/reinit.json", input=text.encode())
    write(json.dumps(note))
    report = loads("--forget")
    check(report["verdict"] == "forgotten" and "MTU 1234" in json.dumps(report["forgotten"]), f"--forget: {report}")
    write(json.dumps(note))
    report = up(n.name, "--force")
    check(codes_of(report["findings"]) == ["hairpin-queue-given-up"] and "1234" in json.dumps(report["findings"]), f"up --force: {report}")
    check(up(n.name)["verdict"] == "in-sync" and verify(n.name) == 0, "after a note was given up")
    write("{")
    up(n.name, "", (2,))
    done = subprocess.run(["ssh", n.name, f"{PROGRAM} down"], capture_output=True, text=True, timeout=LIMIT)
    check(done.returncode == 0 and "reinit.json" in done.stderr, f"down beside a note that cannot be read: {done}")
    n.on("rm -f /run/dsv41-mesh/reinit.json")
    up(n.name)
    ring.write(0)
    ok("a size that was set and waits is told; a note is given up, forgotten, or stands in the way of up alone, each with what it says")

    # One function, of the domain that this node does not forward on.
    forwards = {rule["dev"] for rule in n.rules} | {rule["redirect"] for rule in n.rules}
    alone = next(p for p in ports if p["netdev"] not in forwards)
    time.sleep(2)  # two refreshes of the counters
    rules, pids = ring.read_rules(n.name), main_pids(n.name, n.markers)
    check(all(mesh.in_hardware(rule) > 0 for rule in rules.values()), "the rules have counted nothing")
    report = loads(f"8192 --device {alone['rdma']}")
    check(report["verdict"] == "applied" and does(report)[:3] == ["set-parameter", "reinitialise", "keep-offload"], f"one function: {report}")
    check(size() == [8192 if dev == alone["netdev"] else 1024 for dev in devs], f"loaded: {size()}")
    counted = lambda found: {place: mesh.in_hardware(rule) for place, rule in found.items()}
    check(counted(ring.read_rules(n.name)) == counted(rules), "rules of other functions began to count anew")
    moved = [m for m, now in main_pids(n.name, n.markers).items() if now != pids[m]]
    check(moved == [m for m in n.markers if m == alone["rdma"]], f"markers that were restarted: {moved}")
    check(verify(n.name) == 0, f"{n.name}: not as planned")
    ok("one function: its size is loaded, its marker and routes are back, and what others have is not touched")

    pids = main_pids(n.name, n.markers)
    report = loads("8192")
    check(does(report).count("reinitialise") == 3 and alone["netdev"] not in json.dumps(report["changes"]), f"the others: {does(report)}")
    check(size() == [8192] * 4, f"loaded: {size()}")
    check([f["hairpin_queue_state"] for f in report["functions"]] == ["applied"] * 4, f"{report['functions']}")
    moved = [m for m, now in main_pids(n.name, n.markers).items() if now != pids[m]]
    check(moved == [m for m in n.markers if m != alone["rdma"]], f"markers that were restarted: {moved}")
    check(verify(n.name) == 0, f"{n.name}: not as planned")
    quiet = at_once(forwarded, NODES)
    ring.write(0)
    check(at_once(forwarded, NODES) == quiet, "IpForwDatagrams rose: a kernel forwarded packets")
    over = next(path for path in ring.diagonals if path["via"] == n.name)
    diagonal, sweep = swept(ring, over, 65536, 245760, codes=(0,))
    check(sweep["size_cap_bytes"] == 245760, f"queue 8192: {diagonal}")
    ok("the other three: loaded, rules and markers back in force, RDMA over the diagonal, and 240 KB pass")

    before = state(n.name)
    report = loads("8192")
    check(report["verdict"] == "in-sync" and not report["changes"], f"again: {report}")
    check(up(n.name, "--set-hairpin-queue")["verdict"] == "in-sync", "up --set-hairpin-queue after it")
    same_on(n.name, before, state(n.name), "the same size again")
    facts = mesh.inventory(scratch())[n.name]
    check(all(facts[dev]["hairpin_queue_state"] == "applied" for dev in devs), "inventory does not say that it is applied")
    ok("the same size again: nothing is touched; inventory says applied")

    # `up` on another node: what waits for queue pairs, and all at once.
    other = next(node for node in NODES if node != n.name)
    theirs = [p["netdev"] for p in ring.plan["ports"] if p["host"] == other]
    route = next(r for r in ring.plan["routes"] if r["host"] == other)
    on(other, f"ip route del {route['destination']}/32 proto 141")
    pid = pingpong(other, next(p["rdma"] for p in ring.plan["ports"] if p["host"] == other), ring.plan["gid_index"])
    report = up(other, "--set-hairpin-queue")
    check(report["verdict"] == "queue-left" and does(report) == ["add-route"], f"beside a queue pair: {report}")
    check([c["do"] for c in report["not_done"]].count("reinitialise") == 4 and pid in json.dumps(report["findings"]), f"{report}")
    check(size(other, theirs) == [1024] * 4, f"loaded beside a queue pair: {size(other, theirs)}")
    on(other, f"kill {pid} && while pidof -q ibv_rc_pingpong; do sleep 0.1; done")
    check(up(other)["verdict"] == "in-sync" and size(other, theirs) == [1024] * 4, "up re-initialises by itself")
    down(other)
    dry = up(other, "--set-hairpin-queue --dry-run")
    report = up(other, "--set-hairpin-queue --wait 60")
    check(does(report) == does(dry) and does(report).count("reinitialise") == 4, f"--dry-run: {does(dry)}\nup: {does(report)}")
    check(size(other, theirs) == [8192] * 4 and verify(other) == 0, f"{other}: {size(other, theirs)}")
    check(up(other, "--set-hairpin-queue")["verdict"] == "in-sync", "up --set-hairpin-queue again")
    ring.write(0)
    ok("up --set-hairpin-queue: all of the rest beside open queue pairs, never the queue; without them queue and mesh at once")

    # As it was.
    at_once(lambda node: told(node, "hairpin-queue 1024"), [n.name, other])
    at_once(down, NODES)
    at_once(lambda node: on(node, "rm -rf /run/dsv41-mesh"), NODES)


def queue_killed(every):
    ring = installed()
    at_once(up, NODES)
    n = Node(ring, ring.diagonals[0]["via"])
    # A function with rules, and one that rules of others lead to.
    port = ring.ports[n.name, n.rules[0]["redirect"]]
    dev, verb = port["netdev"], f"hairpin-queue {{}} --device {port['rdma']}"
    runs, sizes = 0, [4096, 8192]
    for call in ("sendto", "renameat", "unlinkat"):
        for nth in range(1, 400, every):
            sizes.reverse()
            size = sizes[0]
            words = f"strace -f -o /dev/null -e trace={call} -e inject={call}:signal=KILL:when={nth} {PROGRAM} {verb.format(size)}"
            done = subprocess.run(["ssh", n.name, words], capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
            # The next run is sometimes `up`, which finishes what was begun and begins nothing.
            if runs % 2:
                up(n.name, "--wait 60")
                check(verify(n.name) == 0, f"killed at {call} {nth}, and up: not as planned")
            told(n.name, verb.format(size))
            check(loaded(n.name, dev) == size, f"killed at {call} {nth}: {loaded(n.name, dev)} loaded, {size} wanted")
            check(verify(n.name) == 0, f"killed at {call} {nth}: not as planned")
            check("reinit.json" not in on(n.name, "ls /run/dsv41-mesh"), f"killed at {call} {nth}: still underway")
            if done.returncode == 0:
                break
            runs += 1
    check(runs > 2, f"killed {runs} times")
    ring.write(0)
    ok(f"killed {runs} times in a re-initialisation: the next run finishes it")
    told(n.name, verb.format(1024))
    at_once(down, NODES)
    at_once(lambda node: on(node, "rm -rf /run/dsv41-mesh"), NODES)


# ---- deploy --------------------------------------------------------------------------------------------

MESH = "dsv41-mesh.service"
STAND_IN_UNIT = "/etc/systemd/system/dsv41-mesh-marker@.service"
# What the marker's unit needs on these nodes beyond what it says: the stand-in for libmlx5, and what that opens.
DROP_IN = "/run/systemd/system/dsv41-mesh-marker@.service.d"
ON_STAND_IN = "[Service]\\nEnvironment=LD_PRELOAD=/usr/local/lib/mlx5-shim/libmlx5.so.1\\nDeviceAllow=/dev/fakehw_marker rw\\n"


def files(node):
    """Every file that an installation could leave, with what it is."""
    places = "/etc /opt /usr/local /root /tmp /var/tmp /run/dsv41-mesh"
    what = r"-type d -printf '%p %y %m\n' -o -printf '%p %y %m %s %l\n'"
    return on(node, f"find {places} ! -path '/root/mesh-*' '(' {what} ')' 2>/dev/null | sort")


def kernel_state(node):
    """The state of a node without the files of the mesh."""
    return "\n".join(line for line in state(node).splitlines() if "dsv41-mesh" not in line)


def deployed(arguments, codes=(0,)):
    """Runs `deploy` here; its report and what it said."""
    done = subprocess.run([mesh.PROGRAM, "deploy", "--json", *arguments], capture_output=True, text=True, timeout=1200, stdin=subprocess.DEVNULL)
    check(done.returncode in codes, f"deploy {arguments}: exit code {done.returncode}, {codes} wanted\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout), done.stderr


def unit_states(node, unit=MESH):
    return on(node, f"systemctl is-enabled {unit}; systemctl is-active {unit}; true").split()


def rebooted(node):
    """Resets a machine, and gives it what a disk would have kept. Its units start before it has any fabric port."""
    kept = "/opt /etc/dsv41-mesh /etc/systemd/system /usr/local/bin/hairpin-mesh"
    # What makes it a node of the ring, where these tests have put it.
    kept += f" /run/ring/ports $(ls -d {DROP_IN} /run/ring/*.service 2>/dev/null)"
    files = subprocess.run(["ssh", node, f"tar -c -P {kept}"], capture_output=True, check=True, timeout=LIMIT, stdin=subprocess.DEVNULL).stdout
    boot = "cat /proc/sys/kernel/random/boot_id"
    before = on(node, boot)
    subprocess.run(["ssh", "-O", "exit", node], capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL)
    monitor = Monitor(pathlib.Path(os.environ["RING_DIR"]) / f"{node}.monitor", time.monotonic() + LIMIT)
    monitor("system_reset")
    monitor.close()
    until = time.monotonic() + 180
    while True:
        ask = ["ssh", "-o", "ConnectTimeout=5", "-o", "ServerAliveInterval=5", node, f"{boot}; systemctl is-system-running --wait"]
        done = subprocess.run(ask, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode == 0 and before.strip() not in done.stdout:
            break
        check(time.monotonic() < until, f"{node} did not come back: {done.stdout}{done.stderr}")
        time.sleep(1)
    check(on(node, "ls /sys/class/infiniband") == "", f"{node}: has ports before its drivers")
    on(node, f"date -s @{time.time():.3f} >/dev/null; mkdir -p /run/ring; tar -x -P -f - && systemctl daemon-reload && systemctl start --no-block {MESH}", input=files)
    time.sleep(2)
    check(unit_states(node) == ["enabled", "activating"], f"{node}: without a port {unit_states(node)}")
    on(node, "ring-apply")
    on(node, f"for i in $(seq 80); do systemctl -q is-active {MESH} && exit 0; sleep 1; done; systemctl status {MESH}; exit 1")


def deploy():
    folder = scratch()
    on_all = lambda command: at_once(lambda node: on(node, command), NODES)
    on_all(
        f"mkdir -p {DROP_IN} && printf '{ON_STAND_IN}' >{DROP_IN}/stand-in.conf; "
        f"if test -x {PROGRAM}; then {PROGRAM} down --force >/dev/null 2>&1; fi; rm -rf /opt/dsv41-mesh /etc/dsv41-mesh /run/dsv41-mesh; "
        f"if test -e {STAND_IN_UNIT}; then mv {STAND_IN_UNIT} /run/ring/; fi; systemctl daemon-reload"
    )
    bare = at_once(files, NODES)
    before = at_once(kernel_state, NODES)

    # The program alone, with which the first inventory runs.
    report, _ = deployed(NODES)
    check(all(h["stage"] == "install" and h["exit"] == 0 for h in report["hosts"]), f"{report}")
    for node, was in zip(NODES, bare):
        more = [line.split()[0] for line in sorted(files(node).splitlines()) if line not in was.splitlines()]
        check(more == ["/opt/dsv41-mesh", "/opt/dsv41-mesh/bin", PROGRAM, "/usr/local/bin/hairpin-mesh"], f"{node}: deploy without a plan left {more}")
    mesh.inventory(folder)
    ok("bare nodes: the program alone is deployed, and the first inventory runs")

    ring = planned(folder)
    plan = str(folder / "ring-mesh")
    deployed(["--plan", plan, *NODES])
    for node in NODES:
        check(unit_states(node) == ["disabled", "inactive"], f"{node}: {unit_states(node)} without --enable")
        check(on(node, "cat /etc/dsv41-mesh/host").strip() == node, f"{node}: its name")
    same(before, at_once(kernel_state, NODES), "deploy without --enable")
    report, said = deployed(["--plan", plan, NODES[0]])
    check(all(did == "kept" for _, did in report["hosts"][0]["files"]), f"deploy again: {report}")
    ok("program, units and plan on four nodes; nothing is enabled or started, and a second time nothing is done")

    # One node where it cannot be: it stays as it was, the others go on, and nothing is enabled.
    on(NODES[2], "chmod 777 /etc/dsv41-mesh")
    was = files(NODES[2])
    report, said = deployed(["--plan", plan, "--enable", *NODES], (2,))
    check("is not root's alone" in said and not report["enabled"], f"{report}\n{said}")
    check([h["exit"] for h in report["hosts"]] == [0, 0, 2, 0], f"{report}")
    check(files(NODES[2]) == was, f"{NODES[2]}: not as it was")
    on(NODES[2], "chmod 755 /etc/dsv41-mesh")
    check(unit_states(NODES[0]) == ["disabled", "inactive"], "enabled although a node failed")
    ok("a node that cannot be installed is as it was, and no node is enabled")

    report, said = deployed(["--plan", plan, "--enable", *NODES])
    check(report["enabled"] and all(h["stage"] == "verify" for h in report["hosts"]), f"{report}\n{said}")
    check(report["plan_again"] == f"hairpin-mesh plan --out {plan} {' '.join(NODES)}", f"plan again: {report['plan_again']}")
    for node in NODES:
        check(unit_states(node) == ["enabled", "active"], f"{node}: {unit_states(node)}")
    at_once(ring.write, range(len(ring.diagonals)), workers=2)
    ok("--enable: queues, ports, up and verify, each on all nodes; RDMA over all eight diagonals; the plan is to be made again")

    done = mesh.program("plan", "--out", plan, *NODES)
    check(done.returncode == 0, f"plan again: {done.stderr}")
    again = json.loads((folder / "ring-mesh" / "plan.json").read_text())
    check((again["hairpin_queue_size"], again["size_cap_bytes"]) == (8192, 262144), f"planned again: {again['size_cap_bytes']}")
    pids = lambda: at_once(lambda n: on(n, "systemctl show -P MainPID 'dsv41-mesh-marker@*'").split(), NODES)
    first = pids()
    report, said = deployed(["--plan", plan, "--enable", *NODES])
    check(report["enabled"] and report["plan_again"] is None, f"{report}\n{said}")
    check(pids() == first, "a second --enable started markers anew")

    # A link that goes and comes: the kernel takes the routes over it away, and does not give ours back.
    n = Node(ring, NODES[1])
    dev = n.routes[0]["dev"]
    n.on(f"ip link set {dev} down")
    found = codes_of(told(n.name, "verify", (1,))[0]["hosts"][0]["findings"])
    check("port-link" in found, f"{n.name}: {dev} is down, and verify finds {found}")
    n.on(f"ip link set {dev} up && for i in $(seq 300); do grep -qx up /sys/class/net/{dev}/operstate && rdma link show {ring.ports[n.name, dev]['rdma']}/1 | grep -q ACTIVE && exit 0; sleep 0.1; done; exit 1")
    verify(n.name, "route-missing")
    n.on(f"systemctl reload {MESH}")
    check(verify(n.name) == 0, f"{n.name}: not healed after a link flap")
    ring.write(0)
    ok("a link that flaps: verify names it, and what it took; systemctl reload brings that back")

    rebooted(n.name)
    check(verify(n.name) == 0, f"{n.name}: not as planned after a reboot")
    at_once(ring.write, range(len(ring.diagonals)), workers=2)
    ok("a node is reset: its unit starts before its ports are there, loads the queue and brings the mesh up; all eight diagonals work")

    # An upgrade beside the engine.
    first = pids()
    newer = folder / "newer"
    newer.write_bytes(open(mesh.PROGRAM, "rb").read() + b"\n")
    n = Node(ring, NODES[0])
    device = n.markers[0]
    n.on(f"setsid ibv_rc_pingpong -d {device} -g {ring.plan['gid_index']} -p 20557 >/dev/null 2>&1 </dev/null & disown")
    n.on("for i in $(seq 300); do rdma resource show qp | grep -q ibv_rc_pingpong && exit 0; sleep 0.1; done; exit 1")
    report, said = deployed(["--binary", str(newer), *NODES])
    check(pids() == first, "an upgrade dropped a marker")
    check(said.count("goes on with its earlier program") == sum(len(p) for p in first), f"an upgrade says {said}")
    report, said = deployed(["--binary", str(newer), "--restart", *NODES], (1,))
    check([h["exit"] for h in report["hosts"]] == [1, 0, 0, 0] and "ibv_rc_pingpong" in said, f"{report}\n{said}")
    now = pids()
    check(now[0] == first[0] and all(a != b for a, b in zip(now[1:], first[1:])), f"--restart: {first} to {now}")
    ok("an upgrade keeps every marker and says so; --restart starts them anew, but not under open queue pairs")

    # Down and uninstall are refused likewise; systemd's stop goes on, and logs whose they are.
    check(down(n.name, "", (1,))["verdict"] == "refused", "down under open queue pairs")
    report = told(n.name, "uninstall", (1,))[0]
    check(report["verdict"] == "refused" and "DSV41_ROCE_RING=0" in report["down"]["engine_first"], f"{report}")
    check(unit_states(n.name) == ["enabled", "active"], "a refused uninstall stopped the unit")
    for answer, code in (("n", 1), ("y", 0)):
        done = subprocess.run(["ssh", "-tt", n.name, f"{PROGRAM} down"], input=answer + "\n", capture_output=True, text=True, timeout=LIMIT)
        check(done.returncode == code and "go on all the same?" in done.stdout, f"down at a terminal, {answer}: {done.returncode}\n{done.stdout}{done.stderr}")
    up(n.name)
    n.on(f"systemctl stop {MESH}")
    text = n.on(f"journalctl -o cat -u {MESH}")
    check("ibv_rc_pingpong" in text and "going on, as told" in text, f"the journal of the stop: {text}")
    check(n.on("ip route show proto 141") == "", "a stop left routes")
    n.on(f"pkill ibv_rc_pingpong; systemctl start {MESH}")
    check(verify(n.name) == 0, "started again")
    ok("down and uninstall are refused under open queue pairs, or ask at a terminal; systemctl stop goes on and names their owner")

    # Rolled back as users do it; then away.
    on_all(f"systemctl disable --now {MESH}")
    for node in NODES:
        check(unit_states(node) == ["disabled", "inactive"], f"{node}: {unit_states(node)}")
        check(on(node, "systemctl list-units --plain --no-legend 'dsv41*'") == "", f"{node}: units after the rollback")
        check(on(node, "ip route show proto 141; tc filter show dev enp1s0f0np0 ingress") == "", f"{node}: rolled back, and something is left")
    # The unit loads the queue size itself, too, as after a boot.
    some = NODES[:2]
    ports = {node: [p["netdev"] for p in ring.plan["ports"] if p["host"] == node] for node in some}
    sizes = lambda node: [int(on(node, f"cat /sys/class/net/{dev}/fakehw/loaded_queue_size")) for dev in ports[node]]
    at_once(lambda node: told(node, "hairpin-queue 1024"), NODES)
    check([sizes(node) for node in some] == [[1024] * 4] * 2, "hairpin-queue 1024")
    at_once(lambda node: on(node, f"systemctl enable {MESH}; timeout 300 systemctl start --no-block {MESH}"), some)
    for node in some:
        on(node, f"for i in $(seq 80); do systemctl -q is-active {MESH} && exit 0; sleep 1; done; systemctl status {MESH}; exit 1")
        check(verify(node) == 0 and sizes(node) == [8192] * 4, f"{node}: started by its unit alone: {sizes(node)}")
    # All units at once and not to be called back, as at a shutdown.
    on(some[0], f"systemctl stop --job-mode=replace-irreversibly {MESH} 'dsv41-mesh-marker@*'")
    check("Failed" not in on(some[0], f"systemctl is-failed {MESH}; journalctl -o cat -u {MESH} -n 3"), "a stop of all units at once")
    check(on(some[0], "ip route show proto 141") == "", "a stop of all units at once left routes")
    at_once(lambda node: told(node, "hairpin-queue 1024"), some)
    at_once(lambda node: told(node, "uninstall"), NODES)
    for node, was in zip(NODES, bare):
        same_on(node, was, files(node), "uninstall")
        check(on(node, "systemctl list-units --plain --no-legend 'dsv41*'") == "", f"{node}: units after uninstall")
    ok("rolled back by systemctl disable --now; uninstall, of a mesh that is up too, leaves no file")

    on_all(f"rm -rf {DROP_IN}; if test -e /run/ring/{STAND_IN_UNIT.split('/')[-1]}; then mv /run/ring/{STAND_IN_UNIT.split('/')[-1]} {STAND_IN_UNIT}; fi; systemctl daemon-reload")
    mine = open(mesh.PROGRAM, "rb").read()
    give = f"mkdir -p /opt/dsv41-mesh/bin && cat >{PROGRAM} && chmod 755 {PROGRAM}"
    at_once(lambda node: on(node, give, input=mine), NODES)


# ---- killed --------------------------------------------------------------------------------------------


def killed(every):
    ring = installed()
    calls = ("sendto", "renameat", "write", "unlinkat")
    node = ring.diagonals[0]["via"]
    before = state(node)
    runs = 0
    for call in calls:
        for nth in range(1, 400, every):
            # strace's own injection: the signal comes with the Nth call of this name.
            done = subprocess.run(
                ["ssh", node, f"strace -f -o /dev/null -e trace={call} -e inject={call}:signal=KILL:when={nth} {PROGRAM} up"],
                capture_output=True, text=True, timeout=LIMIT, stdin=subprocess.DEVNULL,
            )
            ended = done.returncode == 0
            down(node)
            same_on(node, before, state(node), f"up killed at {call} {nth}, and down,")
            if ended:
                break
            subprocess.run(
                ["ssh", node, f"strace -f -o /dev/null -e trace={call} -e inject={call}:signal=KILL:when={nth} {PROGRAM} up"],
                capture_output=True, timeout=LIMIT, stdin=subprocess.DEVNULL,
            )
            up(node, "--wait 60")
            check(verify(node) == 0, f"{node}: up killed at {call} {nth}, and up again: not as planned")
            down(node)
            runs += 2
    check(runs > 0, "nothing was killed")
    ok(f"killed {runs} times at {', '.join(calls)}: up converges, down leaves what was before")


def main():
    parser = argparse.ArgumentParser(prog="native.py", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("works").add_argument("--reruns", type=int, default=20)
    verbs.add_parser("faults")
    verbs.add_parser("marker")
    verbs.add_parser("probe")
    verbs.add_parser("doctor")
    verbs.add_parser("demo")
    verbs.add_parser("deploy")
    verbs.add_parser("killed").add_argument("--every", type=int, default=1)
    verbs.add_parser("queue")
    verbs.add_parser("queue-killed").add_argument("--every", type=int, default=5)
    options = parser.parse_args()
    tests = {
        "works": lambda: works(options.reruns),
        "faults": faults,
        "marker": marker,
        "probe": probe,
        "doctor": doctor,
        "demo": demo,
        "deploy": deploy,
        "killed": lambda: killed(options.every),
        "queue": queue,
        "queue-killed": lambda: queue_killed(options.every),
    }
    return judged(tests[options.verb])


if __name__ == "__main__":
    sys.exit(main())
