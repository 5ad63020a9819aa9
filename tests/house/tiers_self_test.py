# SPDX-License-Identifier: Apache-2.0
"""CMake refuses a list that lacks a test or has it twice; tiers.py refuses stale lines and parts that are not balanced."""
import importlib.util
import re

import pytest
from support.files import TESTS, read, write
from support.program import run

BALANCED = "".join(f"{part} test_{part} 10\n" for part in range(7))
PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(tiers NONE)
enable_testing()
include("{TESTS}/tiers.cmake")
foreach(target tests_both tests_part example_part program)
  add_custom_target(${{target}} ALL)
endforeach()
function(test name)
  add_test(NAME ${{name}} COMMAND true)
  tessera_tier_of(${{name}} label ${{ARGN}})
  set_tests_properties(${{name}} PROPERTIES LABELS "unit;${{label}}")
endfunction()
test(one $<TARGET_FILE:tests_both>)
test(two $<TARGET_FILE:tests_both>)
test(three tests_part $<TARGET_FILE:example_part> program)
cmake_language(DEFER CALL report)
function(report)
  foreach(target tests_both tests_part example_part program)
    get_target_property(excluded ${{target}} EXCLUDE_FROM_ALL)
    message(STATUS "${{target}}: ${{excluded}}")
  endforeach()
  get_property(labels TEST three PROPERTY LABELS)
  message(STATUS "three: ${{labels}}")
endfunction()
"""


def configured(listed, status):
    write("CMakeLists.txt", PROJECT)
    write("tiers.txt", listed)
    ended = run("cmake -S . -B build", status=status)
    return re.sub(r"\s+", " ", ended.out + ended.err)


def test_what_only_parts_need_is_not_in_all(folder):
    printed = configured("# a comment\nfirst one 1.5\n2 two 10 group\n2 three 3\n3 build:tests_part 4\n", 0)
    assert "tests_both: excluded-NOTFOUND -- tests_part: ON -- example_part: ON -- program: excluded-NOTFOUND" in printed
    assert "three: unit;part2 " in printed


@pytest.mark.parametrize("listed, message", [
    ("first one 1\n2 two 1\n", "does not list the test three; add a line"),
    ("first one 1\n2 two 1\n3 three 1\n4 three 1\n", "lists three twice"),
    ("first one 1\n7 two 1\n", "'7 two 1' is not 'TIER NAME SECONDS"),
    ("first one 1\nfirst two\n", "'first two' is not 'TIER NAME SECONDS"),
], ids=["absent", "twice", "tier", "seconds"])
def test_cmake_refuses_a_list(folder, listed, message):
    assert message in configured(listed, 1)


@pytest.mark.parametrize("listed, problems", [
    (BALANCED, []),
    (BALANCED + "first old 1\nfirst asan.old 1\n3 build:old 0\n", ["lists old, and there is no such test"]),
    (BALANCED + "0 test_7 3\n", ["part 0 takes 13 s and the mean is 10 s"]),
], ids=["balanced", "stale", "unbalanced"])
def test_the_list_is_checked(folder, monkeypatch, listed, problems):
    spec = importlib.util.spec_from_file_location("tiers", TESTS / "house" / "tiers.py")
    tiers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tiers)
    monkeypatch.setenv("CI", "true")
    write("build/CTestTestfile.cmake", "".join(f"add_test(test_{part} true)\n" for part in range(8)))
    write("list.txt", listed)
    found = tiers.check("list.txt", "build", ["asan."])
    assert len(found) == len(problems) and all(problem in line for problem, line in zip(problems, found)), found
    tiers.deal("list.txt")
    names = [sorted(line.split()[1] for line in each.splitlines()) for each in (read("list.txt"), listed)]
    assert names[0] == names[1]
