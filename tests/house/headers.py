# SPDX-License-Identifier: Apache-2.0
"""Compiles every public header alone, without making code.

usage: headers.py INCLUDE_FOLDER COMPILER [FLAG...]
"""
import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path


def compile_alone(header, command):
    source = f"#include <{header}>\n#include <{header}>\nint main() {{}}\n"  # twice: the guard is there
    return subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=source, capture_output=True, text=True)


def main():
    folder, command = Path(sys.argv[1]), sys.argv[2:]
    headers = sorted(path.relative_to(folder) for path in folder.rglob("*.hpp"))
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for header, result in zip(headers, pool.map(lambda header: compile_alone(header, command), headers)):
            if result.returncode:
                failed += 1
                print(f"<{header}> does not compile alone:\n{result.stderr}")
    print(f"{len(headers)} headers, {failed} failed")
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
