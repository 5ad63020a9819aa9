# SPDX-License-Identifier: Apache-2.0
"""manners.py finds each thing that it is for, and leaves a good tree alone."""
import pathlib

import manners
import pytest
from support.files import fresh, write


def check(text, path="src/comm/a.cpp"):
    root = pathlib.Path(fresh("tree"))
    write(root / path, text)
    return manners.check(root)[0]


@pytest.mark.parametrize("path", ["src/comm/a.cpp", "include/comm/a.hpp", "src/comm/kernels/a.cpp"])
@pytest.mark.parametrize("manner, calls", {
    "ends the process": ["std::exit(1)", "::_exit(3)", "std::_Exit(1)", "exit (0)", "std::abort()", "abort()", "::abort()",
                         "std::terminate()", "std::atexit(f)"],
    "handles signals": ["std::signal(SIGTERM, f)", "::signal(SIGINT, f)", "signal(SIGHUP, SIG_IGN)", "sigaction(2, &a, &b)",
                        "struct sigaction action", "pthread_sigmask(SIG_SETMASK, &all, &before)", "std::raise(SIGTERM)"],
    "reads the environment": ['std::getenv("A")', 'environment("A")', 'setenv("A", "b", 1)', "::environ"],
    "prints": ['std::printf("x")', 'fprintf(f, "x")', "std::cerr << 1", "std::cout << 1", "std::clog << 1", 'print_sentence("x")',
               "write(STDERR_FILENO, a, b)", "std::fflush(stdout)"],
    "starts or ends MPI": ["MPI_Init(a, b)", "MPI_Init_thread(a, b, c, d)", "MPI_Abort(c, 1)", "MPI_Finalize()"],
    "changes OpenMP's settings": ["omp_set_num_threads(2)", "omp_set_dynamic(1)"],
}.items())
def test_each_of_them_is_found(folder, manner, calls, path):
    for call in calls:
        wrong = check(f"void f() {{\n  {call};\n}}\n", path)
        assert [sentence.split(" (")[0] for sentence in wrong[:1]] == [f"{path}:2: {manner}"], call


def test_good_code_is_left_alone(folder):
    assert check('// exit(1), getenv\nconst char* text = "std::abort()";\n') == []
    for good in ("table.abort(comm)", "link->abort()", "world.signal()", "error.signal()", "int signal() const { return 0; }",
                 "ExitStatus::done", "std::snprintf(a, b, c)", "MPI_Initialized(&a)", "MPI_Finalized(&a)", "omp_get_max_threads()",
                 "wait_for_exit_of(a)", "environment_of(a)"):
        assert check(f"void f() {{ {good}; }}\n") == [], good
    assert check("void f() { std::exit(1); }\n", "src/comm/launch/a.cpp") == []  # launchers may
