# SPDX-License-Identifier: Apache-2.0
"""Checks every #include of include/ and src/ against the floors of the house, and a few words that have no place there: `virtual`, and calls that print.

usage: includes.py ROOT

A file of include/fsdp/nn/ or src/nn/ may include what FLOORS lists for nn, its own folder, and the standard library.
"""
import re
import sys
from pathlib import Path

FLOOR_3 = ["core", "device", "comm", "tiling", "precision", "buffer", "nn"]
FLOOR_5 = FLOOR_3 + ["sharding"]
FLOOR_6 = FLOOR_5 + ["module"]
FLOOR_7 = FLOOR_6 + ["models", "optim"]
FLOOR_8 = FLOOR_7 + ["plan", "checkpoint", "data", "report", "text"]

# place -> places it may include, besides itself
FLOORS = {
    "core": [],
    "device": ["core"],
    "comm": ["core", "device"],
    "tiling": ["core"],
    "precision": ["core"],
    "buffer": ["core", "device", "comm"],
    "nn": ["core", "device", "tiling", "precision"],
    "sharding": ["core", "buffer"],
    "module": FLOOR_5,
    "models": FLOOR_6,
    "optim": FLOOR_6,
    "plan": FLOOR_7,
    "checkpoint": FLOOR_7 + ["data", "report"],
    "data": FLOOR_7 + ["checkpoint", "report", "text"],
    "report": FLOOR_7 + ["checkpoint", "data"],
    "text": FLOOR_7,
    "train": FLOOR_8,
    "testing": FLOOR_8 + ["train", "top"],
    "bench": FLOOR_8 + ["train", "top"],
    "top": FLOOR_8 + ["train", "bench"],
}

ONE_FILE = {  # what stands in exactly one file each
    "MPI": r"mpi\.h",
    "NCCL": r"nccl\.h",
    "oneDNN": r"(oneapi/dnnl/)?dnnl.*\.(h|hpp)",
    "ISA-L": r"isa-l(/.*)?\.h",
    "cuBLAS": r"cublas.*\.h",
    "PCRE2": r"pcre2.*\.h",
    "utf8proc": r"utf8proc\.h",
}
RANGES = r"range/v3/.*"  # .cpp only: neither nvcc nor a consumer shall see it
NOT_INSTALLED = r"(nlohmann|CLI|toml\+\+|gtest|benchmark)/.*"  # an installed header may not ask for these
KIT = r"gtest/.*"  # the conformance kit may: who includes it brings GoogleTest

# Who prints as it is: text that a model wrote, lines that are made printable there, benches' JSON. All others call print_text and
# its like (core/terminal_text.hpp), so that nothing of a file reaches the terminal as it is.
PRINTERS = ["src/core/terminal_text.cpp", "src/report/console.cpp", "src/report/byte_progress.cpp", "src/train/chat_session.cpp",
            "include/fsdp/train/generate.hpp"]
PRINTS = re.compile(r"\b(?:fprintf|printf|fputs|puts|fwrite)\s*\(|\bstd::(?:cout|cerr|clog)\b")

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def place_of(path):
    """The row of FLOORS that a path below include/ or src/ belongs to, or None."""
    parts = Path(path).parts
    if parts[0] == "fsdp":
        parts = parts[1:]
        if len(parts) == 1:
            return {"fsdp.hpp": "top", "version.hpp": "core"}.get(parts[0])
    if parts[0] in ("cli", "stacks"):
        return "top"
    return parts[0] if len(parts) > 1 and parts[0] in FLOORS else None


def resolve(root, file, quote, name):
    """The path below include/ or src/ of one of our own files, or None for anybody else's."""
    homes = [root / "include", root / "src"]
    candidates = [file.parent / name] if quote == '"' else []
    for candidate in candidates + [home / name for home in homes]:
        for home in homes:
            if candidate.is_file() and candidate.resolve().is_relative_to(home.resolve()):
                return candidate.resolve().relative_to(home.resolve())
    return None


def check(root):
    """All that is wrong below root, one sentence each."""
    wrong = []
    users = {library: [] for library in ONE_FILE}
    files = [f for home in ("include", "src") for f in sorted((root / home).rglob("*")) if f.suffix in
             (".hpp", ".cpp", ".cuh", ".cu", ".h", ".in")]
    for file in files:
        path = file.relative_to(root)
        place = place_of(Path(*path.parts[1:]))
        if place is None:
            wrong.append(f"{path}: stands on no floor; see FLOORS in tests/house/includes.py")
            continue
        text = file.read_text()
        for match in INCLUDE.finditer(text):
            quote, name = match.groups()
            where = f"{path}:{text.count(chr(10), 0, match.start(2)) + 1}"
            for library, pattern in ONE_FILE.items():
                if re.fullmatch(pattern, name) and path not in users[library]:
                    users[library].append(path)
            if re.fullmatch(RANGES, name) and file.suffix != ".cpp":
                wrong.append(f"{where}: <{name}> is for .cpp files only")
            if (re.fullmatch(NOT_INSTALLED, name) and path.parts[0] == "include"
                    and not (place == "testing" and re.fullmatch(KIT, name))):
                wrong.append(f"{where}: an installed header includes <{name}>, which its users may not have")
            ours = resolve(root, file, quote, name)
            if ours is None:
                if name.split("/")[0] in ("fsdp", "comm", "tiling"):
                    wrong.append(f"{where}: {name} does not exist")
                continue
            target = place_of(ours)
            if target != place and target not in FLOORS[place]:
                wrong.append(f"{where}: {place} may not include {target} ({name})")
        code = NOT_CODE.sub(lambda m: "\n" * m.group().count("\n"), text)
        for match in re.finditer(r"\bvirtual\b", code):
            wrong.append(f"{path}:{code.count(chr(10), 0, match.start()) + 1}: 'virtual' has no place here")
        if place not in ("bench", "testing") and str(path) not in PRINTERS:
            for match in PRINTS.finditer(code):
                wrong.append(f"{path}:{code.count(chr(10), 0, match.start()) + 1}: prints by itself; call print_text, print_sentence "
                             "or print_warning of core/terminal_text.hpp")
    for library, paths in users.items():
        if len(paths) > 1:
            wrong.append(f"{library} is included by more than one file: {', '.join(map(str, paths))}")
    return wrong, len(files)


def main():
    wrong, files = check(Path(sys.argv[1]))
    for sentence in wrong:
        print(sentence)
    print(f"{files} files, {len(wrong)} wrong")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
