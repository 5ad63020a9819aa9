# SPDX-License-Identifier: Apache-2.0
"""Compiles every public header alone, and sources that a build leaves out, without making code.

usage: sources.py INCLUDE_FOLDER SOURCE... -- COMPILER [FLAG...]
"""
import concurrent.futures
import os
import subprocess
import sys
from pathlib import Path


def compile_header(header, command):
    source = f"#include <{header}>\n#include <{header}>\nint main() {{}}\n"  # twice: the guard is there
    return subprocess.run([*command, "-fsyntax-only", "-x", "c++", "-"], input=source, capture_output=True, text=True)


def compile_source(source, command):
    return subprocess.run([*command, "-fsyntax-only", source], capture_output=True, text=True)


def main():
    end = sys.argv.index("--")
    folder, sources, command = Path(sys.argv[1]), sys.argv[2:end], sys.argv[end + 1:]
    headers = sorted(path.relative_to(folder) for path in folder.rglob("*.hpp"))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [(source, pool.submit(compile_source, source, command)) for source in sources]
        runs += [(f"<tessera/{header}>, alone,", pool.submit(compile_header, "tessera" / header, command)) for header in headers]
        failed = [(name, run.result().stderr) for name, run in runs if run.result().returncode]
    for name, errors in failed:
        print(f"{name} does not compile:\n{errors}")
    print(f"{len(headers)} headers and {len(sources)} sources, {len(failed)} failed")
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
