# SPDX-License-Identifier: Apache-2.0
"""Checks the pages of the book: code blocks against the files that they are from, commands against the program's flags, links
against pages, headings and files, and the headers, files, tests and flags that pages name. Messages of include/ and src/ name
headers as programs include them.

usage: docs.py ROOT

What a code block needs is said in docs/site/pages.py. Whether printed output is the program's is for tests/programs/docs_test.py.
"""
import itertools
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs/site"))
from commands import Commands, lines_of  # noqa: E402
from pages import anchors, blocks, code_spans, first_cells, links, pages  # noqa: E402

SHELL = ("bash", "sh", "console")
SOURCE_FILE = re.compile(r"^[\w.-]+(/[\w.*-]+)+\.(cpp|cu|py|sh|cmake|md)$")
PLACES = ("", "src", "tests", "docs", "bench", "examples")  # where a path of inline code may begin
HEADER = re.compile(r"(?<![\w./-])\w[\w.-]*(?:/[\w.*-]+)+\.(?:hpp|cuh)\b")
INCLUDED = re.compile(r"#include <((?:comm|tiling|fsdp|text|trainer)/[^>]*)")
DIRECTIVE = re.compile(r"^\s*#\s*include\b.*$", re.MULTILINE)
TEST_NAME = re.compile(r"^[A-Z]\w*[a-z]\w*\.[A-Z]\w*[a-z]\w*$")
DECLARED = re.compile(r"\b(?:TYPED_)?TEST(?:_F|_P)?\(\s*(\w+),\s*(\w+)\s*\)")
SUITE = re.compile(r"\bFSDP_SUITE\((\w+),(.*?)\)\);", re.DOTALL)  # of the kit, with its tests as (Name, body)
FLAG = re.compile(r"^(--[a-z0-9-]+)(?![\w*])")
# Flags of other programs that pages tell of: torch, Megatron-LM, DeepSpeed, mpirun, cmake, clangd, GoogleTest, our scripts.
FOREIGN = set("""--use-distributed-optimizer --data-path --lr-decay-style --lr-wsd-decay-iters --lr-wsd-decay-steps
    --lr-wsd-decay-style --reset-position-ids --reset-attention-mask --micro-batch-size --oversubscribe --mca --gtest_list_tests
    --gtest_filter --preset --ci --check --recompute-activations --tensor-model-parallel-size --overlap-grad-reduce
    --overlap-param-gather --cpu-offload --fp16 --build --install --logdir --compile-commands-dir""".split())


def quote_error(text, source):
    """Where a quote leaves its file: None, or the first line that does not stand there. A line "..." is a gap."""
    there, begin = [line.rstrip() for line in source.splitlines()], 0
    wanted = [line.rstrip() for line in text.splitlines()]
    for gap, lines in itertools.groupby(wanted, lambda line: line.strip() == "..."):
        part = [] if gap else "\n".join(lines).strip("\n").splitlines()
        agree = [common_lines(part, there[k:k + len(part)]) for k in range(begin, len(there))]
        if part and len(part) not in agree:
            return part[max(agree, default=0)]
        begin += agree.index(len(part)) + len(part) if part else 0
    return None


def common_lines(part, lines):
    """How many lines agree at the beginning of both, whatever both are indented by."""
    def indented(lines):
        """Each line, and how much further than the first it is indented."""
        indents = [len(line) - len(line.lstrip()) for line in lines]
        return [(line.lstrip(), line and indent - indents[0]) for line, indent in zip(lines, indents)]
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(indented(part), indented(lines)))))


LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
VARIABLE = re.compile(r"\s*\.\.\.\s*")


def literals(source):
    """The string literals of a source, adjacent ones joined."""
    joined = re.sub(r'(?<!\\)"\s*"', "", source)
    return [text.replace('\\"', '"') for text in LITERAL.findall(joined)]


def unsaid(message, said):
    """The first part of a message that stands in no literal, or None. Parts are what is between dots for what differs."""
    for part in VARIABLE.split(" ".join(message.split())):
        if part and not any(part in text for text in said):
            return part
    return None


def header_error(root, path):
    """Why a header's path on a page is wrong, or None. A public one can be pasted behind #include; others are files of the repository."""
    if path.startswith("tessera/"):
        return None if list((root / "include").glob(path.removeprefix("tessera/"))) else "there is no header"
    if path.startswith(("src/", "tests/", "examples/", "bench/")):
        return None if list(root.glob(path)) else "there is no file"
    return "a header's path begins with tessera/, src/, tests/, examples/ or bench/, not as"


class Checker:
    def __init__(self, root):
        self.root = Path(root).resolve()
        self.commands = Commands(self.root)
        self.wrong = []
        self.quotes = self.checked_links = 0
        self.tests, self.said = set(), []
        for folder in ("src", "include"):
            for file in sorted((self.root / folder).rglob("*.[ch]pp")):
                said = literals(DIRECTIVE.sub("", file.read_text()))
                self.check_messages(file, said)
                self.said += said
        for folder in ("tests", "include/fsdp/testing"):
            for file in (self.root / folder).rglob("*.[ch]pp"):
                text = file.read_text()
                self.tests |= {".".join(names) for names in DECLARED.findall(text)}
                for suite, tests in SUITE.findall(text):
                    self.tests |= {f"{suite}.{name}" for name in re.findall(r"\(([A-Z]\w+),", tests)}

    def check(self):
        for page in pages(self.root):
            text = page.read_text()
            self.check_blocks(page, text)
            self.check_links(page, text)
            self.check_code_spans(page, text)
            self.check_headers(page, text)
            for line, code in first_cells(text):
                if (part := unsaid(code, self.said)) is not None:
                    self.found(page, line, f"no message in src or include says '{part}'")
        return self.wrong

    def found(self, page, line, sentence):
        self.wrong.append(f"{page.relative_to(self.root)}:{line}: {sentence}")

    def check_messages(self, file, said):
        """Headers that messages name can be pasted behind #include."""
        for path in HEADER.findall("\n".join(said)) + INCLUDED.findall("\n".join(said)):
            if not path.startswith("tessera/") or header_error(self.root, path):
                self.wrong.append(f"{file.relative_to(self.root)}: a message names '{path}', which is no <tessera/...> header")

    def check_headers(self, page, text):
        for number, line in enumerate(text.splitlines(), 1):
            for path in [] if page.name == "CHANGELOG.md" or line.startswith("<!--") else HEADER.findall(line):
                if (error := header_error(self.root, path)) is not None:
                    self.found(page, number, f"{error} '{path}'")

    def check_blocks(self, page, text):
        for block in blocks(text):
            if block.kind == "from":
                source = self.root / block.source
                if not source.is_file():
                    self.found(page, block.line, f"there is no file '{block.source}'")
                    continue
                self.quotes += 1
                line = quote_error(block.text, source.read_text())
                if line is not None:
                    self.found(page, block.line, f"this line is not in {block.source}, or not there: {line.strip()}")
            if block.kind == "says":
                source = self.root / block.source
                part = unsaid(block.text, literals(source.read_text())) if source.is_file() else block.source
                if part is not None:
                    self.found(page, block.line, f"{block.source} does not say: {part}")
            if block.kind == "prints":
                self.check_commands(page, block.line, block.source)
            elif block.kind == "run" or (block.kind == "" and block.language in SHELL):
                for line in lines_of(block.text):
                    self.check_commands(page, block.line, line)
            elif block.kind == "":
                self.found(page, block.line, "a code block does not say where it is from; see docs/site/pages.py")

    def check_commands(self, page, line, command):
        for sentence in self.commands.check(command):
            self.found(page, line, f"{sentence}: {command.strip()}")

    def check_links(self, page, text):
        for line, target in links(text):
            self.checked_links += 1
            if re.match(r"^(https?|mailto):", target):
                continue
            path, _, anchor = target.partition("#")
            file = (page.parent / path).resolve() if path else page
            if not file.exists():
                self.found(page, line, f"the link to '{target}' leads nowhere")
            elif self.root not in file.parents:
                self.found(page, line, f"the link to '{target}' leaves the repository")
            elif anchor and (file.suffix != ".md" or anchor not in anchors(file.read_text())):
                self.found(page, line, f"no single heading has the anchor of the link '{target}'")

    def check_code_spans(self, page, text):
        for line, code in code_spans(text):
            if code.startswith(("tessera ", "tessera_bench ")) and not re.search(r"[<>]|\.\.\.$", code):
                self.check_commands(page, line, re.sub(r"\.\.\.", "", code))
            elif SOURCE_FILE.match(code) and not any(list((self.root / place).glob(code)) for place in PLACES):
                self.found(page, line, f"there is no file '{code}'")
            elif TEST_NAME.match(code) and code not in self.tests:
                self.found(page, line, f"there is no test '{code}'")
            elif (flag := FLAG.match(code)) and flag[1] not in self.commands.all_flags() | FOREIGN | {"--help", "--version"}:
                self.found(page, line, f"no sub-command has the flag {flag[1]}")


def main():
    checker = Checker(sys.argv[1])
    for sentence in checker.check():
        print(sentence)
    print(f"{checker.quotes} quotes, {checker.checked_links} links")
    return 1 if checker.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
