# SPDX-License-Identifier: Apache-2.0
"""Checks every #include of include/, src/ and bench/ against the layers, and a few words that have no place there: `virtual`, and calls that print.

usage: includes.py ROOT

A header of include/ is <tessera/...>, as for users; a header of src/ is "...", by its path from the file that includes it.
"""
import re
import sys
from pathlib import Path

# The layers, the lowest first, and within each the steps from its bottom to its top. A place includes itself and places of lower
# layers and steps; places of one step do not include each other. docs/architecture.md has the same table, which check_page compares.
LAYERS = [
    [["core"]],
    [["device"], ["device/compute"]],
    [["comm", "tiling", "precision"]],
    [["buffer"], ["sharding"], ["module"], ["optim"]],
    [["nn"], ["models"]],
    [["execution"], ["sequence", "verification"], ["plan", "comm/launch"], ["training"], ["umbrella"]],
    [["json"], ["checkpoint"], ["model_files"], ["testing/foreign"], ["testing"], ["text"]],
    [["trainer/text", "trainer/report"], ["trainer/data"], ["trainer/flags"], ["trainer/generate"], ["trainer/run"], ["trainer"],
     ["program/cli"], ["program/calibrate"], ["program/stacks"], ["program"], ["bench"]]]
# The suites of the kit that stand on tessera::sharding alone are testing/foreign, by header as in src/fsdp/testing/CMakeLists.txt.
FOREIGN_HEADERS = {f"{name}.hpp" for name in (
    "foreign_loop", "foreign_runs", "strategy", "strategy_loop", "communicator", "behaviours", "contract_behaviours", "exchange_behaviours",
    "faults", "values", "precision", "codec", "device", "guarded", "report", "results", "temporary_folder")}
KIT = ["testing/foreign", "testing"]  # seen by the kit alone

# The places of tessera::sharding, which sees nothing of tessera::tessera.
SHARDING = ["core", "device", "comm", "comm/launch", "tiling", "precision", "buffer", "sharding", "module", "optim"]

NARROWER = {  # what places see of the layers below them, where that is not all
    "tiling": ["core"],
    "precision": ["core", "device"],  # codecs enqueue operations
    "device/compute": ["core", "device"],
    "comm/launch": ["core", "device", "comm"],
    "nn": ["core", "device", "device/compute", "tiling", "precision"],  # modules know no ranks
    "sharding": ["core", "buffer"],  # schedules know no devices and no collectives
    "models": ["core", "device", "device/compute", "comm", "tiling", "precision", "buffer", "sharding", "module", "nn"],  # no optimizer
    "json": ["core"],
    "text": ["core", "json"],
    "trainer/text": ["text"],  # forwards
    "checkpoint": [place for place in SHARDING if place != "comm/launch"] + ["json"],  # no models, and no launcher
    "testing/foreign": [place for place in SHARDING if place != "comm/launch"],
}


def allowed():
    """place -> places it may include, besides itself"""
    places, below = {}, []
    for step in [step for layer in LAYERS for step in layer]:
        for place in step:
            hidden = {"umbrella", *(KIT if place not in KIT else ())}
            seen = [p for p in below if p in SHARDING] if place in SHARDING else below
            places[place] = [p for p in NARROWER.get(place, seen) if p not in hidden]
        below = below + step
    return places


ALLOWED = allowed()

ONE_FILE = {  # what stands in exactly one file each
    "MPI": r"mpi\.h",
    "NCCL": r"nccl\.h",
    "oneDNN": r"(oneapi/dnnl/)?dnnl.*\.(h|hpp)",
    "ISA-L": r"isa-l(/.*)?\.h",
    "cuBLAS": r"cublas.*\.h",
    "PCRE2": r"pcre2.*\.h",
    "utf8proc": r"utf8proc\.h",
}
NOT_INSTALLED = r"(nlohmann|CLI|toml\+\+|range|gtest|benchmark)/.*"  # an installed header may not ask for these
GOOGLETEST = r"gtest/.*"  # the conformance kit may: who includes it brings GoogleTest

# Who prints as it is: text that a model wrote, lines that are made printable there, benches' JSON. All others call print_text and
# its like (tessera/comm/launch/print.hpp), so that nothing of a file reaches the terminal as it is.
PRINTERS = ["src/comm/launch/print.cpp", "src/trainer/report/console.cpp",
            "src/trainer/generate/chat_session.cpp", "src/trainer/run/generate.cpp"]
PRINTS = re.compile(r"\b(?:fprintf|printf|fputs|puts|fwrite)\s*\(|\bstd::(?:cout|cerr|clog)\b")

VIRTUAL = "include/trainer/run/engine.hpp"  # the one border between programs and stacks, whose classes are abstract

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"', re.DOTALL)


def place_of(path):
    """The place in LAYERS of a path below include/ or src/, or of one in bench/, or None."""
    parts = Path(path).parts
    if parts[:3] == ("fsdp", "core", "json"):
        return "json"
    if parts[0] in ("comm", "tiling", "text"):
        return "comm/launch" if parts[:2] == ("comm", "launch") and len(parts) > 2 else parts[0]
    if parts[:3] in (("fsdp", "device", "compute"), ("fsdp", "device", "cuda"), ("fsdp", "device", "operations.hpp")):
        return "device/compute"
    if parts[:2] == ("fsdp", "testing") and len(parts) == 3 and parts[2] in FOREIGN_HEADERS:
        return "testing/foreign"
    if parts[0] == "fsdp":
        place = parts[1] if len(parts) > 2 else {"fsdp.hpp": "umbrella", "sharded.hpp": "optim", "version.hpp": "core"}.get(parts[1])
    else:
        place = "/".join(parts[:2]) if len(parts) > 2 else parts[0]
    return place if place in ALLOWED else None


def place_of_file(path):
    """The same of a path from the root; examples count as bench, which alone may include them."""
    return "bench" if path.parts[0] in ("bench", "examples") else place_of(Path(*path.parts[1:]))


def resolve(root, file, quote, name):
    """The path from root of one of our own files, or None for anybody else's."""
    if quote == "<" and name.startswith("tessera/"):
        path = root / "include" / name.removeprefix("tessera/")
    elif name.startswith("@PROJECT_SOURCE_DIR@/"):  # in templates of generated sources
        path = root / name.removeprefix("@PROJECT_SOURCE_DIR@/")
    else:
        path = file.parent / name
    path = path.resolve()
    return path.relative_to(root.resolve()) if path.is_file() and path.is_relative_to(root.resolve()) else None


def spelled_wrongly(root, file, quote, name):
    """What is wrong with how an #include is written, or nothing."""
    if quote == "<":
        if name.startswith("tessera/"):
            if "@" in name:  # CMake writes it
                return ""
            return f"{name} does not exist" if resolve(root, file, quote, name) is None else ""
        if name.split("/")[0] in ("comm", "tiling", "fsdp", "text", "trainer"):
            return f"write <tessera/{name}>"
        return ""
    ours = resolve(root, file, quote, name)
    if name.startswith("tessera/") or (ours and ours.parts[0] == "include"):
        return f'"{name}" is a header for users; write <tessera/...>'
    if ours is None or ours.parts[0] not in ("src", "bench", "examples") or (ours.parts[0] != "src" and not file.is_relative_to(root / "bench")):
        return f'"{name}" does not exist beside this file'
    return "a header for users includes one of src/" if file.relative_to(root).parts[0] == "include" else ""


def check(root):
    """All that is wrong below root, one sentence each."""
    wrong = []
    users = {library: [] for library in ONE_FILE}
    files = [f for home in ("include", "src", "bench") for f in sorted((root / home).rglob("*")) if f.suffix in
             (".hpp", ".cpp", ".cuh", ".cu", ".h", ".in") and (root / "bench/gpu") not in f.parents]
    for file in files:
        path = file.relative_to(root)
        place = place_of_file(path)
        if place is None:
            wrong.append(f"{path}: is in no layer; see LAYERS in tests/house/includes.py")
            continue
        text = file.read_text()
        for match in INCLUDE.finditer(text):
            quote, name = match.groups()
            where = f"{path}:{text.count(chr(10), 0, match.start(2)) + 1}"
            for library, pattern in ONE_FILE.items():
                if re.fullmatch(pattern, name) and path not in users[library]:
                    users[library].append(path)
            if (re.fullmatch(NOT_INSTALLED, name) and path.parts[0] == "include"
                    and not (place in ("testing", "testing/foreign") and re.fullmatch(GOOGLETEST, name))):
                wrong.append(f"{where}: an installed header includes <{name}>, which its users may not have")
            complaint = "" if name.endswith((".inc", ".in")) else spelled_wrongly(root, file, quote, name)
            if complaint:
                wrong.append(f"{where}: {complaint}")
                continue
            ours = resolve(root, file, quote, name)
            if ours is None:
                continue
            target = place_of_file(ours)
            if target != place and target not in ALLOWED[place]:
                wrong.append(f"{where}: {place} may not include {target} ({name})")
        code = NOT_CODE.sub(lambda m: "\n" * m.group().count("\n"), text)
        for match in re.finditer(r"\bvirtual\b", code) if str(path) != VIRTUAL else ():
            wrong.append(f"{path}:{code.count(chr(10), 0, match.start()) + 1}: 'virtual' has no place here")
        if place not in ("bench", "testing") and str(path) not in PRINTERS:
            for match in PRINTS.finditer(code):
                wrong.append(f"{path}:{code.count(chr(10), 0, match.start()) + 1}: prints by itself; call print_text, print_sentence "
                             "or print_warning of tessera/comm/launch/print.hpp")
    for library, paths in users.items():
        if len(paths) > 1:
            wrong.append(f"{library} is included by more than one file: {', '.join(map(str, paths))}")
    return wrong, len(files)


ROW = re.compile(r"^\| ([^|]*`[^|]*) \| (\d+) \|", re.MULTILINE)
PAGE_NAMES = {"tessera/fsdp/testing/foreign_loop.hpp": "testing/foreign", "tessera/fsdp/fsdp.hpp": "umbrella",
              "tessera/trainer/train_main.hpp": "trainer", "fsdp/core/json": "json", "src/program/main.cpp": "program"}


def check_page(text):
    """What the table of layers on docs/architecture.md says otherwise than LAYERS, one sentence each."""
    layer_of = {place: number for number, layer in enumerate(LAYERS, 1) for step in layer for place in step}
    page = {}
    for names, layer in ROW.findall(text):
        for name in re.findall(r"`([^`:]*)`", names):
            page[PAGE_NAMES.get(name, name.removeprefix("src/").removeprefix("fsdp/"))] = int(layer)
    order = list(page)
    wrong = [f"docs/architecture.md: {place} is on the page or in LAYERS, not in both" for place in sorted(page.keys() ^ ALLOWED.keys())]
    for place in sorted(page.keys() & ALLOWED.keys()):
        if page[place] != layer_of[place]:
            wrong.append(f"docs/architecture.md: {place} is in layer {layer_of[place]}")
        wrong += [f"docs/architecture.md: {place} may include {below}, which comes later" for below in ALLOWED[place]
                  if below in page and order.index(below) >= order.index(place)]
    return wrong


def main():
    wrong, files = check(Path(sys.argv[1]))
    wrong += check_page((Path(sys.argv[1]) / "docs/architecture.md").read_text())
    for sentence in wrong:
        print(sentence)
    print(f"{files} files, {len(wrong)} wrong")
    return 1 if wrong or not files else 0


if __name__ == "__main__":
    sys.exit(main())
