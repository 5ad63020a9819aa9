#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws memory and time of the tiled MLP against the sequence's length, from the lines of the bench.

    tessera_bench mlp --table > bench/mlp_table.jsonl && bench/figure.py bench/mlp_table.jsonl bench/mlp_table.svg

A filled mark was run (its bytes and its time were measured); an empty one is bytes by dry run. Nothing is extrapolated.
"""
import json
import math
import sys

WIDTH, HEIGHT, LEFT, TOP, PLOT_WIDTH, PLOT_HEIGHT, GAP = 980, 460, 64, 70, 370, 300, 110
# kind of tiling: its label, its colour
SERIES = {"off": ("untiled", "#1f77b4"), "tiles": ("4 tiles", "#d62728"), "tokens": ("4096 tokens a tile", "#2ca02c"),
          "budget": ("budget: the published tiled peak", "#9467bd")}
PUBLISHED = {"published_untiled_bytes": ("published, untiled", "#7f7f7f"),
             "published_tiled_bytes": ("published, 4 tiles", "#bcbd22")}


class Panel:
    """Logarithmic axes at `left`, over the values of `points`: lists of (length, value, whether it was run)."""

    def __init__(self, left, title, points, label):
        self.left, self.out = left, []
        lengths = [x for list_ in points for x, _, _ in list_]
        values = [y for list_ in points for _, y, _ in list_]
        self.x0, self.x1 = math.log2(min(lengths)) - 0.3, math.log2(max(lengths)) + 0.3
        self.y0, self.y1 = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
        self.y1 += self.y0 == self.y1
        self.text(left + PLOT_WIDTH / 2, TOP - 14, title, "middle", 14)
        self.out.append(f'<rect x="{left}" y="{TOP}" width="{PLOT_WIDTH}" height="{PLOT_HEIGHT}" fill="none" '
                        'stroke="#444"/>')
        for power in range(self.y0, self.y1 + 1):
            y = self.y(2.0 ** power)
            self.line([(left, y), (left + PLOT_WIDTH, y)], "#ddd")
            self.text(left - 6, y + 4, label(2.0 ** power), "end")
        for length in sorted(set(lengths)):
            x = self.x(length)
            self.line([(x, TOP), (x, TOP + PLOT_HEIGHT)], "#eee")
            self.text(x, TOP + PLOT_HEIGHT + 16, f"{length // 1024}K" if length % 1024 == 0 else str(length), "middle")
        self.text(left + PLOT_WIDTH / 2, TOP + PLOT_HEIGHT + 34, "tokens of each rank", "middle")

    def x(self, length):
        return self.left + PLOT_WIDTH * (math.log2(length) - self.x0) / (self.x1 - self.x0)

    def y(self, value):
        return TOP + PLOT_HEIGHT * (1 - (math.log2(value) - self.y0) / (self.y1 - self.y0))

    def text(self, x, y, words, anchor, size=11):
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{words}</text>')

    def line(self, points, colour, dash="", width=1.0):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"'
                        + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")

    def series(self, points, colour, dash="", width=1.8):
        self.line([(self.x(x), self.y(y)) for x, y, _ in points], colour, dash, width)
        for x, y, run in points if not dash else []:
            self.out.append(f'<circle cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="3.4" stroke="{colour}" '
                            f'stroke-width="1.6" fill="{colour if run else "#fff"}"/>')


def read(path):
    """The lines by kind of tiling, in the order of their lengths."""
    kinds = {kind: [] for kind in SERIES}
    with open(path, encoding="utf-8") as file:
        for line in map(json.loads, file):
            if line["bench"] == "mlp_table":
                kinds[line["tiling"].split(":")[0]].append(line)
    for lines in kinds.values():
        lines.sort(key=lambda line: line["seq"])
    return {kind: lines for kind, lines in kinds.items() if lines}


def gibibytes(value):
    return f"{value:g} GiB"


def seconds(value):
    return f"{value:g} s"


def draw(kinds):
    memory = {kind: [(l["seq"], l["peak_bytes"] / 2**30, "forward_ms" in l) for l in lines]
              for kind, lines in kinds.items()}
    time = {kind: [(l["seq"], (l["forward_ms"] + l["backward_ms"]) / 1e3, True) for l in lines if "forward_ms" in l]
            for kind, lines in kinds.items()}
    published = {name: [(l["seq"], l[name] / 2**30, False) for l in kinds["off"] if name in l] for name in PUBLISHED}
    published = {name: points for name, points in published.items() if points}
    panels = [Panel(LEFT, "peak memory of a rank", [*memory.values(), *published.values()], gibibytes)]
    if any(time.values()):
        panels.append(Panel(LEFT + PLOT_WIDTH + GAP, "forward and backward, measured",
                            [points for points in time.values() if points], seconds))
    for name, points in published.items():
        panels[0].series(points, PUBLISHED[name][1], "5,4")
    for kind in kinds:
        width = 4.5 if kind == "off" else 1.8  # seen under those that are the same
        panels[0].series(memory[kind], SERIES[kind][1], width=width)
        if len(panels) > 1 and time[kind]:
            panels[1].series(time[kind], SERIES[kind][1], width=width)

    first = kinds["off"][0]
    legend = [(SERIES[kind], "") for kind in kinds] + [(PUBLISHED[name], "5,4") for name in published]
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           'fill="#222">', f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           f'<text x="{LEFT}" y="22" font-size="15">SwiGLU MLP, hidden {first["hidden"]}, intermediate '
           f'{first["intermediate"]}, {first["precision"]}, {first["ranks"]} ranks x {first["threads"]} CPU thread'
           f'{"s" if first["threads"] > 1 else ""}</text>',
           f'<text x="{LEFT}" y="40" font-size="12">full mark: run; empty mark: bytes by dry run; dashed: published '
           '(2 x H800; it counts neither the bf16 shard nor the gradients\' shard, 432 MiB here)</text>' if published else ""]
    for panel in panels:
        out += panel.out
    for i, ((label, colour), dash) in enumerate(legend):
        x, y = LEFT + (i % 3) * 300, TOP + PLOT_HEIGHT + 58 + i // 3 * 20
        out.append(f'<line x1="{x}" y1="{y - 4}" x2="{x + 26}" y2="{y - 4}" stroke="{colour}" stroke-width="2"'
                   + (f' stroke-dasharray="{dash}"' if dash else "") + "/>")
        out.append(f'<text x="{x + 32}" y="{y}" font-size="12">{label}</text>')
    return "\n".join(out + ["</svg>", ""])


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: figure.py LINES.jsonl FIGURE.svg")
    kinds = read(sys.argv[1])
    if "off" not in kinds:
        sys.exit(f"{sys.argv[1]} has no line of `tessera_bench mlp --table`")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(draw(kinds))


if __name__ == "__main__":
    main()
