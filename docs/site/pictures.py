# SPDX-License-Identifier: Apache-2.0
"""The pictures of the concept pages, each drawn from what the program prints. `run(arguments)` returns its standard output."""
import re

from svg import WIDTH, Picture

LARGE = "--hidden 4096 --layers 32 --heads 32 --kv-heads 8 --intermediate 14336 --vocab 128256 --seq-len 8192 --threads 1"
KINDS = ("weights", "gathered", "gradients", "optimizer", "activations")  # scratch, a few MiB, depends on the processor


def sharding(run):
    """Which part of a tensor each of four ranks holds between steps, by the table of `tessera stacks`."""
    shares = {}  # (of weights, of optimizer state) -> names
    lines = run("stacks").split("Strategies by placement and layout:\n")[1].splitlines()
    for name, weights, across, axes in (re.split(r"  +", line.strip())[:4] for line in lines[1:] if line.startswith("  ")):
        if weights == "replicated":
            held = (1, 1)
        elif across == "-":
            held = (4, 4)
        else:
            held = (2, 2 if across == "replicated" else 4)
        shares.setdefault(held, []).append(name)
    picture = Picture("What each of four ranks holds of a tensor between steps, under each strategy")
    for rank in range(4):
        picture.text(150 + 92 * rank + 40, 18, f"rank {rank}", 13, "middle")
    y = 30
    for held, names in sorted(shares.items()):
        for k, name in enumerate(names):
            picture.text(8, y + 14 + 17 * k, name, 13, bold=True)
        for row, (colour, parts) in enumerate((("weights", held[0]), ("optimizer", held[1]))):
            for rank in range(4):
                x = 150 + 92 * rank
                picture.box(x, y + 24 * row, 84, 18, "absent", "#bbbbbb")
                picture.box(x + 84 / parts * (rank % parts), y + 24 * row, 84 / parts, 18, colour)
        y += max(24 * 2, 17 * len(names)) + 16
    picture.key(y + 4, [("weights", "weights at rest"), ("optimizer", "optimizer state"), ("absent", "held by other ranks")])
    return picture.svg()


def tasks_of(run, arguments):
    """(micro-batch, action, unit) of each task of a step."""
    found = re.findall(r"^micro-batch (\d+) +([a-z-]+) +([a-z]+(?: \d+)?)", run(f"train --print-schedule --model tiny --seq-len 16 "
                       f"--comm threads:2 --threads 1 {arguments}"), re.MULTILINE)
    return [(int(batch), action, unit) for batch, action, unit in found]


def schedule(run):
    """A step of a model of two blocks: when each unit's weights are gathered, computed with and reduced."""
    picture = Picture("A step under fsdp2 and zero2: gathered weights, computations, gradients and reductions of each unit")
    y = 0
    for strategy in ("fsdp2", "zero2"):
        tasks = tasks_of(run, f"--layers 2 --sharding {strategy}")
        computing = ("forward", "loss", "backward")
        steps = sum(action in computing for _, action, _ in tasks)
        units = list(dict.fromkeys(unit for _, action, unit in tasks if action == "forward")) + ["head"]
        left, step = 92, (WIDTH - 102) / (steps + 1)
        picture.text(8, y + 18, f"--sharding {strategy}", 14, bold=True)
        rows = {unit: y + 30 + 34 * k for k, unit in enumerate(units)}
        for unit, row in rows.items():
            picture.text(8, row + 19, unit, 13)
            picture.line(left, row + 30, WIDTH - 8, row + 30, "#dddddd")
        begun, opened, boxes, marks, at = {}, {}, [], [], 0.0
        for _, action, unit in tasks:
            x, row = left + at * step, rows[unit]
            if action == "gather":
                begun[unit] = x
            elif action == "release":
                picture.box(begun[unit], row + 1, x - begun.pop(unit), 9, "gathered")
            elif action == "open-gradient":
                opened[unit] = x
            elif action == "close-gradient":
                picture.box(opened[unit], row + 24, x - opened.pop(unit), 5, "gradients")
            elif action == "reduce":
                marks.append((x, row + 27))
            else:
                boxes.append((x, row, action))
                at += 1
        for unit, x in begun.items():  # stays to the end of the step
            picture.box(x, rows[unit] + 1, left + at * step - x, 9, "gathered")
        for x, row, action in boxes:
            picture.box(x + 2, row + 6, step - 4, 17, "compute")
            picture.text(x + step / 2, row + 19, action[0].upper(), 13, "middle", True, "#ffffff")
        for x, row in marks:
            picture.mark(x + 6, row, "reduce", True)
        y = rows[units[-1]] + 40
    y = picture.key(y + 14, [("gathered", "weights gathered"), ("compute", "F forward, L loss, B backward"), ("gradients", "gradients of the unit")])
    picture.mark(16, y + 16, "reduce", True)
    picture.text(28, y + 16, "reduction of the gradients; time runs to the right", 13)
    return picture.svg()


def bytes_of(run, arguments):
    """Bytes of a rank by kind, of a dry run."""
    return {kind: int(count) for kind, count in re.findall(r"^  ([a-z]+) +(\d+) ", run(f"train --dry-run {arguments}"), re.MULTILINE)}


def stacked(picture, words, rows):
    """Title and words, then a bar for each (words, bytes by kind), all on one scale, with its sum; the scale and the key."""
    picture.text(8, 16, picture.title, 14, bold=True)
    picture.text(8, 34, words, 13)
    y = 48
    totals = [sum(held[kind] for kind in KINDS) for _, held in rows]
    for (words, held), total in zip(rows, totals):
        picture.text(8, y + 13, words, 13, bold=True)
        x = 8.0
        for kind in KINDS:
            width = held[kind] / max(totals) * (WIDTH - 90)
            picture.box(x, y + 19, width, 16, kind, "#444444")
            x += width
        picture.text(x + 6, y + 32, f"{total / 2**30:.1f} GiB", 13)
        y += 44
    y = picture.axis(y, 8, WIDTH - 90, max(totals) / 2**30, "GiB")
    picture.key(y + 20, [(kind, kind) for kind in KINDS])


def memory(run):
    """A Llama of 8 billion weights on eight ranks: bytes of a rank by strategy."""
    picture = Picture("Memory of one of eight ranks, by strategy")
    cases = [("replicated", ""), ("hybrid:4", ""), ("zero1", ""), ("zero3", ""), ("fsdp2", ""), ("fsdp2", "--recompute --tiling tokens:2048")]
    rows = [(f"{name} {flags}".strip(), bytes_of(run, f"{LARGE} --batch-size 8 --ranks 8 --sharding {name} {flags}")) for name, flags in cases]
    stacked(picture, "A Llama of 8 billion weights, a sequence of 8192 tokens on each rank, bf16", rows)
    return picture.svg()


def tiling(run):
    """The MLP's tiles of a sequence of 8192 tokens: which are kept, what they take, what is recomputed."""
    picture = Picture("How each tiling cuts the MLP's 8192 tokens, what it keeps and what it takes")
    y = 4
    for choice in ("off", "tiles:4", "tokens:1024", "budget:4GiB"):
        text = run(f"train --dry-run {LARGE} --batch-size 1 --ranks 1 --tiling {choice}")
        count, length, kept, taken, flops = map(int, re.search(
            r"MLP of a block, (\d+) tiles? of (?:up to )?(\d+) tokens, (\d+) kept; (\d+) bytes; (\d+) FLOPs", text).groups())
        picture.text(8, y + 13, f"--tiling {choice}", 13, bold=True)
        picture.text(WIDTH - 8, y + 13, f"{taken / 2**30:.2f} GiB, {flops / 1e12:.1f} TFLOP recomputed", 13, "end")
        x = 8.0
        for tile in range(count):
            tokens = min(length, 8192 - tile * length)
            width = tokens / 8192 * (WIDTH - 16)
            picture.box(x, y + 19, width, 20, "kept" if tile < kept else "recomputed", "#666666")
            x += width
        y += 50
    picture.key(y + 8, [("kept", "activations kept from forward to backward"), ("recomputed", "recomputed in backward")])
    return picture.svg()


def precision(run):
    """Bytes of a rank by precision."""
    picture = Picture("Memory of one of eight ranks under fsdp2, by precision")
    rows = [(f"--precision {name}", bytes_of(run, f"{LARGE} --batch-size 8 --ranks 8 --sharding fsdp2 --precision {name}"))
            for name in ("fp32", "bf16", "bf16:wire=bf16")]
    stacked(picture, "A Llama of 8 billion weights, a sequence of 8192 tokens on each rank", rows)
    return picture.svg()


def communication(run):
    """Gathers and reductions of a step of two micro-batches, in their order."""
    picture = Picture("Gathers and reductions along a step of two micro-batches, by strategy")
    y = 4
    for strategy in ("replicated", "zero1", "zero2", "fsdp2:no-reshard", "fsdp2", "fsdp2:deferred"):
        tasks = tasks_of(run, f"--layers 4 --batch-size 8 --grad-accum 2 --sharding {strategy}")
        gathers, reductions = (sum(action == name for _, action, _ in tasks) for name in ("gather", "reduce"))
        computations = [k for k, (_, action, _) in enumerate(tasks) if action in ("forward", "loss", "backward")]
        step = (WIDTH - 20) / (len(computations) + 1)
        picture.text(8, y + 13, strategy, 13, bold=True)
        picture.text(WIDTH - 8, y + 13, f"{gathers} gathers, {reductions} reductions", 13, "end")
        picture.line(8, y + 36, WIDTH - 8, y + 36)
        at, since = 0, {}
        for _, action, _ in tasks:
            x = 14 + at * step
            if action in ("gather", "reduce"):
                since[action] = since.get(action, -1) + 1
                picture.mark(x + 3 * since[action], y + (26 if action == "gather" else 47), "weights" if action == "gather" else "reduce",
                             action == "reduce")
            elif action in ("forward", "loss", "backward"):
                at, since = at + 1, {}
        half = 14 + len(computations) / 2 * step
        picture.line(half - 4, y + 22, half - 4, y + 50, "#555555")
        y += 60
    picture.mark(16, y + 2, "weights", False)
    picture.text(28, y + 12, "gather of a unit's weights", 13)
    picture.mark(236, y + 12, "reduce", True)
    picture.text(248, y + 12, "reduction of its gradients", 13)
    picture.text(8, y + 32, "Upright line: the second micro-batch begins. Time runs to the right.", 13)
    return picture.svg()


PICTURES = {"sharding": sharding, "schedule": schedule, "memory": memory, "tiling": tiling, "precision": precision,
            "communication": communication}
