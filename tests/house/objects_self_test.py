# SPDX-License-Identifier: Apache-2.0
"""objects.py finds test sources that see a stack, and leaves others alone."""
import unittest

import objects

EXECUTOR = "/p/build/include/tessera/fsdp/execution/executor.hpp"


def check(files, users=()):
    text = "".join(f"{name}: #deps {len(deps)}, deps mtime 1 (VALID)\n" + "".join(f"    {dep}\n" for dep in deps) + "\n"
                   for name, deps in files.items())
    return objects.check(objects.dependencies(text), lambda name: users)


class Objects(unittest.TestCase):
    def found(self, files, sentence, users=()):
        wrong, _ = check(files, users)
        self.assertEqual(len(wrong), 1, wrong)
        self.assertIn(sentence, wrong[0])

    def test_stacks_exceptions_and_others_are_left_alone(self):
        self.assertEqual(([], 5), check({
            "tests/CMakeFiles/tests_stacks.dir/Unity/unity_0_cxx.cxx.o": ["/p/tests/support/queued/modules.cpp", EXECUTOR],
            "tests/CMakeFiles/tests_mpi.dir/support/stacks/mpi_stacks.cpp.o": ["/p/tests/support/stacks/mpi_stacks.cpp", EXECUTOR],
            "tests/CMakeFiles/tests_testing.dir/testing/model_test.cpp.o": ["/p/tests/testing/model_test.cpp", EXECUTOR],
            "tests/CMakeFiles/tests_plan.dir/plan/plan_test.cpp.o": ["/p/tests/plan/plan_test.cpp", "/p/include/a.hpp"],
            "tests/CMakeFiles/tests_cuda_host_killed.dir/killed.cpp.o": ["/p/bench/gpu/killed.cpp", EXECUTOR],
            "src/CMakeFiles/tessera_trainer.dir/a.cpp.o": ["/p/src/trainer/a.cpp", EXECUTOR]}))

    def test_a_source_that_sees_a_stack(self):
        for header in objects.HEADERS:
            self.found({"tests/CMakeFiles/tests_plan.dir/plan/plan_test.cpp.o": ["/p/tests/plan/plan_test.cpp", "/p/include/" + header]},
                       f"tests/plan/plan_test.cpp: it depends on {header}")

    def test_one_of_a_unity_build(self):
        self.found({"tests/CMakeFiles/tests_plan.dir/Unity/unity_0_cxx.cxx.o":
                    ["/p/build/tests/CMakeFiles/tests_plan.dir/Unity/unity_0_cxx.cxx", "/p/tests/plan/a_test.cpp", EXECUTOR,
                     "/p/tests/plan/b_test.cpp"]}, "tests/plan/a_test.cpp, tests/plan/b_test.cpp: one of them depends on")

    def test_one_that_sees_it_through_a_precompiled_header(self):
        user, header = "tests/CMakeFiles/tests_nn.dir/nn/a_test.cpp.o", "tests/CMakeFiles/tests_stacks.dir/cmake_pch.hxx.gch"
        files = {user: ["/p/tests/nn/a_test.cpp"], header: [EXECUTOR]}
        self.found(files, "tests/nn/a_test.cpp: it depends on", users=[user])
        self.assertEqual(([], 1), check(files))

    def test_an_exception_that_is_none(self):
        self.found({"tests/CMakeFiles/tests_testing.dir/testing/model_test.cpp.o": ["/p/tests/testing/model_test.cpp"]},
                   "remove it from EXCEPTIONS")


if __name__ == "__main__":
    unittest.main()
