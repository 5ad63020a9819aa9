# SPDX-License-Identifier: Apache-2.0
"""objects.py finds test sources that see a stack, and what objects have that the library has; it leaves others alone."""
import objects
import pytest

TARGETS = "tests/CMakeFiles"
EXECUTOR = "/p/build/include/tessera/fsdp/execution/executor.hpp"
USER, PRECOMPILED = f"{TARGETS}/tests_nn.dir/nn/a_test.cpp.o", f"{TARGETS}/tests_stacks.dir/cmake_pch.hxx.gch"


def check(files, users=()):
    text = "".join(f"{name}: #deps {len(deps)}, deps mtime 1 (VALID)\n" + "".join(f"    {dep}\n" for dep in deps) + "\n"
                   for name, deps in files.items())
    return objects.check(objects.dependencies(text), lambda name: users)


@pytest.mark.parametrize("count, files", [
    (5, {f"{TARGETS}/tests_stacks.dir/Unity/unity_0_cxx.cxx.o": ["/p/tests/support/queued/modules.cpp", EXECUTOR],
         f"{TARGETS}/tests_mpi.dir/support/stacks/mpi_stacks.cpp.o": ["/p/tests/support/stacks/mpi_stacks.cpp", EXECUTOR],
         f"{TARGETS}/tests_testing.dir/testing/model_test.cpp.o": ["/p/tests/testing/model_test.cpp", EXECUTOR],
         f"{TARGETS}/tests_plan.dir/plan/plan_test.cpp.o": ["/p/tests/plan/plan_test.cpp", "/p/include/a.hpp"],
         f"{TARGETS}/tests_cuda_host_killed.dir/killed.cpp.o": ["/p/bench/gpu/killed.cpp", EXECUTOR],
         "src/CMakeFiles/tessera_trainer.dir/a.cpp.o": ["/p/src/trainer/a.cpp", EXECUTOR]}),
    (1, {USER: ["/p/tests/nn/a_test.cpp"], PRECOMPILED: [EXECUTOR]}),
])
def test_stacks_exceptions_and_others_are_left_alone(count, files):
    assert check(files) == ([], count)


@pytest.mark.parametrize("sentence, files, users", [
    *((f"tests/plan/plan_test.cpp: it depends on {header}",
       {f"{TARGETS}/tests_plan.dir/plan/plan_test.cpp.o": ["/p/tests/plan/plan_test.cpp", "/p/include/" + header]}, [])
      for header in objects.HEADERS),
    ("tests/plan/a_test.cpp, tests/plan/b_test.cpp: one of them depends on",
     {f"{TARGETS}/tests_plan.dir/Unity/unity_0_cxx.cxx.o":
      [f"/p/build/{TARGETS}/tests_plan.dir/Unity/unity_0_cxx.cxx", "/p/tests/plan/a_test.cpp", EXECUTOR, "/p/tests/plan/b_test.cpp"]}, []),
    ("tests/nn/a_test.cpp: it depends on", {USER: ["/p/tests/nn/a_test.cpp"], PRECOMPILED: [EXECUTOR]}, [USER]),
    ("remove it from EXCEPTIONS", {f"{TARGETS}/tests_testing.dir/testing/model_test.cpp.o": ["/p/tests/testing/model_test.cpp"]}, []),
])
def test_what_is_wrong_is_found(sentence, files, users):
    wrong, _ = check(files, users)
    assert len(wrong) == 1 and sentence in wrong[0], wrong


UNITS = "std::vector<fsdp::Unit, std::allocator<fsdp::Unit> >"


@pytest.mark.parametrize("symbol", [
    f"U {UNITS}::push_back(fsdp::Unit const&)",  # used, not defined
    f"W {UNITS}::vector()", f"W {UNITS}::vector({UNITS}&&)", f"W fsdp::Unit& {UNITS}::emplace_back<fsdp::Unit>(fsdp::Unit&&)",
    "W std::vector<int, std::allocator<int> >::push_back(int const&)", "W fsdp::Unit::~Unit()", "W fsdp::Rows::Rows(int)",
])
def test_what_every_object_may_have_is_left_alone(symbol):
    assert objects.check_symbols({"a.o": f"0000000000000000 {symbol}\n"}) == []


@pytest.mark.parametrize("symbol, sentence", [
    (f"{UNITS}::push_back(fsdp::Unit const&)", "a.o: it has members of lists of fsdp::Unit; put FSDP_LIST"),
    (f"{UNITS}::~vector()", "a.o: it has members of lists of fsdp::Unit"),
    ("fsdp::a::Rows::~Rows()", "a.o: it has the copy or destructor of fsdp::a::Rows; default these in a source"),
    ("fsdp::Rows::Rows(fsdp::Rows const&)", "of fsdp::Rows;"), ("fsdp::Rows::operator=(fsdp::Rows&&)", "of fsdp::Rows;"),
])
def test_what_the_library_has_is_found(symbol, sentence):
    wrong = objects.check_symbols({"a.o": f"                 U abort\n0000000000000000 W {symbol}\n"})
    assert len(wrong) == 1 and sentence in wrong[0], wrong
