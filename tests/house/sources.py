# SPDX-License-Identifier: Apache-2.0
"""Compiles every public header alone, and sources that a build leaves out, without making code.

usage: sources.py INCLUDE_FOLDER SOURCE... -- COMPILER [FLAG...]

A file that includes the header H in any way is compiled on a precompiled H. That hides nothing: the file has H's names with and
without it. The headers that save most are precompiled, each alone, as which they are compiled in any case.
"""
import concurrent.futures
import functools
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

PRECOMPILED = 12
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', re.MULTILINE)


class Includes:
    """Which public headers a file includes, itself or by others. A header is named by its path below the include folder."""

    def __init__(self, folder):
        self.folder = folder

    @functools.cache
    def named_in(self, file):
        """files that a file's own lines include, as far as they are ours"""
        candidates = [[file.parent / name, self.folder / name.removeprefix("tessera/")] for name in INCLUDE.findall(file.read_text())]
        return [next(path.resolve() for path in pair if path.is_file()) for pair in candidates if any(path.is_file() for path in pair)]

    @functools.cache
    def of(self, file):
        """headers that a file includes, and the file itself if it is one of them"""
        reached, waiting = {file}, [file]
        while waiting:
            more = set(self.named_in(waiting.pop())) - reached
            reached |= more
            waiting.extend(more)
        return frozenset(path.relative_to(self.folder) for path in reached if path.is_relative_to(self.folder))


def most_saving(includes, files):
    """Headers to precompile, the largest first: each saves its own includes in every file that includes it."""
    saved = dict.fromkeys(files, 0)
    chosen = []
    sizes = {header: len(includes.of(includes.folder / header)) for file in files for header in includes.of(file)}
    for _ in range(PRECOMPILED):
        gains = {header: sum(max(0, size - saved[file]) for file in files if header in includes.of(file)) for header, size in sizes.items()}
        best = max(sorted(gains), key=gains.get)
        chosen.append(best)
        saved.update({file: max(saved[file], sizes[best]) for file in files if best in includes.of(file)})
    return sorted(chosen, key=sizes.get, reverse=True)


def compiled(command, source):
    return subprocess.run([*command, "-x", "c++", "-"], input=source, capture_output=True, text=True)


class Compiler:
    def __init__(self, command, includes, headers, folder):
        self.command, self.includes, self.headers, self.folder = command, includes, headers, folder
        self.usable = []

    def precompile(self, header):
        made = self.folder / str(header).replace("/", "_")
        # What the header instantiates is instantiated once, not by all that include it: 2 to 20 % less for each.
        flags = ["-fpch-instantiate-templates", "-x", "c++-header", str(self.includes.folder / header), "-o", str(made)]
        if subprocess.run([*self.command, *flags], capture_output=True).returncode == 0:  # else its own run says why
            self.usable.append((header, made))

    def run(self, file):
        """Compiles a source, or a header: twice, since the guard is there."""
        inside = self.includes.of(file)
        on = next((["-include-pch", str(made)] for header, made in self.usable if header in inside), [])
        if file in self.headers:
            line = f"#include <tessera/{file.relative_to(self.includes.folder)}>\n"
            return compiled([*self.command, *on, "-fsyntax-only"], 2 * line + "int main() {}\n")
        return subprocess.run([*self.command, *on, "-fsyntax-only", str(file)], capture_output=True, text=True)


def main():
    end = sys.argv.index("--")
    folder, command = Path(sys.argv[1]).resolve(), sys.argv[end + 1:]
    sources = [Path(source).resolve() for source in sys.argv[2:end]]
    headers = sorted(folder.rglob("*.hpp"))
    includes = Includes(folder)
    with tempfile.TemporaryDirectory() as made, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        compiler = Compiler(command, includes, set(headers), Path(made))
        if "clang" in command[0]:  # g++ takes precompiled headers by another option
            chosen = most_saving(includes, [*headers, *sources])
            list(pool.map(compiler.precompile, chosen))
            compiler.usable.sort(key=lambda pair: chosen.index(pair[0]))
        files = [*sources, *headers]
        failed = [(file, run.stderr) for file, run in zip(files, pool.map(compiler.run, files)) if run.returncode]
    for file, errors in failed:
        print(f"{file}{', alone,' if file in headers else ''} does not compile:\n{errors}")
    print(f"{len(headers)} headers and {len(sources)} sources, {len(failed)} failed")
    return 1 if failed or not headers else 0


if __name__ == "__main__":
    sys.exit(main())
