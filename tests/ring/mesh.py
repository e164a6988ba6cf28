#!/usr/bin/env python3
"""The mesh end to end on a running ring.  `ring.py run -- mesh.py ...` gives it the ring.

  mesh.py works [--reruns N]   facts and plan over SSH; the scripts of the plan on each node; every rule
                               in hardware; RDMA over every diagonal, forwarded by the NIC alone; no RDMA
                               without a rule; a second run changes nothing, N times; no trace afterwards
  mesh.py refused              the plan refuses the ring with every line that its case tells
"""

import argparse
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
LIMIT = 90  # s, for one command on one node; the machines may be slow, and the host may have other work
MESSAGES = 100  # what ring-lat sends each way
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

    def write(self, number, fails=False):
        """RDMA writes with flow label 16383 over diagonal `number`, answered by as many."""
        path = self.diagonals[number]
        source, target, _ = self.ends(path)
        port, gid = 20000 + number, self.plan["gid_index"]
        limit = "LIMIT=8 " if fails else ""
        on(path["to"], f"{limit}ring-lat serve {target['rdma']} {port} {gid}")
        on(path["from"], f"{limit}ring-lat send {source['rdma']} {port} {gid} {path['to']}", fails=fails)
        on(path["to"], f"{limit}ring-lat result {port}", fails=fails)


# ---- The tests ---------------------------------------------------------------------------------------


def works(reruns):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="plan-", dir=os.environ["RING_DIR"]))

    done = program("inventory", "--out", str(folder / "facts"), *hosts())
    check(done.returncode == 0, f"inventory: exit code {done.returncode}\n{done.stderr}")
    for node in NODES:
        facts = json.loads((folder / "facts" / f"{node}.json").read_text())
        check(len(facts["ports"]) == 4, f"{node}: {len(facts['ports'])} fabric ports, 4 wanted: {list(facts['ports'])}")
    ok("inventory over SSH: four nodes, four fabric ports each")

    done = program("plan", "--out", str(folder / "ring-mesh"), *NODES)
    check(done.returncode == 0, f"plan: exit code {done.returncode}\n{done.stderr}")
    plan = json.loads((folder / "ring-mesh" / "plan.json").read_text())
    check(plan["gid_index"] == 1, f"GID index {plan['gid_index']}, Soft-RoCE's 1 wanted")
    mesh = Mesh(plan)
    check(len(mesh.diagonals) == 8, f"{len(mesh.diagonals)} diagonals, 8 wanted")
    ok("plan over SSH: " + " - ".join(plan["ring"]))

    def give(node):
        files = io.BytesIO()
        with tarfile.open(fileobj=files, mode="w") as tar:
            for verb in ("up", "down"):
                tar.add(folder / "ring-mesh" / f"mesh-{verb}-{node}.sh", f"root/mesh-{verb}.sh")
        on(node, "tar -x -C / --no-same-owner -f -", input=files.getvalue())
        return on(node, "ring-state")

    def up(node):
        return on(node, "bash /root/mesh-up.sh").strip().splitlines()[-1]

    before = at_once(give, NODES)
    changed = at_once(up, NODES)
    for node, line in zip(NODES, changed):
        check(re.fullmatch(rf"{node}: done, [1-9][0-9]* changed", line), f"{node}: mesh-up says {line!r}")

    def see(node):
        found = mesh.read_rules(node)
        for rule in mesh.rules_of(node):
            there = found.get((rule["dev"], rule["pref"]))
            check(there, f"{node}: no rule at {rule['dev']} {rule['pref']}")
            state = {key: there.get(key) for key in ("in_hw", "skip_sw")}
            check(all(state.values()), f"{node}: the rule at {rule['dev']} {rule['pref']}: {state}")
        check(len(found) == len(mesh.rules_of(node)), f"{node}: {len(found)} rules")
        return on(node, "ring-state")

    after_up = at_once(see, NODES)
    ok(f"mesh-up on four nodes: {len(plan['rules'])} rules, every one in hardware")

    quiet = at_once(forwarded, NODES)

    def crosses(number):
        path = mesh.diagonals[number]
        *_, rules = mesh.ends(path)
        count = lambda: [in_hardware(mesh.read_rules(path["via"])[r["dev"], r["pref"]]) for r in rules]
        first = count()
        mesh.write(number)
        # A driver samples its counters about once a second.
        until = time.monotonic() + 5
        while True:
            rise = [now - then for now, then in zip(count(), first)]
            if min(rise) >= MESSAGES:
                break
            check(time.monotonic() < until, f"{path['name']}: the rules forwarded {rise}, {MESSAGES} each wanted")
            time.sleep(0.2)
        ok(f"{path['name']}: written and answered; the NIC forwarded {rise[0]} and {rise[1]}")

    # Two at a time, one for each core; a diagonal and its reverse share both rules, and are apart.
    at_once(crosses, range(len(mesh.diagonals)), workers=2)
    check(at_once(forwarded, NODES) == quiet, "IpForwDatagrams rose: a kernel forwarded packets")
    ok("IpForwDatagrams is where it was on every node")

    # Without a rule: the routes and markers are there, and nothing may get through.
    path = mesh.diagonals[0]
    *_, rules = mesh.ends(path)
    delete = "tc filter del dev {dev} ingress protocol {protocol} pref {pref} handle {handle} flower"
    on(path["via"], delete.format(**rules[0]))
    mesh.write(0, fails=True)
    check(at_once(forwarded, NODES) == quiet, "IpForwDatagrams rose: a kernel forwarded marked packets")
    ok(f"{path['name']} without its rule: fails, and no kernel forwards")
    check(up(path["via"]) == f"{path['via']}: done, 1 changed", "mesh-up did not put back exactly the one rule")
    mesh.write(0)
    ok("mesh-up put exactly that rule back, and it works again")

    if reruns:

        def again(node):
            wanted = f"{node}: nothing to do"
            loop = f'for i in $(seq {reruns}); do said=$(bash /root/mesh-up.sh 2>&1); test "$said" = "{wanted}" || {{ echo "run $i: $said"; exit 1; }}; done'
            # Each takes about a second.
            done = subprocess.run(["ssh", node, loop], capture_output=True, text=True, timeout=LIMIT + 10 * reruns)
            check(done.returncode == 0, f"{node}: mesh-up again: {done.stdout}{done.stderr}")
            return on(node, "ring-state")

        same(after_up, at_once(again, NODES), "mesh-up again")
        ok(f"mesh-up again, {reruns} times on each node: changes nothing")

    def down(node):
        said = on(node, "bash /root/mesh-down.sh").strip().splitlines()[-1]
        check(re.fullmatch(rf"{node}: done, [1-9][0-9]* removed", said), f"{node}: mesh-down says {said!r}")
        return on(node, "ring-state")

    same(before, at_once(down, NODES), "mesh-down")
    ok("mesh-down leaves no trace: the state of every node is what it was before mesh-up")


def same(before, after, what):
    import difflib

    for node, one, other in zip(NODES, before, after):
        difference = "\n".join(difflib.unified_diff(one.splitlines(), other.splitlines(), "before", "after", n=0, lineterm=""))
        check(not difference, f"{node}: {what} changed the state:\n{difference}")


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


def main():
    parser = argparse.ArgumentParser(prog="mesh.py", description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("works").add_argument("--reruns", type=int, default=3)
    verbs.add_parser("refused")
    options = parser.parse_args()
    try:
        if options.verb == "works":
            works(options.reruns)
        else:
            refused()
    except (Failed, subprocess.TimeoutExpired) as what:
        print(f"FAIL {time.monotonic() - BEGAN:5.0f} s  {what}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
