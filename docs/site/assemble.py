# SPDX-License-Identifier: Apache-2.0
"""Gathers the book's pages for mkdocs: links follow the files to their places in the site, marks of code blocks go, headers and
examples that inline code names become links, each example becomes a page, and the API gets its front page. Then, with --search, adds
the API to the search index.

usage: assemble.py ROOT PAGES TAGS            writes PAGES; TAGS is Doxygen's tag file, of the API in PAGES/api
       assemble.py --search SITE TAGS         adds to SITE/search/search_index.json
"""
import html
import json
import os
import re
import shutil
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from pages import CODE, FENCE, LINK, MARK, pages

FOLDERS = {  # of the API, in the order of the layers
    "The library": [
        ("fsdp", "All of it, and the version"), ("fsdp/core", "Tensors, types, errors"), ("fsdp/device", "Devices"),
        ("fsdp/device/operations", "Elementwise operations and steps"), ("fsdp/device/compute", "Operations that compute"), ("comm", "Communication"), ("tiling", "Tiling"), ("fsdp/precision", "Precision"),
        ("fsdp/buffer", "Placements and layouts"), ("fsdp/nn", "Modules"), ("fsdp/sharding", "Strategies and schedules"),
        ("fsdp/module", "Stacks, units, shards"), ("fsdp/models", "Models"), ("fsdp/optim", "Optimizers"),
        ("fsdp/execution", "Executor and steps"), ("fsdp/sequence", "Shared sequences"),
        ("fsdp/verification", "Digests and verification"), ("fsdp/plan", "Dry runs"), ("fsdp/training", "Training and evaluation"),
        ("text", "Tokenizers and templates"), ("fsdp/checkpoint", "Checkpoints"), ("fsdp/model_files", "Folders of models"),
        ("fsdp/testing", "The conformance kit"),
        ("fsdp/testing/queued", "An asynchronous device on the CPU")],
    "The trainer": [
        ("trainer", "A whole program"), ("trainer/report", "Reports"), ("trainer/data", "Data"),
        ("trainer/flags", "Options"), ("trainer/generate", "Generation"), ("trainer/run", "Runs")]}
FIRST = [  # the names to start with, and what they are
    ("fsdp::Stack", "policies as one type: sharding, communicator, precision, tiling, sequences"),
    ("fsdp::FullyShard", "sharding: FSDP2; weights are gathered unit by unit, gradients reduce-scattered"),
    ("fsdp::Zero3", "sharding: ZeRO-3, each unit one flat range in equal parts"),
    ("fsdp::HybridShard", "sharding: HSDP and HFSDP, another strategy within groups of ranks"),
    ("fsdp::Replicated", "sharding: none; data parallelism, all weights on every rank"),
    ("fsdp::comm::Threads fsdp::comm::Mpi", "communicators: ranks are threads of one process, or MPI's processes"),
    ("fsdp::Bf16Mixed", "precision: computes in bf16, main weights and gradients are float"),
    ("fsdp::tiling::TokensPerTile", "tiling: MLP and loss in tiles of at most N tokens"),
    ("fsdp::Llama", "a model over a stack: Llama, Mistral, Qwen2, Qwen3"),
    ("fsdp::Sharded", "units of named tensors and their optimizer, for code with a forward and backward of its own"),
    ("fsdp::Pass", "a pass over them: hands out weights and gradients, unit by unit"),
    ("fsdp::optim::AdamW", "an optimizer: steps pieces of shards"),
    ("fsdp::train::Training", "plans a step, then builds shards, optimizer and executor; `step` trains"),
    ("fsdp::train::launch", "calls your function on every rank, and returns the exit status"),
    ("fsdp::train_main", "a whole training program of one stack: flags, data, checkpoints, metrics")]
LANGUAGES = {".hpp": "cpp", ".cpp": "cpp", ".txt": "cmake"}
RENAMED = {"README.md": "index.md", "bench/README.md": "bench.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "security.md",
           "CHANGELOG.md": "changelog.md"}


def place_of(path):
    """Where a file of the repository stands in the site, or None."""
    if path in RENAMED:
        return RENAMED[path]
    if path.startswith("docs/") and not path.startswith("docs/site"):
        return path.removeprefix("docs/")
    if path.startswith("examples/") and re.match(r"\d\d_", path.split("/")[1]):
        return f"examples/{path.split('/')[1]}.md"
    return path if path.endswith(".svg") else None


class Api:
    """What Doxygen's tag file tells: pages of headers, and of classes, concepts, namespaces and their members."""

    def __init__(self, tags):
        self.headers, self.entries = {}, []
        for compound in ElementTree.parse(tags).getroot():
            name, page = compound.findtext("name"), compound.findtext("filename")
            page = page if page.endswith(".html") else page + ".html"
            if compound.get("kind") == "file":
                self.headers[((compound.findtext("path") or "") + name).split("/include/")[-1]] = page
            if compound.get("kind") in ("class", "struct", "concept", "namespace"):
                self.entries.append((name, page, compound.get("kind")))
            if compound.get("kind") in ("class", "struct", "namespace"):
                for member in compound.findall("member"):
                    entry = (f"{name}::{member.findtext('name')}", f"{member.findtext('anchorfile')}#{member.findtext('anchor')}", member.get("kind"))
                    if entry[2] in ("function", "enumeration", "typedef") and entry[0] not in [one[0] for one in self.entries[-40:]]:
                        self.entries.append(entry)
        self.by_name = {name: link for name, link, _ in reversed(self.entries)}

    def link_of(self, code):
        """The page of what qualified inline code names, such as `tiling::cut`, or None."""
        name = re.sub(r"<[^<>]*>$|\(\)$", "", code)
        return self.by_name.get("fsdp::" + name.removeprefix("fsdp::")) if "::" in name else None

    def page_of(self, code):
        """The page of the header that inline code names as programs include it, or None."""
        return self.headers.get(code.strip("<>").removeprefix("tessera/"))


class Assembler:
    def __init__(self, root, target, api):
        self.root, self.target, self.api = Path(root).resolve(), Path(target), api

    def run(self):
        for page in pages(self.root):
            path = str(page.relative_to(self.root))
            if path == "README.md":
                continue  # docs/index.md is the front page
            self.write(place_of(path), self.page(path, page.read_text()))
        for picture in [*(self.root / "docs").rglob("*.svg"), *(self.root / "bench").glob("*.svg")]:
            place = self.target / place_of(str(picture.relative_to(self.root)))
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(picture, place)
        for folder in sorted((self.root / "examples").iterdir()):
            if re.match(r"\d\d_", folder.name):
                self.write(f"examples/{folder.name}.md", self.example(folder))
        (self.target / "api/index.html").unlink()  # Doxygen's, for ours
        self.write("api/index.md", self.api_page())
        (self.target / "style").mkdir(exist_ok=True)
        for style in ("book.css", "api.css"):
            shutil.copy(self.root / "docs/site" / style, self.target / "style" / style)

    def write(self, place, text):
        (self.target / place).parent.mkdir(parents=True, exist_ok=True)
        (self.target / place).write_text(text)

    def api_page(self):
        """The names to start with, then all headers of the API, by folder, with the first sentence of each."""
        parts = ["# API reference\n\nThe names to start with; all are in `<tessera/fsdp/fsdp.hpp>`, but for the communicators "
                 "(`<tessera/comm/threads.hpp>`, `<tessera/comm/mpi.hpp>`) and `train_main` (`<tessera/trainer/train_main.hpp>`). The "
                 "search finds all others. Lists: [namespaces](namespaces.html), [concepts](concepts.html), "
                 "[classes](annotated.html).\n\n| name | |\n| --- | --- |"]
        for names, words in FIRST:
            links = ", ".join(f"[`{name.removeprefix('fsdp::')}`]({self.api.by_name[name]})" for name in names.split())
            parts.append(f"| {links} | {words} |")
        for product, folders in FOLDERS.items():
            parts.append(f"\n## {product}")
            for folder, title in folders:
                headers = sorted(name for name in self.api.headers if os.path.dirname(name) == folder)
                parts.append(f"\n### {title}\n\n| `tessera/{folder}` | |\n| --- | --- |")
                parts += [f"| [`{os.path.basename(name)}`]({self.api.headers[name]}) | {self.about(name)} |" for name in headers]
        return "\n".join(parts) + "\n"

    def about(self, header):
        """The first sentence of a header's description."""
        head = re.search(r"/// @file\n((?:///.*\n)+)", (self.root / "include" / header).read_text())
        text = " ".join(line.removeprefix("///").strip() for line in head[1].split("\n")) if head else ""
        sentence = re.split(r"(?<=\.) ", text)[0]
        escaped = [part if part.startswith("`") else re.sub(r"([|*<_])", r"\\\1", part) for part in re.split(r"(`[^`]*`)", sentence)]
        return "".join(escaped)

    def example(self, folder):
        files = sorted(folder.iterdir(), key=lambda file: (file.name != "main.cpp", file.name))
        parts = [f"# Example {folder.name}\n\nEvery file of `examples/{folder.name}`. [All examples](../examples.md).\n"]
        parts += [f"## {file.name}\n\n```{LANGUAGES.get(file.suffix, '')}\n{file.read_text()}```\n" for file in files]
        return "\n".join(parts)

    def page(self, path, text):
        place, lines, closing = place_of(path), [], None
        for line in text.splitlines():
            fence = FENCE.match(line)
            if closing:
                closing = None if line.strip() == closing else closing
            elif fence:
                closing = fence[2]
                mark = MARK.match(lines[-1].strip()) if lines else None
                if mark:
                    lines.pop()
                    if mark[1] == "says":  # a sentence: its lines wrap
                        line = f"{fence[1]}{fence[2]} {{ .{fence[3] or 'text'} .says }}"
                if lines and lines[-1].strip():
                    lines.append("")
            elif not line.startswith("<!--"):
                if re.match(r"(- |\d+\. )", line) and lines and lines[-1].strip() and not re.match(r"(- |\d+\. |  )", lines[-1]):
                    lines.append("")  # Python-Markdown begins a list behind an empty line alone
                line = self.linked(path, place, line)
            lines.append(line)
        return "\n".join(lines) + "\n"

    def linked(self, path, place, line):
        """A line of prose with its links as the site has them."""
        up = "../" * place.count("/")
        spans = []

        def keep(text):
            spans.append(text)
            return f"\0{len(spans) - 1}\0"

        def link(found):
            target, _, anchor = found[1].partition("#")
            if re.match(r"^(https?|mailto):", found[1]) or not target:
                return found[0]
            file = os.path.normpath(os.path.join(os.path.dirname(path), target))
            words = found[0][found[0].index("[") + 1:found[0].index("](")]
            header = self.api.headers.get(file.removeprefix("include/"))
            there = f"{up}api/{header}" if header else place_of(file)
            if there is None:
                return words
            there = there if header else os.path.relpath(there, os.path.dirname(place) or ".")
            return found[0].replace(f"]({found[1]})", f"]({there}{'#' + anchor if anchor else ''})")

        def code(found):
            header = self.api.page_of(found[2].strip()) or self.api.link_of(found[2].strip())
            example = re.match(r"^(?:examples/)?(\d\d_\w+)(/[\w.]+)?$", found[2].strip())
            if header:
                return keep(f"[{found[0]}]({up}api/{header})")
            if example and (self.root / "examples" / example[1]).is_dir() and place != f"examples/{example[1]}.md":
                return keep(f"[{found[0]}]({up}examples/{example[1]}.md)")
            if re.fullmatch(r"--[a-z0-9-]{1,24}", found[2]):  # a flag: browsers would break it behind its dashes
                return keep(f'<code class="whole">{found[2]}</code>')
            return keep(found[0])

        # Code inside a link's words stays code: links are taken first.
        line = re.sub(LINK.pattern.replace(r"[^\]]*", r"(?:`[^`]*`|[^\]`])*"), lambda found: keep(link(re.match(LINK, found[0]) or found)), line)
        line = CODE.sub(code, line)
        while "\0" in line:
            line = re.sub("\0(\\d+)\0", lambda found: spans[int(found[1])], line)
        return line


def add_to_search(site, api):
    file = Path(site) / "search/search_index.json"
    index = json.loads(file.read_text())
    for name, link, kind in api.entries:
        text = f"{kind} of the API reference: {html.escape(name.replace('::', ' '))}"
        places = [link] if "#" in link else [link, f"{link}#api-reference"]  # a page is titled by its first section
        index["docs"] += [{"location": f"api/{place}", "title": html.escape(name), "text": text} for place in places]
    file.write_text(json.dumps(index))


if __name__ == "__main__":
    if sys.argv[1] == "--search":
        add_to_search(sys.argv[2], Api(sys.argv[3]))
    else:
        Assembler(sys.argv[1], sys.argv[2], Api(sys.argv[3])).run()
