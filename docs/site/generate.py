# SPDX-License-Identifier: Apache-2.0
"""What the book takes from the program: a page for each sub-command, printed output in pages, and the pictures.

usage: generate.py PROGRAM            writes them
       generate.py PROGRAM --check    compares them, and prints what differs
"""
import difflib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from pages import MARK, blocks, pages
from pictures import PICTURES

ROOT = Path(__file__).resolve().parents[2]

# Of each sub-command: where to read on, and commands that show its use.
MORE = {
    "train": ("[Get started](../get_started.md); [data](../data.md), [models](../models.md), [checkpoints](../checkpoints.md), "
              "[metrics](../metrics.md), [adapters](../adapters.md), [conversations](../conversations.md); what stops a run: "
              "[faults](../faults.md)",
              "tessera train --data FILES --model small --comm threads:2 --sharding fsdp2 \\\n  --checkpoint-dir run\n"
              "tessera train --model small --dry-run --ranks 8      # bytes of a rank\n"
              "tessera train --model tiny --print-schedule\n"),
    "plan": ("[Plan](../plan.md); [memory](../memory.md), [metrics](../metrics.md)",
             "tessera plan --cluster h100 --model small --seq-len 8192 --batch-size 8\n"
             "tessera plan --cluster two.toml --model small --comm mpi --json\n"
             "tessera plan --fit --cluster h100 --model small --seq-len 8192 --batch-size 8\n"),
    "calibrate": ("[Plan](../plan.md#this-machine)",
                  "tessera calibrate --comm threads:2 --out machine.toml\nmpirun -n 2 tessera calibrate --out machine.toml\ntorchrun --nproc-per-node 8 --no-python tessera calibrate --comm nccl --out machine.toml\n"),
    "eval": ("[Data](../data.md), [conversations](../conversations.md)", "tessera eval --model run/step-00001000 --data FILE\n"),
    "generate": ("[Generation](../generation.md), [tokenizers](../tokenizers.md)",
                 "tessera generate --model run/step-00001000 --prompt 'Once upon a time' --top-p 0.9\n"),
    "chat": ("[Conversations](../conversations.md)", "tessera chat --model FOLDER --system 'Answer in one sentence.'\n"),
    "export": ("[Models](../models.md#export-and-inspect), [adapters](../adapters.md)",
               "tessera export run OUT --dtype bf16\ntessera export run OUT --merge      # adapters merged into the weights\n"),
    "inspect": ("[Models](../models.md#export-and-inspect), [checkpoints](../checkpoints.md)", "tessera inspect FOLDER\n"),
    "tokenize": ("[Tokenizers](../tokenizers.md)", "tessera tokenize FILES --tokenizer FOLDER --out tokens\n"),
    "plot": ("[Metrics](../metrics.md#curves)", "tessera plot a.jsonl b.jsonl --out curves.svg\n"),
    "diff": ("[The same bits](../same_bits.md#where-two-runs-part)", "tessera diff a.jsonl b.jsonl\n"),
    "replay": ("[The same bits](../same_bits.md#where-two-runs-part), [checkpoints](../checkpoints.md)",
               "tessera replay run --step 42 --comm threads:2 --against run.jsonl\n"
               "tessera replay run --step 42 --unit 'block 2' --piece 3 --tensors tensors\n"),
    "stacks": ("[Joints](../extending.md): what fits what, and how a stack of one's own is compiled", "tessera stacks\n"),
}


class Program:
    def __init__(self, path):
        self.path = str(Path(path).resolve())
        # One instruction set and one thread, so that what is printed does not depend on the machine.
        self.environment = {**os.environ, "TESSERA_ISA": "baseline", "OMP_NUM_THREADS": "1"}

    def __call__(self, arguments):
        words = shlex.split(arguments) if isinstance(arguments, str) else arguments
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([self.path, *words], capture_output=True, text=True, env=self.environment, timeout=60, cwd=folder)
        if done.returncode != 0:
            sys.exit(f"generate.py: tessera {shlex.join(words)} ended with {done.returncode}: {done.stderr}")
        return done.stdout


def rows_of(text, section):
    """(name, what it says) of each entry of a section of --help."""
    rows, inside = [], False
    for line in text.splitlines():
        if not line.startswith(" "):
            inside = line == section + ":"
        elif inside and re.match(r"  \S", line):
            split = len(line) > 30 and line[29] == " " and line[30] != " "
            rows.append([line[2:30].strip(), line[30:].strip()] if split else [line.strip(), ""])
        elif inside:
            rows[-1][1] += line.strip()
    return rows


def in_table(text):
    return re.sub(r"([|*<_\[\]])", r"\\\1", text)


def table(head, rows):
    lines = [f"| {head} | |", "| --- | --- |"]
    for name, says in rows:
        name, _, default = name.partition("=")
        says = in_table(says) + (f"{'. ' if says else ''}Default: `{default}`" if default else "")
        lines.append(f"| `{name}` | {says} |")
    return "\n".join(lines) + "\n"


def sentence(text):
    return text[0].upper() + text[1:].rstrip(".") + "."


def command_page(name, text):
    more, examples = MORE[name]
    lines = text.splitlines()
    parts = [f"# tessera {name}\n", sentence(lines[0]) + "\n", f"```bash\n{examples}```\n",
             "`" + lines[1].removeprefix("Usage: ") + "`\n"]
    if positionals := rows_of(text, "Positionals"):
        parts.append(table("argument", positionals))
    flags = [row for row in rows_of(text, "Options") if not row[0].startswith("-h,")]
    parts.append(table("flag", flags) if flags else "No flags.\n")
    parts.append(f"More: {more}. Exit statuses: [faults](../faults.md#exit-statuses).\n")
    return "<!-- Written by docs/site/generate.py from the program's --help. -->\n" + "\n".join(parts)


def index_page(text):
    rows = "".join(f"| [`tessera {name}`]({name}.md) | {in_table(says)} |\n" for name, says in rows_of(text, "Subcommands"))
    return ("<!-- Written by docs/site/generate.py from the program's --help. -->\n# The program\n\n" + sentence(text.splitlines()[0]) +
            " `--help` on each sub-command prints what stands on its page. Every flag may also stand in a TOML file that `--config` names; "
            "the command line wins. An unknown flag is an error that names the nearest.\n\n| | |\n| --- | --- |\n" + rows)


def with_output(text, program):
    """A page with what its commands print now."""
    lines = text.splitlines(keepends=True)
    for block in reversed(blocks(text)):
        if block.kind == "prints":
            end = block.line + block.text.count("\n")
            lines[block.line:end] = program(block.source.removeprefix("tessera ")).splitlines(keepends=True)
    return "".join(lines)


def generated(program):
    """path -> text of all that depends on the program."""
    top = program("--help")
    names = [name for name, _ in rows_of(top, "Subcommands")]
    if unknown := set(names) ^ set(MORE):
        sys.exit(f"generate.py: MORE and the program's sub-commands differ: {unknown}")
    files = {"docs/commands/index.md": index_page(top)}
    for name in names:
        files[f"docs/commands/{name}.md"] = command_page(name, program([name, "--help"]))
    for name, draw in PICTURES.items():
        files[f"docs/pictures/{name}.svg"] = draw(program)
    for page in pages(ROOT):
        path = str(page.relative_to(ROOT))
        text = page.read_text()
        if path not in files and any(MARK.match(line) and "prints" in line for line in text.splitlines()):
            files[path] = with_output(text, program)
    return files


def comparable(text):
    """The text without the bytes that depend on the processor: scratch, and the peak that holds it."""
    return re.sub(r"^(  (?:scratch|peak) ) .*$", r"\1", text, flags=re.MULTILINE)


def main():
    checking = "--check" in sys.argv
    differ = 0
    for path, text in generated(Program(sys.argv[1])).items():
        file = ROOT / path
        before = file.read_text() if file.exists() else ""
        if comparable(before) == comparable(text):
            continue
        differ += 1
        if checking:
            print(f"{path} is not what the program prints; run: python3 docs/site/generate.py PROGRAM")
            print("".join(list(difflib.unified_diff(before.splitlines(True), text.splitlines(True), path, "printed"))[:30]))
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    return 1 if checking and differ else 0


if __name__ == "__main__":
    sys.exit(main())
