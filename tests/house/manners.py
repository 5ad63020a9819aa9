# SPDX-License-Identifier: Apache-2.0
"""Checks that the library behaves as a guest in somebody's program: no call that ends the process, handles signals, reads the
environment, prints, starts or ends MPI, or changes the calling thread's OpenMP settings.

usage: manners.py ROOT

FOLDERS lists what is checked, by include/ and src/ alike. Launchers are what programs of ours want besides.
"""
import re
import sys
from pathlib import Path

from includes import NOT_CODE

FOLDERS = ["comm", "tiling"] + ["fsdp/" + place for place in
                                ("core", "device", "precision", "buffer", "sharding", "module", "optim")]
EXCEPT = ["comm/launch", "fsdp/device/compute", "fsdp/device/cuda"]  # of programs; of tessera::tessera and ::cuda
ALLOWED = {  # (file, manner): why it is no misbehaviour
    ("include/fsdp/core/environment.hpp", "reads the environment"): "for launchers and programs, which call it",
    ("src/fsdp/device/cpu/threads.hpp", "changes OpenMP's settings"): "a scope that sets them back",
}

MANNERS = {
    "ends the process": r"\b(?:_exit|_Exit|exit|quick_exit|atexit|at_quick_exit)\s*\(|\bstd::terminate\s*\(|(?<![\w.>])abort\s*\(",
    "handles signals": r"(?<!\w)(?:std)?::signal\s*\(|\bsignal\s*\(\s*SIG|\b(?:sigaction|sigprocmask|pthread_sigmask|raise)\b|<csignal>|<signal\.h>",
    "reads the environment": r"\b(?:secure_)?getenv\b|\bsetenv\b|\bputenv\b|\benvironment\s*\(|\benviron\b",
    "prints": r"\b(?:v?f?printf|fputs|fputc|putchar|puts|perror|fwrite)\s*\(|\bstd::(?:cout|cerr|clog)\b|\bSTD(?:OUT|ERR)_FILENO\b"
              r"|\bprint_(?:text|sentence|warning)\s*\(|\bstd(?:out|err)\b",
    "starts or ends MPI": r"\bMPI_(?:Init|Init_thread|Finalize|Abort)\b",
    "changes OpenMP's settings": r"\bomp_set_\w+\s*\(",
}


def files_of(root):
    for home in ("include", "src"):
        for folder in FOLDERS:
            for file in sorted((root / home / folder).rglob("*")):
                path = file.relative_to(root)
                below = "/".join(path.parts[1:])
                if file.suffix in (".hpp", ".cpp", ".cuh", ".cu") and not any(below.startswith(e + "/") for e in EXCEPT):
                    yield file, path


def check(root):
    """All that is wrong below root, one sentence each, and the number of files."""
    wrong, count = [], 0
    for file, path in files_of(root):
        count += 1
        code = NOT_CODE.sub(lambda m: "\n" * m.group().count("\n"), file.read_text())
        for manner, pattern in MANNERS.items():
            if (str(path), manner) in ALLOWED:
                continue
            for match in re.finditer(pattern, code):
                wrong.append(f"{path}:{code.count(chr(10), 0, match.start()) + 1}: {manner} ({match.group().strip()}); a guest "
                             "throws fsdp::Error instead, and programs do the rest in comm/launch or above")
    return wrong, count


def main():
    wrong, count = check(Path(sys.argv[1]))
    for sentence in wrong:
        print(sentence)
    print(f"{count} files, {len(wrong)} wrong")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
