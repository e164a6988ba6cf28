#!/usr/bin/env python3
"""Each constant that libmlx5 is handed changed in turn: a test has to fail.

  native-mutations.py [--most N]   all of them, or N of them by chance

Works on a copy of this checkout; what it builds is kept in target/mutations.  Needs the rdma-core headers.
A change that the compiler refuses counts as one that a test fails for: the headers are asserted, too.
"""

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ROOT / "target" / "mutations"
# Seconds for the tests of the marker, which take two.
LIMIT = 30
# Another one of the same kind, which the compiler takes as well.
OTHER = {
    "IBV_FLOW_ATTR_NORMAL": "IBV_FLOW_ATTR_ALL_DEFAULT",
    "MLX5DV_FLOW_MATCHER_MASK_FT_TYPE": "0",
    "MLX5DV_FLOW_TABLE_TYPE_RDMA_TX": "MLX5DV_FLOW_TABLE_TYPE_NIC_TX",
    "MLX5DV_FLOW_ACTION_IBV_FLOW_ACTION": "MLX5DV_FLOW_ACTION_DROP",
    '"libmlx5.so.1"': '"libmlx5.so.0"',
    "&mask.parameters": "&value.parameters",
    "&value.parameters": "&mask.parameters",
}
NAMED = re.compile(r'\bMLX5DV_\w+|\bIBV_FLOW_\w+|"libmlx5[^"]*"|&(?:mask|value)\.parameters')
VERSION = re.compile(r'"MLX5_1\.(\d+)"')
# Numbers that libmlx5, or who asks for the rule, is handed.
NUMBERS = {
    "native/mlx5.c": r"(?:\.priority = |define MATCH_OUTER_HEADERS |&value\.parameters, )(\d+)",
    "native/verbs.h": r"(?:define HM_MATCH_SIZE |define HM_COMMAND_SIZE |HM_CREATE_\w+ = )(0x[0-9a-f]+|\d+)",
}
ASSERTED = re.compile(r'_Static_assert\(.*?== .*?(?=, "")', re.S)


def blanked(text):
    """The text with comments, and what comes before the name in an error's words, as blanks."""
    blank = lambda found: re.sub(r"\S", " ", found[0])
    text = re.sub(r"/\*.*?\*/", blank, text, flags=re.S)
    return re.sub(r'"[^"]*(?:cannot be loaded|is wanted)[^"]*"', blank, text)


def mutations():
    """Each change: file, from, to, what comes in between."""
    for name in NUMBERS:
        text = blanked((ROOT / name).read_text())
        asserts = [found.span() for found in ASSERTED.finditer(text)]
        within = lambda at: any(begin <= at < end for begin, end in asserts)
        for begin, end in asserts:
            yield name, end, end, " + 1"
        for found in re.finditer(NUMBERS[name], text):
            begin, end = found.span(1)
            yield name, begin, end, str(int(found[1], 0) + 8)
        if name.endswith(".c"):
            for found in VERSION.finditer(text):
                begin, end = found.span(1)
                yield name, begin, end, str(int(found[1]) + 40)
            for found in NAMED.finditer(text):
                if not within(found.start()):
                    # One that is not known here has to be added above.
                    yield name, *found.span(), OTHER[found[0]]


def tested(folder):
    """Whether the tests of the marker pass, and what they say."""
    words = ["cargo", "test", "--locked", "--quiet", "--test", "marker"]
    options = dict(cwd=folder, env={**os.environ, "CARGO_TARGET_DIR": str(BUILT)}, text=True)
    built = subprocess.run([*words, "--no-run"], capture_output=True, **options)
    if built.returncode != 0:
        raise SystemExit(f"cannot be built:\n{built.stderr}")
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, **options) as running:
        try:
            said, _ = running.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            # One that waits for a marker that never comes fails, too.
            os.killpg(running.pid, signal.SIGKILL)
            running.communicate()
            return False, f"not at an end after {LIMIT} s"
    return running.returncode == 0, said


def compiles(folder):
    words = ["cc", "-std=gnu11", "-fsyntax-only", "-I", str(folder / "native"), str(folder / "native/mlx5.c")]
    return subprocess.run(words, capture_output=True).returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int)
    options = parser.parse_args()
    chosen = list(mutations())
    if options.most is not None:
        chosen = random.sample(chosen, min(options.most, len(chosen)))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "copy"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns("target", ".git"))
        # Newer than whatever a run that was ended has built of a change.
        for path in folder.rglob("*"):
            path.touch()
        passed, said = tested(folder)
        if not passed:
            print(f"the tests fail before anything is changed:\n{said}")
            return 1
        if "NOT TESTED" in said:
            print(f"NOT TESTED: the marker is not tested here, so no change could be noticed:\n{said}")
            return 1
        missed = 0
        for name, begin, end, new in chosen:
            text = (ROOT / name).read_text()
            line = text[:begin].count("\n") + 1
            (folder / name).write_text(text[:begin] + new + text[end:])
            what = f"{name}:{line}: {text[begin:end] or 'an assertion'} made {new.strip()}"
            if not compiles(folder):
                verdict = "refused by the compiler"
            elif not tested(folder)[0]:
                verdict = "a test fails"
            else:
                verdict, missed = "NOBODY NOTICES", missed + 1
            print(f"{what}: {verdict}", flush=True)
            (folder / name).write_text(text)
    print(f"{len(chosen)} changes, {missed} unnoticed")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
