# SPDX-License-Identifier: Apache-2.0
"""manners.py finds each thing that it is for, and leaves a good tree alone."""
import tempfile
import unittest
from pathlib import Path

import manners


def check(text, path="src/comm/a.cpp"):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return manners.check(Path(folder))[0]


class Manners(unittest.TestCase):
    def test_each_of_them(self):
        for manner, calls in {
            "ends the process": ["std::exit(1)", "::_exit(3)", "std::_Exit(1)", "exit (0)", "std::abort()", "abort()", "::abort()",
                                 "std::terminate()", "std::atexit(f)"],
            "handles signals": ["std::signal(SIGTERM, f)", "::signal(SIGINT, f)", "signal(SIGHUP, SIG_IGN)", "sigaction(2, &a, &b)",
                                "struct sigaction action", "pthread_sigmask(SIG_SETMASK, &all, &before)", "std::raise(SIGTERM)"],
            "reads the environment": ['std::getenv("A")', 'environment("A")', 'setenv("A", "b", 1)', "::environ"],
            "prints": ['std::printf("x")', 'fprintf(f, "x")', "std::cerr << 1", "std::cout << 1", "std::clog << 1", 'print_sentence("x")',
                       "write(STDERR_FILENO, a, b)", "std::fflush(stdout)"],
            "starts or ends MPI": ["MPI_Init(a, b)", "MPI_Init_thread(a, b, c, d)", "MPI_Abort(c, 1)", "MPI_Finalize()"],
            "changes OpenMP's settings": ["omp_set_num_threads(2)", "omp_set_dynamic(1)"],
        }.items():
            for call in calls:
                for path in ("src/comm/a.cpp", "include/comm/a.hpp", "src/comm/kernels/a.cpp"):
                    wrong = check(f"void f() {{\n  {call};\n}}\n", path)
                    self.assertEqual([sentence.split(" (")[0] for sentence in wrong[:1]], [f"{path}:2: {manner}"], call)

    def test_good_code_is_left_alone(self):
        self.assertEqual([], check('// exit(1), getenv\nconst char* text = "std::abort()";\n'))
        for good in ("table.abort(comm)", "link->abort()", "world.signal()", "error.signal()", "int signal() const { return 0; }",
                     "ExitStatus::done", "std::snprintf(a, b, c)", "MPI_Initialized(&a)", "MPI_Finalized(&a)", "omp_get_max_threads()",
                     "wait_for_exit_of(a)", "environment_of(a)"):
            self.assertEqual([], check(f"void f() {{ {good}; }}\n"), good)

    def test_launchers_may(self):
        self.assertEqual([], check("void f() { std::exit(1); }\n", "src/comm/launch/a.cpp"))


if __name__ == "__main__":
    unittest.main()
