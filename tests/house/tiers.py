#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks tests/tiers.txt: the seven parts take the same time within 10 %, and where all dependencies are installed, as in
CI, every line has a test.

usage: tiers.py check LIST BUILD [PREFIX...]   BUILD: a folder that CMake configured; lines whose test begins with a PREFIX
                                               are of other builds
       tiers.py measure LIST FILE...           writes seconds anew: of tests from ctest's CTestCostData.txt, of building from
                                               .ninja_log of a build from nothing
       tiers.py deal LIST                      deals what parts have again: the longest first, each to the shortest part; lines with
                                               the same word after the seconds stay together, since they share a program

A line build:TARGET has the seconds that building a target takes which only parts need; targets and tests of other builds
than `release` have the build's name in front.
"""
import json
import os
import re
import subprocess
import sys
from pathlib import Path


def read(path):
    """(comment, [(tier, test, seconds, group)])."""
    with open(path, encoding="utf-8") as file:
        lines = file.read().splitlines()
    comment = [line for line in lines if line.startswith("#")]
    rows = [(line.split() + [""])[:4] for line in lines if not line.startswith("#")]
    return comment, [(tier, test, float(seconds), group) for tier, test, seconds, group in rows]


def write(path, comment, rows):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in comment)
        for tier, test, seconds, group in sorted(rows, key=lambda row: (row[0] != "first", row[0], row[1])):
            file.write(f"{tier:<6}{test:<42}{seconds:>6.1f}{'  ' + group if group else ''}\n")


def totals(rows):
    return {str(part): sum(seconds for tier, _, seconds, _ in rows if tier == str(part)) for part in range(7)}


def check(path, build, prefixes):
    _, rows = read(path)
    listed = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True, text=True)
    tests = {test["name"] for test in json.loads(listed.stdout)["tests"]}
    problems = [f"{path} lists {test}, and there is no such test; remove its line" for _, test, _, _ in rows
                if os.environ.get("CI") and test not in tests and not test.startswith(("build:", *prefixes))]
    seconds = totals(rows)
    mean = sum(seconds.values()) / len(seconds)
    problems += [f"part {part} takes {taken:.0f} s and the mean is {mean:.0f} s; more than 10 % apart: move tests to another part"
                 for part, taken in seconds.items() if abs(taken - mean) > 0.1 * mean]
    return problems


def building(lines, prefix):
    """Seconds of each target, of a .ninja_log's lines: its share of the build's time, in which objects wait for cores."""
    spent, end = {}, 0
    for line in lines:
        words = line.split()
        if len(words) == 5 and words[0].isdigit():  # begin, end (in ms), time, output, hash
            target = re.search(r"CMakeFiles/([^/]+)\.dir/", words[3])
            key = f"build:{prefix}{target.group(1)}" if target else ""
            spent[key] = spent.get(key, 0) + int(words[1]) - int(words[0])
            end = max(end, int(words[1]))
    return {key: milliseconds * end / sum(spent.values()) / 1000 for key, milliseconds in spent.items()}


def measure(path, files):
    comment, rows = read(path)
    measured = {}
    for name in files:
        build = Path(name).resolve().parent.name
        with open(name, encoding="utf-8") as file:
            lines = file.read().splitlines()
        measured |= building(lines, "" if build == "release" else f"{build}.")
        measured |= {words[0]: float(words[2]) for words in map(str.split, lines)  # test, runs, mean of their seconds
                     if len(words) == 3 and words[1] != "0"}
    write(path, comment, [(tier, test, measured.get(test, seconds), group) for tier, test, seconds, group in rows])


def deal(path):
    comment, rows = read(path)
    groups = {}
    for row in rows:
        if row[0] != "first":
            groups.setdefault(row[3] or row[1], []).append(row)
    parts = {str(part): 0.0 for part in range(7)}
    dealt = [row for row in rows if row[0] == "first"]
    for group in sorted(groups.values(), key=lambda group: -sum(row[2] for row in group)):
        part = min(parts, key=parts.get)
        parts[part] += sum(row[2] for row in group)
        dealt += [(part, *row[1:]) for row in group]
    write(path, comment, dealt)


def main(arguments):
    if len(arguments) >= 3 and arguments[0] == "check":
        problems = check(arguments[1], arguments[2], arguments[3:])
        print("\n".join(problems) or "tests/tiers.txt: as it says")
        return 1 if problems else 0
    if len(arguments) >= 3 and arguments[0] == "measure":
        return measure(arguments[1], arguments[2:])
    if len(arguments) == 2 and arguments[0] == "deal":
        return deal(arguments[1])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
