# SPDX-License-Identifier: Apache-2.0
"""Checks by the compiler's dependency files that test sources see a stack only in tests/support/stacks: each object that sees
executor.hpp or training.hpp takes seconds to compile. And that objects of users, which are the examples, do not have what the
library has: lists of its structs, and the copies and destructors of those with lists or strings.

usage: objects.py BUILD

BUILD is a build folder of Ninja's. Objects of tests are checked as they were last compiled; two examples are compiled here.
"""
import json
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

HEADERS = ("fsdp/execution/executor.hpp", "fsdp/training/training.hpp")
STACKS = "tests/support/stacks/"

# Test sources that may see a stack, and why. At most 6; tests of compile_fail and consumer are not objects of the build.
EXCEPTIONS = {
    "tests/examples/forecaster_test.cpp": "a user's model in the suite of models",
    "tests/examples/gpt2_test.cpp": "a user's model in the suite of models",
    "tests/models/series_model_test.cpp": "a user's model of other batches",
    "tests/testing/model_test.cpp": "tests the suite of models, which are types",
}
assert len(EXCEPTIONS) <= 6

# Two of users' objects: of Training, and of Sharded.
USERS = ("03_own_loop/main", "16_recommender/main")
# A member of a list of a plain struct, and a struct's own copy, move or destructor, as nm prints them. Member templates, as
# emplace_back, and the members that std::vector defaults are in every object.
LIST = re.compile(r"std::vector<(fsdp::[\w:]+)(?: const\*)?, std::allocator<\1(?: const\*)?> ?>::(?!vector\(\)|vector\(std::vector<.*&&\)$)~?\w+\(")
SPECIAL = re.compile(r"(fsdp::(?:\w+::)*(\w+))::(?:~\2\(\)|\2\(\1(?: const&|&&)\)|operator=\(\1(?: const&|&&)\))$")
# Structs that designated initialisers make: a declared constructor would forbid them.
AGGREGATES = {"fsdp::" + name for name in (
    "FloatWeights", "LlamaConfig", "LoraConfig", "ModuleSettings", "NamedValue", "Order", "Parameter", "PassPlan", "RopeConfig", "RowRequests", "RunShape",
    "Statistic", "StepWork", "StrategyCalls", "StrategyPart", "TensorPattern", "Unit", "UnitOptions", "comm::Options", "plan::PartPlan",
    "plan::Plan", "plan::Request", "sharding::Residency", "tiling::TilePlan")}


def in_object(symbols):
    """The structs of which an object with these symbols, as `nm -C` prints them, has what the library has, and what that is."""
    weak = [line.split(" W ", 1)[1].strip() for line in symbols.splitlines() if " W " in line]
    return {(match[1], what) for what, pattern in (("members of lists", LIST), ("copy or destructor", SPECIAL))
            for match in map(pattern.match, weak) if match}


def check_symbols(objects):
    """What is wrong, one sentence for each struct. `objects`: name -> what `nm -C` prints of it."""
    wrong = []
    for name, symbols in sorted(objects.items()):
        for struct, what in sorted(in_object(symbols)):
            if what == "members of lists":
                wrong.append(f"{name}: it has {what} of {struct}; put FSDP_LIST({struct}) behind the struct, and "
                             "instantiate it in a source")
            elif struct not in AGGREGATES:
                wrong.append(f"{name}: it has the {what} of {struct}; default these in a source, or name it in AGGREGATES of "
                             "tests/house/objects.py if designated initialisers make it")
    return wrong


def dependencies(text):
    """object -> the files that it depends on, of what `ninja -t deps` prints"""
    objects = {}
    for line in text.splitlines():
        if line.startswith(" "):
            objects[name].append(line.strip())
        elif ": #deps " in line:
            name = line.split(": #deps ")[0]
            objects[name] = []
    return objects


def target_of(name):
    """"tests_plan" of "tests/CMakeFiles/tests_plan.dir/plan_test.cpp.o"; "" if it is not the object of a test."""
    target = next((part for part in Path(name).parts if part.endswith(".dir")), "").removesuffix(".dir")
    return target if target.startswith("tests_") else ""


def check(objects, users):
    """What is wrong, one sentence for each object. `users(precompiled header)`: the objects that include it."""
    tests = {name: files for name, files in objects.items() if target_of(name)}
    seen = {name: next((header for header in HEADERS if any(file.endswith("/" + header) for file in files)), None)
            for name, files in tests.items()}
    for name, header in list(seen.items()):
        if name.endswith(".gch"):
            seen.update({user: header for user in (users(name) if header else []) if user in tests})
            del seen[name]
    wrong = []
    for name, header in sorted(seen.items()):
        sources = sorted("tests/" + file.split("/tests/", 1)[1] for file in tests[name] if "/tests/" in file and file.endswith(".cpp"))
        others = [source for source in sources if not source.startswith(STACKS) and source not in EXCEPTIONS]
        if header and others and target_of(name) != "tests_stacks":
            wrong.append(f"{', '.join(others)}: {'one of them' if len(others) > 1 else 'it'} depends on {header}; put the code that needs "
                         f"a stack into {STACKS}, behind functions of a header that includes no stack (support/stack_runner.hpp)")
        elif not header:
            wrong += [f"{source}: it depends on no stack; remove it from EXCEPTIONS in tests/house/objects.py"
                      for source in sources if source in EXCEPTIONS]
    return wrong, len(seen)


def symbols_of(entry):
    """What `nm -C` prints of an entry of `ninja -t compdb`, compiled here: no part of the tests builds all of USERS."""
    with tempfile.TemporaryDirectory() as folder:
        command = shlex.split(entry["command"])
        for option in ("-o", "-MF"):
            if option in command:
                command[command.index(option) + 1] = f"{folder}/{option[1:]}"
        subprocess.run(command, cwd=entry["directory"], check=True)
        return subprocess.run(["nm", "-C", f"{folder}/o"], check=True, capture_output=True, text=True).stdout


def main():
    build = sys.argv[1]

    def ninja(*arguments):
        return subprocess.run(["ninja", "-C", build, "-t", *arguments], check=True, capture_output=True, text=True).stdout

    wrong, objects = check(dependencies(ninja("deps")),
                           lambda name: ninja("query", name).split("  outputs:\n")[-1].split())
    users = {entry["output"]: symbols_of(entry) for entry in json.loads(ninja("compdb"))
             if any(f"{user}.cpp.o" in entry["output"] for user in USERS)}
    wrong += check_symbols(users)
    for sentence in wrong:
        print(sentence)
    print(f"{objects} objects of tests, {len(users)} of examples, {len(wrong)} wrong")
    return 1 if wrong or not objects or len(users) not in (0, len(USERS)) else 0  # 0: a build without examples


if __name__ == "__main__":
    sys.exit(main())
