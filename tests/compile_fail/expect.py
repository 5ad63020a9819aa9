# SPDX-License-Identifier: Apache-2.0
"""Compiles the cases of one file: case 0 must pass, every other must fail and say what the file expects.

usage: expect.py [--builds] FILE COMPILER [FLAG...]

--builds: case 0 is the file as it is, which another test compiles.

Case n is the code under `#if CASE == n`. The file lists the cases with what the compiler's output must contain:
    // expect 1: fsdp: StaticTiles<N> needs at least one tile
A case may have several lines: mistakes that one compilation reports. What one compiler alone says stands behind its name:
    // expect 1 of g++: StaticTiles<N> [with int N = 0]
A sentence that must stand in the first error:
    // expect 1 first: fsdp: the arguments are in another order

The cases that must fail are compiled together first, each in a namespace of its own. A case of which that leaves any doubt, since
what was expected is not said in errors that name its lines and those of no other case, is compiled alone and decided by that.
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
        made = subprocess.run([*command, "-fpch-instantiate-templates", "-x", "c++-header", str(header), "-o", f"{header}.gch"],
                              capture_output=True)
        yield ["-include", str(header)] if made.returncode == 0 else []  # an error is then reported by case 0


def compile_case(file, command, case):
    result = subprocess.run([*command, "-fsyntax-only", f"-DCASE={case}", str(file)], capture_output=True, text=True)
    return result.returncode == 0, result.stderr


def joined(text):
    """The file with all its cases but 0, one after the other and each in a namespace; and the case of each line that belongs to one.
    Lines keep their numbers. Nothing, if the cases are anything else than one `#if CASE == 0 ... #elif CASE == 1 ... #endif`."""
    if len(re.findall(r"\bCASE\b", text)) != len(re.findall(r"^#(?:el)?if CASE == \d+$", text, re.MULTILINE)):
        return "", {}
    lines, case_of, case = [], {}, None
    for number, line in enumerate(text.splitlines(), 1):
        begin = re.fullmatch(r"#(el)?if CASE == (\d+)", line)
        if begin and not begin[1] and (case_of or begin[2] != "0"):
            return "", {}
        if begin:
            line = f"{'}' if case else ''} namespace case_{begin[2]} {{" if begin[1] else ""
            case = int(begin[2])
        elif case is not None and line == "#endif":
            line, case = "}" if case else "", None
        elif case is not None and line.startswith("#"):
            return "", {}
        elif case is not None:
            case_of[number] = case
        lines.append("" if case == 0 else line)
    return "\n".join(lines), case_of


def errors_by_case(file, text, command):
    """What the compiler says of each case, all being compiled together, as far as it names lines of no other case."""
    source, case_of = joined(text)
    if len(set(case_of.values())) < 3:
        return {}
    limits = ["-ferror-limit=0"] if is_clang(command) else []
    output = subprocess.run([*command, *limits, "-fsyntax-only", "-iquote", str(Path(file).parent), "-x", "c++", "-"],
                            input=f'#line 1 "{file}"\n{source}\n', capture_output=True, text=True).stderr
    place = re.compile(rf"{re.escape(str(file))}:(\d+):")
    found, said, named = {}, [], set()
    for line in [*output.splitlines(), None]:
        # clang tells an error's context after it, g++ before it and once for all errors that have it.
        begins = line is None or re.search(r": error: " if is_clang(command) else r"^In file included|: (In|At) [^:]*:?", line) or (
            place.match(line) and ": error: " in line)
        if begins:
            if len(named) == 1:
                found.setdefault(named.pop(), []).extend(said)
            said, named = [], set()
        if line is not None:
            said.append(line)
            named |= {case_of[int(at)] for at in place.findall(line) if int(at) in case_of}
    return {case: "\n".join(lines) for case, lines in found.items()}


def check(file, command, builds=False):
    """All that is wrong with the file, one text each."""
    text = Path(file).read_text()
    expected = {}
    for case, compiler, first, sentence in re.findall(r"^// expect (\d+)(?: of (g\+\+|clang\+\+))?( first)?: (.+?)\s*$", text, re.MULTILINE):
        sentences = expected.setdefault(int(case), [])
        if not compiler or is_clang([compiler]) == is_clang(command):
            sentences.append((sentence, bool(first)))
    cases = {int(case) for case in re.findall(r"^#\s*(?:el)?if CASE == (\d+)", text, re.MULTILINE)}
    if not expected or cases - {0} != set(expected):
        return [f"the cases {sorted(cases)} and the expectations {sorted(expected)} are not the same"]

    with precompiled(text, command) as flags:
        return check_cases(file, text, expected, [*command, *flags], builds)


def says(output, sentence, first):
    """Whether a compiler's output has the sentence, in its first error if it must be the first."""
    return sentence in (re.search(r"error: .*|$", output)[0] if first else output)


def check_cases(file, text, expected, command, builds):
    wrong = []
    passed, output = (True, "") if builds else compile_case(file, command, 0)
    if not passed:
        wrong.append(f"case 0 must compile:\n{output}")
    together = errors_by_case(file, text, command)
    for case, sentences in sorted(expected.items()):
        if "error: " in together.get(case, "") and all(says(together[case], *sentence) for sentence in sentences):
            continue
        passed, output = compile_case(file, command, case)
        for sentence, first in sentences:
            if passed:
                wrong.append(f"case {case} compiles; it must fail with: {sentence}")
            elif not says(output, sentence, first):
                wrong.append(f"case {case} fails without saying{' first' if first else ''}: {sentence}\n{output}")
    return wrong


def main():
    builds = sys.argv[1] == "--builds"
    file, *command = sys.argv[2:] if builds else sys.argv[1:]
    wrong = check(file, command, builds)
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
