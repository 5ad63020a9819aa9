# SPDX-License-Identifier: Apache-2.0
"""Runs of programs under test, and their output. Regular expressions are searched in lines."""
import contextlib
import dataclasses
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time

import pytest

from support.files import fresh, listing, read, steps

LIMIT = float(os.environ.get("TESSERA_TEST_LIMIT", 120))  # seconds of one run
os.environ["OMP_WAIT_POLICY"] = "passive"  # tests share cores: threads that wait should not spin
NARROW = "--hidden 32 --heads 2 --kv-heads 1 --head-dim 16 --intermediate 48 --seq-len 16"  # the size of many small models
WHOLE = os.environ.get("TESSERA_SWEEP", "whole") == "whole"  # sweeps try every case, else a sample of them


def words(*arguments):
    """Arguments of a command: strings are split as a shell does, everything else is one word; lists hold words."""
    split = []
    for argument in arguments:
        if isinstance(argument, str):
            split += shlex.split(argument)
        elif isinstance(argument, (list, tuple)):
            split += map(str, argument)
        else:
            split.append(str(argument))
    return split


def tail(text):
    return "\n".join(text.splitlines()[-20:])


@dataclasses.dataclass
class Ended:
    """A run that has ended."""

    command: list
    status: int
    out: str
    err: str

    def __str__(self):
        return f"{shlex.join(self.command)}\n--- stdout\n{tail(self.out)}\n--- stderr\n{tail(self.err)}"

    def prints(self, *patterns):
        """Each is found in a line of stdout."""
        for pattern in patterns:
            assert re.search(pattern, self.out, re.M), f"no /{pattern}/ in stdout of {self}"
        return self

    def warns(self, *patterns):
        """Each is found in a line of stderr."""
        for pattern in patterns:
            assert re.search(pattern, self.err, re.M), f"no /{pattern}/ in stderr of {self}"
        return self

    def omits(self, *patterns):
        """None is found in a line of stdout or stderr."""
        for pattern in patterns:
            assert not re.search(pattern, self.out + self.err, re.M), f"/{pattern}/ in {self}"
        return self


def run(*arguments, status=0, limit=LIMIT, **options):
    """Runs a command to its end, which is with `status` (None: any); `options` are those of subprocess.Popen or `input`."""
    command, text = words(*arguments), options.pop("input", None)
    options = {"stdin": subprocess.DEVNULL if text is None else subprocess.PIPE, "stdout": subprocess.PIPE,
               "stderr": subprocess.PIPE, "encoding": "utf-8", "errors": "replace", "start_new_session": True} | options
    with subprocess.Popen(command, **options) as process:
        try:
            out, err = process.communicate(text, timeout=limit)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    ended = Ended(command, process.returncode, out or "", err or "")
    assert status is None or ended.status == status, f"status {ended.status} instead of {status}: {ended}"
    return ended


def until(condition, what, seconds=30):
    """Waits until `condition()` is true and returns its value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return value


class Running:
    """A command in the background, killed where its `with` ends; its output goes to files."""

    def __init__(self, command, **options):
        self.command = command
        self.files = [open(f"../{name}", "w+", encoding="utf-8", errors="replace") for name in ("out", "err")]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.files[0], stderr=self.files[1], **options)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for file in self.files:
            file.close()

    def output(self):
        read = []
        for file in self.files:
            with open(file.name, encoding="utf-8", errors="replace") as copy:
                read.append(copy.read())
        return Ended(self.command, self.process.poll(), *read)

    def until(self, condition, what, seconds=30):
        """Waits until `condition()` is true, which it has to be before the command ends."""
        def reached():
            ended = self.process.poll() is not None
            value = condition()
            assert value or not ended, f"ended before {what}: {self.output()}"
            return value
        return until(reached, what, seconds)

    def makes_steps(self, count=3, metrics="metrics.jsonl"):
        """Waits until the training has written `count` steps."""
        self.until(lambda: os.path.exists(metrics) and len(steps(metrics)) >= count, f"{count} steps")
        return self

    def send(self, name):
        """Sends a signal by its name without SIG."""
        self.process.send_signal(signal.Signals[f"SIG{name}"])

    def ends(self, status, seconds=30):
        """It does within so many seconds, with this status (None: any)."""
        until(lambda: self.process.poll() is not None, f"the end of {shlex.join(self.command)}", seconds)
        ended = self.output()
        assert status is None or ended.status == status, f"status {ended.status} instead of {status}: {ended}"
        return ended


@dataclasses.dataclass
class Program:
    """The program under test, behind a launcher where there is one."""

    path: pathlib.Path
    launcher: tuple = ()

    def under(self, *launcher):
        """The same, started by a launcher: under("mpirun --oversubscribe -np 2")."""
        return Program(self.path, tuple(words(*launcher)))

    def command(self, *arguments):
        return [*self.launcher, str(self.path), *words(*arguments)]

    def __call__(self, *arguments, **options):
        """Runs it to its end, with status 0 unless another is given."""
        return run(self.command(*arguments), **options)

    def refuses(self, pattern, *arguments, status=2, lines=1, **options):
        """It ends with status 2, a reason that matches in so many lines on stderr (None: any), and nothing new on disk."""
        before = listing()
        ended = self(*arguments, status=status, **options).warns(pattern)
        assert lines is None or ended.err.count("\n") == lines, f"not {lines} lines on stderr: {ended}"
        assert listing() == before, f"left files behind: {set(listing()) ^ set(before)} {ended}"
        return ended

    def start(self, *arguments, **options):
        """A run in the background: use it in a `with`."""
        return Running(self.command(*arguments), **options)

    def train(self, *arguments, **options):
        """A long training in the background that has made steps, which it writes to metrics.jsonl."""
        pathlib.Path("metrics.jsonl").unlink(missing_ok=True)
        running = self.start(*arguments, "--metrics metrics.jsonl", **options)
        try:
            return running.makes_steps()
        except BaseException:
            running.__exit__()
            raise


def gone(pid):
    """Waits until a process has ended: a launcher that has ended may have killed it a moment ago."""
    def ended():
        try:
            return re.search(r"^State:\s[ZX]", read(f"/proc/{pid}/status"), re.M)
        except (FileNotFoundError, ProcessLookupError):
            return True
    until(ended, f"the end of process {pid}", 10)


def instruction_sets():
    """The instruction sets of TESSERA_ISA that this x86-64 processor has, the least first."""
    flags = set(read("/proc/cpuinfo").split())
    by_flag = {"avx2": "avx2", "avx512dq": "avx512", "avx512_bf16": "avx512_bf16"}
    return ["baseline"] + [name for flag, name in by_flag.items() if flag in flags]


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system in memory, mounted on a new folder; skips the test where mounting is not permitted."""
    os.mkdir(folder)
    if os.system(f"mount -t tmpfs -o size={size} tessera_test {folder} 2>/dev/null"):
        pytest.skip("mounting a disk is not permitted here")
    try:
        yield
    finally:
        run("umount", folder)


def has_stack(program, comm):
    """Whether the program was built with this communicator, such as "mpi"."""
    return re.search(rf"^  --comm .*\b{comm}\b", program("stacks").out, re.M) is not None


def peak(dry_run):
    """The bytes of the peak in the table of a dry run or a plan."""
    return int(re.search(r"^ *peak +(\d+)", dry_run.out, re.M)[1])


def ranks_of(launcher_pid, program_path):
    """The processes of an mpirun's program that still run: {rank: pid}."""
    found, program_path = {}, os.path.realpath(program_path)
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "exe") != program_path or f"\nPPid:\t{launcher_pid}\n" not in read(process / "status"):
                continue
            rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", (process / "environ").read_bytes())
        except OSError:  # it has just ended, or is another user's
            continue
        if rank:
            found[int(rank[1])] = int(process.name)
    return found


@contextlib.contextmanager
def job(program, count, *arguments):
    """A job of mpirun in the background: the launcher and {rank: pid}. None of these processes stays."""
    ranks = {}
    with program.under("mpirun --oversubscribe -np", count).start(*arguments) as launcher:
        try:
            launcher.until(lambda: ranks.update(ranks_of(launcher.process.pid, program.path)) or len(ranks) == count, "its ranks")
            yield launcher, ranks
        finally:
            for pid in ranks.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def as_printed(program, *arguments, **options):
    """Runs it to its end; the output still contains carriage returns, which are line ends elsewhere."""
    ended = program(*arguments, encoding=None, errors=None, **options)
    return dataclasses.replace(ended, out=(ended.out or b"").decode(), err=(ended.err or b"").decode())


def faulty(program, under, fault="", **others):
    """The program with system calls that fail on paths that contain `under`. `fault` and the others, whose names are
    without TESSERA_FAULT_, are those of tests/support/faults.cpp."""
    variables = {"": fault, "_UNDER": under} | {f"_{name.upper()}": value for name, value in others.items()}
    return program.under("env", f"LD_PRELOAD={os.environ['TESSERA_FAULTS']}",
                         [f"TESSERA_FAULT{name}={value}" for name, value in variables.items()])


def trained(program, name, *arguments):
    """A training that leaves NAME.jsonl and NAME/ in the place of older ones."""
    return program(*arguments, "--metrics", fresh(f"{name}.jsonl"), "--checkpoint-dir", fresh(name))
