# SPDX-License-Identifier: Apache-2.0
"""The pages of the book: which there are, their code blocks, links and headings.

A code block may have a mark, a comment on the line above it:
    <!-- from: FILE -->       its lines stand in FILE, one after another; a line `...` skips some
    <!-- prints: COMMAND -->  standard output of a tessera command; generate.py writes it, tests/programs/docs_test.py compares it
    <!-- says: FILE -->       a message of FILE: its words stand in string literals there, `...` for what differs from case to case
    <!-- run -->              commands that tests/programs/docs_test.py runs, all of a page in one empty folder
A block in bash without a mark is checked command by command (commands.py). Any other needs one.
"""
import re
from dataclasses import dataclass
from pathlib import Path

MARK = re.compile(r"^<!-- (from|prints|says|run)(?:: (.+?))? -->$")
FENCE = re.compile(r"^( *)(```+)(\S*)\s*$")
LINK = re.compile(r"!?\[[^\]]*\]\(([^()\s]*(?:\([^()\s]*\)[^()\s]*)*)\)")
CODE = re.compile(r"(`+)(.+?)\1")


@dataclass
class Block:
    line: int       # of the fence, from 1
    language: str
    kind: str       # "from", "prints", "says", "run", or ""
    source: str     # what the mark says behind its kind
    text: str       # without the fences, each line with its end


def pages(root):
    """All pages of the book and the pages beside it, as paths."""
    root = Path(root)
    top = [root / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "bench/README.md")]
    return [page for page in top if page.exists()] + sorted((root / "docs").rglob("*.md"))


def blocks(text):
    """The code blocks of a page, in order."""
    found, lines, number = [], text.splitlines(keepends=True), 0
    while number < len(lines):
        fence = FENCE.match(lines[number])
        if not fence:
            number += 1
            continue
        mark = MARK.match(lines[number - 1].strip()) if number else None
        begin = number + 1
        number = begin
        while number < len(lines) and lines[number].strip() != fence[2]:
            number += 1
        found.append(Block(begin, fence[3], mark[1] if mark else "", (mark[2] or "") if mark else "",
                           "".join(line.removeprefix(fence[1]) for line in lines[begin:number])))
        number += 1
    return found


def prose(text):
    """The text with its code blocks emptied, line for line."""
    kept, closing = [], None
    for line in text.splitlines():
        fence = FENCE.match(line)
        if closing:
            closing = None if line.strip() == closing else closing
            kept.append("")
        elif fence:
            closing = fence[2]
            kept.append("")
        else:
            kept.append("" if line.strip().startswith("<!--") else line)
    return kept


def code_spans(text):
    """(line, content) of each piece of inline code."""
    return [(number, found[2].strip()) for number, line in enumerate(prose(text), 1) for found in CODE.finditer(line)]


def links(text):
    """(line, target) of each link and image."""
    return [(number, found[1]) for number, line in enumerate(prose(text), 1)
            for found in LINK.finditer(CODE.sub("code", line))]


def slug(heading):
    """The anchor of a heading, as GitHub makes it."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.replace("`", "")).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(text):
    """The anchors of a page's headings; those that stand there twice are left out, since sites number them differently."""
    found = [slug(line.lstrip("#")) for line in prose(text) if re.match(r"#{1,6} ", line)]
    return {anchor for anchor in found if found.count(anchor) == 1 and "--" not in anchor}


def first_cells(text):
    """(line, content) of the code in the first cell of each row of the tables behind a line `<!-- messages -->`."""
    found, on = [], False
    for number, line in enumerate(text.splitlines(), 1):
        on = on or line.strip() == "<!-- messages -->"
        if on and line.startswith("| ") and not line.startswith("| ---"):
            cell = re.split(r"(?<!\\) \| ", line[2:])[0]
            found += [(number, code[2]) for code in CODE.finditer(cell)]
    return found
