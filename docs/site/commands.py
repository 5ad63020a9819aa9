# SPDX-License-Identifier: Apache-2.0
"""Commands in pages, held against what there is: flags of the program, files, presets, tests.

The program's flags are read from docs/commands/*.md, which the tests compare with the program itself, and those of tessera_bench
from its sources.
"""
import json
import re
import shlex
from pathlib import Path

FLAG = re.compile(r"^\| `(--[a-z0-9-]+)", re.MULTILINE)
ADDED = re.compile(r'flags\s*\.add\(\s*"([a-z-]+)"')
OTHERS = {"apt", "apt-get", "awk", "cat", "cd", "conan", "cp", "cpack", "cut", "dpkg", "echo", "export", "g++", "git", "gzip", "head",
          "ls", "mkdir", "nvcc", "nvidia-smi", "pip", "printf", "rm", "sed", "seq", "srun", "sudo", "tail", "tensorboard", "torchrun", "kill", "lscpu"}


class Commands:
    def __init__(self, root):
        self.root = Path(root)
        self.flags = {page.stem: set(FLAG.findall(page.read_text())) for page in (self.root / "docs/commands").glob("*.md")
                      if page.stem != "index"}
        self.bench = {f"--{name}" for file in (self.root / "bench").glob("*.cpp") for name in ADDED.findall(file.read_text())}
        presets = json.loads((self.root / "CMakePresets.json").read_text()) if (self.root / "CMakePresets.json").exists() else {}
        self.presets = {preset["name"] for preset in presets.get("configurePresets", [])}

    def all_flags(self):
        return self.bench.union(*self.flags.values())

    def check(self, line):
        """What is wrong with a line of shell, one text each."""
        try:
            words = shlex.split(line, comments=True)
        except ValueError as error:
            return [f"is no line of shell: {error}"]
        commands, wrong = [[]], []
        for word in words:
            if word in ("&&", "||", "|", "&"):
                commands.append([])
            elif word.endswith(";"):
                commands[-1].append(word[:-1])
                commands.append([])
            else:
                commands[-1].append(word)
        for command in commands:
            while command and re.match(r"^[A-Z_]+=", command[0]):
                command = command[1:]
            if command:
                wrong += self.check_command(command)
        return wrong

    def check_command(self, words):
        first = words[0]
        if first == "mpirun":
            behind = [k for k, word in enumerate(words) if not word.startswith("-") and not word.isdigit() and k > 0]
            while behind and words[behind[0] - 1] in ("--mca",) or behind and words[behind[0] - 2] == "--mca":
                behind.pop(0)
            return self.check_command(words[behind[0]:]) if behind else ["mpirun without a program"]
        if first in ("tessera", "build/release/bin/tessera", "$tessera"):
            return self.check_program(words[1:])
        if first == "tessera_bench":  # it also has the program's flags of stacks and launches
            flags = [word.split("=")[0] for word in words if word.startswith("--")]
            return [f"tessera_bench has no flag {flag}" for flag in flags if flag not in self.all_flags()]
        if first in ("bash", "python3", "sh", "source"):
            return self.check_command(words[1:]) if len(words) > 1 and "/" in words[1] and not words[1].startswith("-") else []
        if first == "cmake":
            preset = words[words.index("--preset") + 1] if "--preset" in words[:-1] else None
            return [f"there is no preset '{preset}'"] if preset and preset not in self.presets else []
        if first == "ctest":
            preset = words[words.index("--preset") + 1] if "--preset" in words[:-1] else None
            return [f"there is no preset '{preset}'"] if preset and preset not in self.presets else []
        if first.startswith("build/") or re.match(r"^(\./)?tests_\w+$", first):
            return []
        if "/" in first:
            there = (self.root / first).exists()
            return [] if there else [f"there is no '{first}'"]
        return [] if first in OTHERS else [f"'{first}' is no command that pages use; see docs/site/commands.py"]

    def check_program(self, words):
        if not words or words[0] in ("--version", "--help"):
            return []
        name = words[0]
        if not re.match(r"^[a-z|]+$", name):
            return []
        wrong = []
        for one in name.split("|"):
            if one not in self.flags:
                wrong.append(f"tessera has no sub-command '{one}'")
                continue
            for word in words[1:]:
                flag = word.split("=")[0]
                if flag.startswith("--") and flag not in self.flags[one] | {"--help"}:
                    wrong.append(f"tessera {one} has no flag {flag}")
        return wrong


def lines_of(text):
    """The commands of a block of shell: continued lines as one, comments and empty lines left out."""
    return [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.strip().startswith("#")]
