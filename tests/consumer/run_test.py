# SPDX-License-Identifier: Apache-2.0
"""Builds programs as a user would, and runs them: from an install tree (-k install), in a parent (-k subdirectory).

From an install tree: the projects that docs/get_started.md and docs/testing.md show, which are the smallest example and
the conformance kit over the examples' policies; a program of policies that the library has never seen; one of
tessera::sharding alone, without any other library, and others of what uses only that; where there is MPI, the example
that is a separate project. In a parent with strict warnings and headers of our names: a program of tessera::sharding
with checkpoints; of all that tessera::trainer and tessera::mpi use, that sources find their headers, and that a
program's main compiles. The environment has TESSERA_BUILD, the folder of the library's build, TESSERA_COMPILER, and
TESSERA_COMPONENT, which is mpi where that build has MPI.
"""
import concurrent.futures
import functools
import os
import pathlib
import platform
import re
import shlex
import shutil
import sys

import pytest
import support.program
from support.files import TESTS, read, write

SOURCE, CONSUMER, BUILD = TESTS.parent, TESTS / "consumer", pathlib.Path(os.environ["TESSERA_BUILD"])
COMPILER, MPI = os.environ["TESSERA_COMPILER"], os.environ.get("TESSERA_COMPONENT") == "mpi"
MAIN = CONSUMER / "main.cpp"
OTHERS = "ISAL nlohmann_json PCRE2 utf8proc CLI11 tomlplusplus range-v3 Boost MPI NCCL cuDNN CUDAToolkit GTest Python3".split()
ALL = [*OTHERS, "oneDNN"]
FOR_CHECKPOINTS = [name for name in ALL if name not in ("ISAL", "nlohmann_json")]
run = functools.partial(support.program.run, limit=1200)


def configure(source, folder, *arguments, hidden=(), status=0, **definitions):
    """Runs CMake, with packages hidden from it."""
    definitions = {"CMAKE_CXX_COMPILER": COMPILER, "CMAKE_CXX_FLAGS": "-Wall -Wextra -Werror"} | definitions | {
        f"CMAKE_DISABLE_FIND_PACKAGE_{name}": "ON" for name in hidden}
    return run(["cmake", "-G", "Ninja", "-S", source, "-B", folder, *arguments,
                *(f"-D{name}={value}" for name, value in definitions.items())], status=status)


def build(folder, program=None, *arguments):
    """Builds a project that is configured, and runs a program of it."""
    run(["cmake", "--build", folder])
    if program:
        run([f"{folder}/{program}", *arguments])


def failed(pattern, ended):
    """It did, and printed this once spaces and ends of lines are one space."""
    assert ended.status != 0, ended
    assert re.search(pattern, re.sub("[ \n]+", " ", f"{ended.out} {ended.err}")), f"no /{pattern}/ from {ended}"


@pytest.fixture(scope="module")
def installed(folder):
    """Configures a project that finds the installed library."""
    run("cmake --install", BUILD, "--prefix", folder / "prefix")
    return functools.partial(configure, CMAKE_PREFIX_PATH=folder / "prefix")


def check_flags(folder):
    flags = re.findall("^ +FLAGS = .*", read(f"{folder}/build.ninja"), re.M)
    assert flags and not re.search(r"-fopenmp|-pthread|-std=c\+\+|-O", "\n".join(flags)), flags


def link_shared(archive, *arguments):
    run([COMPILER], f"-shared -o all.so -Wl,--whole-archive prefix/lib/{archive} -Wl,--no-whole-archive prefix/lib/libtessera_core.a", *arguments)


def test_install_copies_nothing_where_a_library_is_not_built(folder):
    write("install.cmake", read(BUILD / "cmake_install.cmake").replace("libtessera_sharding.a", "libtessera_unbuilt.a"))
    failed("Nothing was installed: [^ ]*libtessera_unbuilt.a is not there; build all of it first",
           run(["cmake", f"-DCMAKE_INSTALL_PREFIX={folder}/half", "-P", "install.cmake"], status=None))
    assert not os.path.exists("half")


@pytest.mark.parametrize("pattern, hidden, definitions", [
    ("component 'unheard-of'", [], {"COMPONENTS": "unheard-of"}),
    ("component 'nccl'", [], {"COMPONENTS": "nccl"}),
    ("built with oneDNN [0-9.]*, and oneDNN 9.1.0 was found", [], {"oneDNN_ROOT": "onednn"}),
    ("component 'trainer' needs PCRE2", ["PCRE2"], {"COMPONENTS": "trainer"}),
    ("oneDNN was not found", ALL, {})], ids=["unknown", "nccl", "other_onednn", "no_pcre2", "no_onednn"])
def test_install_is_refused(installed, folder, pattern, hidden, definitions):
    if definitions.get("COMPONENTS") == "nccl" and list(pathlib.Path("prefix").rglob("libtessera_nccl*")):
        pytest.skip("it is installed")
    write("onednn/lib/libdnnl.so", "")
    write("onednn/include/oneapi/dnnl/dnnl_version.h",
          "".join(f"#define DNNL_VERSION_{part}\n" for part in ("MAJOR 9", "MINOR 1", "PATCH 0")))
    write("onednn/include/oneapi/dnnl/dnnl_config.h", "#define DNNL_CPU_THREADING_RUNTIME DNNL_RUNTIME_OMP\n")
    if "oneDNN_ROOT" in definitions:
        definitions = {"oneDNN_ROOT": folder / "onednn"}
    shutil.rmtree("refused", ignore_errors=True)
    failed(pattern, installed(CONSUMER, "refused", hidden=hidden, status=None, **definitions))


def test_install_is_enough_for_the_library(installed):
    installed(CONSUMER, "library", hidden=OTHERS, PROGRAMS=f"consumer={MAIN}", OPTIONAL="mpi;trainer")
    build("library", "consumer")
    check_flags("library")
    for archive in ("_core", "_json", "_text", "_sharding", "", "_checkpoint", "_model_files", "_trainer"):  # position-independent
        link_shared(f"libtessera{archive}.a")


def test_install_is_enough_for_sharding_without_any_other_library(installed):
    installed(CONSUMER / "sharding", "sharding", hidden=ALL, OPTIONAL="trainer")
    build("sharding", "sharded")  # two of the library in one process
    check_flags("sharding")
    openmp = run([COMPILER], "-print-file-name=libgomp.so").out
    link_shared("libtessera_sharding.a", "-Wl,--no-undefined", openmp, "-pthread")


def test_install_is_enough_for_checkpoints_and_the_kit_of_training_loops(installed):
    installed(CONSUMER / "on_sharding", "on_sharding", hidden=[name for name in ALL if name not in ("ISAL", "GTest")])
    build("on_sharding", "checkpointed", "steps")
    run("on_sharding/kit --gtest_brief=1")


def test_install_is_enough_for_text_without_sharding(installed):
    installed(CONSUMER, "text", hidden=[name for name in [*ALL, "OpenMP", "Threads"] if name not in ("PCRE2", "utf8proc")],
              COMPONENTS="text", PROGRAMS=f"text={SOURCE}/examples/20_tokenize_a_chat/main.cpp")
    build("text", "text", SOURCE / "tests/text/tokenizers/qwen.json", "chatml")
    check_flags("text")
    assert not re.search("sharding|gomp|dnnl", read("text/build.ninja"))


@pytest.mark.skipif(not shutil.which("pkg-config"), reason="no pkg-config")
def test_install_by_pkg_config(installed, monkeypatch):
    monkeypatch.setenv("PKG_CONFIG_PATH", "prefix/lib/pkgconfig")
    assert "dnnl" not in run("pkg-config --libs tessera-checkpoint").out
    assert run("pkg-config --print-requires tessera-foreign_testing").out.split() == ["tessera-sharding", "gtest"]
    flags = shlex.split(run("pkg-config --cflags --libs tessera-sharding").out)
    run([COMPILER], "-std=c++20 -Wall -Wextra -Werror", MAIN, flags, "-o by_pkg_config")
    run("./by_pkg_config")


def test_install_is_enough_for_the_projects_of_the_pages_and_for_policies(installed):
    installed(CONSUMER, "policies", PROGRAMS=f"policies={CONSUMER}/policies.cpp",
              COMPONENTS=f"trainer;{'mpi;' if MPI else ''}testing")
    shutil.copytree(SOURCE / "examples", "examples")
    write("mine/main.cpp", read(SOURCE / "examples/01_trainer/main.cpp"))
    for shown, project in ("get_started", "mine"), ("kit", "examples/09_test_a_policy"):
        shutil.copy(CONSUMER / shown / "CMakeLists.txt", project)
        installed(project, f"{project}/build")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:  # one source each
        list(pool.map(build, ["examples/09_test_a_policy/build", "mine/build", "policies"]))
    run("mine/build/mine")
    run("examples/09_test_a_policy/build/kit --gtest_brief=1 --gtest_filter=*Tiling*:*Precision*")  # 09 runs all
    tests = {"policies_test.py": "policies/policies"}
    if platform.machine() == "x86_64":
        tests["instruction_sets_test.py"] = "mine/build/mine"
    for test, program in tests.items():
        run([sys.executable, "-B", "-m", "pytest", "-c", TESTS / "pytest.ini", CONSUMER / test, "--program", program])


@pytest.mark.skipif(not MPI, reason="no MPI")
def test_install_is_enough_for_the_example_of_mpi(installed):
    installed(SOURCE / "examples/11_mpi", "mpi", CMAKE_CXX_FLAGS_RELEASE="")  # not optimized: one short run
    build("mpi")
    run("mpirun --allow-run-as-root --oversubscribe -np 2 mpi/11_mpi")


def in_parent(folder, main, links, **definitions):
    return configure(CONSUMER / "parent", folder, TESSERA_SOURCE=SOURCE, MAIN=main, LINKS=links, **definitions)


def check_built(folder, archive, others):
    """A project's `all` builds this archive, and nothing of the others."""
    inputs = run(["ninja", "-C", folder, "-t", "inputs", "all"]).out
    assert archive in inputs, f"{archive} is not built"
    assert not re.search(others, inputs), "more is built than is linked"


def test_subdirectory_of_the_trainer_finds_its_headers(folder):
    """To compile all of it would show no more than this and the program with checkpoints: 223 s instead of 84 s."""
    main = SOURCE / "examples" / ("11_mpi" if MPI else "01_trainer") / "main.cpp"
    in_parent("parent", main, f"tessera::trainer{';tessera::mpi' if MPI else ''}", CMAKE_CXX_FLAGS_RELEASE="")
    check_built("parent", "libtessera_trainer.a", r"\.cu\.o|tessera_testing|src/program")
    failed("comm/threads.hpp: No such file", run("cmake --build parent --target old_spelling", status=None))

    compiling = [line for line in run("ninja -C parent -t commands all").out.splitlines() if " -c " in line]
    assert sum("/src/" in command for command in compiling) > 30, "sources are missing"

    def check(command):
        command = re.sub(" -o [^ ]+ -c ", " ", re.sub(" -MD -MT [^ ]+ -MF [^ ]+", "", command, count=1), count=1)
        checked = "-fsyntax-only" if " -DTESSERA_CONSUMER " in command else "-E -o /dev/null"
        run(["sh", "-c", f"{command} {checked}"], cwd="parent")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(check, compiling))


@pytest.mark.parametrize("links, hidden, definitions, printed, archive, others", [
    ("tessera", ["PCRE2"], {}, "there is no tessera::text, nor what stands on it", "", ""),
    ("tessera", [], {}, "", "libtessera.a", "src/(fsdp/checkpoint|fsdp/model_files|fsdp/testing|trainer|program)/|tessera_mpi"),
    ("tessera", OTHERS, {"TESSERA_COMPONENTS": "library"}, "", "", ""),
    ("sharding", [], {}, "", "libtessera_sharding.a", "libtessera.a|src/fsdp/(nn|models|device/compute)/|tessera_mpi"),
    ("sharding", ALL, {}, "there is no tessera::tessera", "", ""),
    ("sharding", ALL, {"TESSERA_COMPONENTS": "sharding"}, "", "", "")],
    ids=["no_pcre2", "library", "library_component", "sharding", "sharding_without_others", "sharding_component"])
def test_subdirectory_of_the_library_alone(folder, links, hidden, definitions, printed, archive, others):
    shutil.rmtree("alone", ignore_errors=True)
    in_parent("alone", MAIN, f"tessera::{links}", hidden=hidden, **definitions).prints(printed)
    if archive:
        check_built("alone", archive, others)


def test_subdirectory_of_sharding_with_checkpoints(folder):
    """The preset has them where their libraries are."""
    in_parent("kept", CONSUMER / "on_sharding/checkpointed.cpp", "tessera::sharding;tessera::checkpoint",
              hidden=FOR_CHECKPOINTS)
    check_built("kept", "libtessera_checkpoint.a",
                "libtessera.a|src/fsdp/(nn|models|model_files|device/compute)/|tessera_mpi")
    build("kept", "program", "steps")
    configure(SOURCE, "preset", "--preset", "sharding", hidden=FOR_CHECKPOINTS)
    assert "libtessera_checkpoint.a:" in run("ninja -C preset -t targets all").out
    configure(SOURCE, "preset_alone", "--preset", "sharding", hidden=ALL).prints("there is no tessera::checkpoint")


def test_subdirectory_of_text(folder):
    """And the preset that builds it with its tests: neither has anything that shards."""
    shutil.rmtree("text_alone", ignore_errors=True)
    others = [name for name in [*ALL, "OpenMP"] if name not in ("nlohmann_json", "PCRE2", "utf8proc", "GTest")]
    in_parent("text_alone", SOURCE / "examples/20_tokenize_a_chat/main.cpp", "tessera::text", hidden=others,
              TESSERA_COMPONENTS="text")
    check_built("text_alone", "libtessera_text.a", "libtessera_sharding.a|src/(comm|fsdp/(device|checkpoint)|trainer)/")
    configure(SOURCE, "preset_text", "--preset", "text", hidden=others)
    targets = run("ninja -C preset_text -t targets all").out
    assert "tests_text:" in targets and "libtessera_sharding.a:" not in targets
