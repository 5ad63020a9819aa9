# SPDX-License-Identifier: Apache-2.0
"""Runs Doxygen over the headers, without output, and fails where it warns.

usage: api.py ROOT DOXYGEN

Namespaces, concepts, classes, functions, enumerations and macros of the API must be documented. Members that are variables, aliases,
enumerators or friends need no comment where their name says all, but for those of policies, optimizers and stacks.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

MAY_LACK = re.compile(r"^Member .* \((?:variable|typedef|friend|enumvalue)\) of .* is not documented")
POLICIES = re.compile(r"/include/(tiling/|fsdp/(sharding|precision|buffer)/|fsdp/module/stack\.hpp|fsdp/optim/optimizer\.hpp|fsdp/training/(muon|run_time_optimizer)\.hpp|"
                      r"comm/(backend|communicator|mpi|nccl|self|simulated|threads)\.hpp)")
# What a policy's header may say without words: friends, and what a variable template is for one type.
ALWAYS_MAY_LACK = re.compile(r"^Member (?:.* \(friend\) of|\w+< .* > \(variable\) of namespace) ")
# A template's instance that something derives from: what is documented is the template.
INSTANCE = re.compile(r" of (?:class|struct) (?:\w+::)*\w+< .*> is not documented")
WARNING = re.compile(r"^(?P<place>.*?:\d+): (?:warning|error): (?P<what>.*)$")


def may_lack(warning):
    kinds = ALWAYS_MAY_LACK if POLICIES.search(warning["place"]) else MAY_LACK
    return kinds.match(warning["what"])


def warnings_of(root, doxygen):
    """All warnings that count, one text each."""
    configuration = (Path(root) / "docs/Doxyfile").read_text()
    with tempfile.TemporaryDirectory() as folder:
        # Warnings about members come with a page that holds them: HTML is made, and thrown away.
        more = f"OUTPUT_DIRECTORY = {folder}\nWARN_FORMAT = \"$file:$line: $text\"\nSEARCHENGINE = NO\nVERBATIM_HEADERS = NO\n"
        done = subprocess.run([doxygen, "-"], input=configuration + more, capture_output=True, text=True, cwd=root)
    found, places = [], set()
    for line in done.stderr.splitlines():
        warning = WARNING.match(line)
        if warning is None:
            if line.strip() and not line.startswith((" ", "error: ")) and not found:
                found.append(line)
        elif not may_lack(warning) and not INSTANCE.search(warning["what"]):
            place = line.removeprefix(str(Path(root).resolve()) + "/").split(" ")[0]
            if place not in places:  # members of a template's instances are named once more for each
                found.append(place + " " + warning["what"])
            places.add(place)
    if done.returncode != 0:
        found.append(f"doxygen ended with status {done.returncode}")
    return found


def undocumented_concepts(root):
    """Concepts without a comment, outside of detail: Doxygen 1.9.4 warns of none."""
    found = []
    for header in sorted((Path(root) / "include").rglob("*.hpp")):
        lines, detail = header.read_text().splitlines(), False
        for number, line in enumerate(lines):
            detail = line == "namespace detail {" or (detail and line != "}  // namespace detail")
            head = number
            while head > 0 and re.match(r"template <|requires ", lines[head - 1]):
                head -= 1
            if re.match(r"concept \w+", line) and not detail and not lines[head - 1].startswith("///"):
                found.append(f"{header.relative_to(root)}:{number + 1}: {line.split(' =')[0]} is not documented")
    return found


def main():
    found = warnings_of(sys.argv[1], sys.argv[2]) + undocumented_concepts(sys.argv[1])
    for line in found:
        print(line)
    print(f"{len(found)} warnings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
