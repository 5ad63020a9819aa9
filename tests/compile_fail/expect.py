# SPDX-License-Identifier: Apache-2.0
"""Compiles the cases of one file: case 0 must pass, every other must fail and say what the file expects.

usage: expect.py FILE COMPILER [FLAG...]

Case n is the code under `#if CASE == n`. The file lists the cases with what the compiler's output must contain:
    // expect 1: fsdp: StaticTiles<N> needs at least one tile
A case may have several lines: mistakes that one compilation reports. What one compiler alone says stands behind its name:
    // expect 1 of g++: StaticTiles<N> [with int N = 0]
"""
import contextlib
import re
import subprocess
import sys
import tempfile
from pathlib import Path


def is_clang(command):
    return "clang" in Path(command[0]).name


@contextlib.contextmanager
def precompiled(text, command):
    """With clang compiles what the file includes once for all its cases; yields the flags that use it. Precompiling
    takes g++ longer than it then saves."""
    if not is_clang(command):
        yield []
        return
    includes = re.findall(r"^#include <.+>$", text, re.MULTILINE)
    with tempfile.TemporaryDirectory() as folder:
        header = Path(folder) / "includes.hpp"
        header.write_text("\n".join(["#pragma once", *includes, ""]))
        made = subprocess.run([*command, "-x", "c++-header", str(header), "-o", f"{header}.gch"], capture_output=True)
        yield ["-include", str(header)] if made.returncode == 0 else []  # an error is then reported by case 0


def compile_case(file, command, case):
    result = subprocess.run([*command, "-fsyntax-only", f"-DCASE={case}", str(file)], capture_output=True, text=True)
    return result.returncode == 0, result.stderr


def check(file, command):
    """All that is wrong with the file, one text each."""
    text = Path(file).read_text()
    expected = {}
    for case, compiler, sentence in re.findall(r"^// expect (\d+)(?: of (g\+\+|clang\+\+))?: (.+?)\s*$", text, re.MULTILINE):
        sentences = expected.setdefault(int(case), [])
        if not compiler or is_clang([compiler]) == is_clang(command):
            sentences.append(sentence)
    cases = {int(case) for case in re.findall(r"^#\s*(?:el)?if CASE == (\d+)", text, re.MULTILINE)}
    if not expected or cases - {0} != set(expected):
        return [f"the cases {sorted(cases)} and the expectations {sorted(expected)} are not the same"]

    with precompiled(text, command) as flags:
        return check_cases(file, expected, [*command, *flags])


def check_cases(file, expected, command):
    wrong = []
    passed, output = compile_case(file, command, 0)
    if not passed:
        wrong.append(f"case 0 must compile:\n{output}")
    for case, sentences in sorted(expected.items()):
        passed, output = compile_case(file, command, case)
        for sentence in sentences:
            if passed:
                wrong.append(f"case {case} compiles; it must fail with: {sentence}")
            elif sentence not in output:
                wrong.append(f"case {case} fails without saying: {sentence}\n{output}")
    return wrong


def main():
    wrong = check(sys.argv[1], sys.argv[2:])
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
