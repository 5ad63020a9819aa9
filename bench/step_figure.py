#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a step's trace: what each track does when, and the memory that it holds.

    tessera plan ... --trace step.json && bench/step_figure.py step.json step.svg "TITLE"

A run's trace (`tessera train --trace`) has the same tracks and names, and is drawn as well; of several steps all are.
"""
import html
import json
import sys

WIDTH, LEFT, RIGHT, TOP, ROW, GAP, MEMORY = 980, 110, 24, 64, 34, 14, 150
# first word of an event's name: its colour, and the angle of its hatching; none: plain
KINDS = {"forward": ("#4c8bbf", None), "loss": ("#7d5ba6", None), "backward": ("#2f5d8a", None),
         "optimizer": ("#8a6d3b", None), "gather": ("#e3a857", 45), "reduce": ("#c2543d", -45),
         "exchange": ("#6aa56a", 90), "counts": ("#999999", 0), "send-input": ("#5aa9a3", 90), "fetch-input": ("#3d7a75", 0),
         "other": ("#bbbbbb", None)}
SAME = {"gather-in-group": "gather", "gather-across": "gather", "reduce-across": "reduce", "close-gradient": "reduce"}
# kinds of memory that a step holds, from the bottom up
HELD = {"weights": "#c9d6e3", "optimizer": "#b9a98a", "gradients": "#d9a59b", "gathered": "#ecc98f",
        "activations": "#7ba7cc", "scratch": "#cccccc"}


def ticks(most, count):
    """Round numbers from 0 to `most`, about `count` of them."""
    step = 10.0 ** len(str(int(most / count))) / 10 if most / count >= 1 else 1.0
    while step > most / count:
        step /= 10
    step *= min((m for m in (1, 2, 5, 10) if step * m >= most / count), default=10)
    return [step * i for i in range(int(most / step) + 1)]


def kind_of(event):
    word = event["name"].split()[0]
    word = SAME.get(word, word)
    return word if word in KINDS else "other"


class Figure:
    def __init__(self, trace, title):
        events = trace["traceEvents"]
        spans = [e for e in events if e["ph"] == "X" and e["pid"] == 0]
        self.names = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name" and e["pid"] == 0}
        self.spans = spans
        self.memory = sorted((e["ts"], e["args"]) for e in events if e["ph"] == "C" and e["pid"] == 0)
        if not spans:
            sys.exit("the trace has no events")
        self.begin = min(e["ts"] for e in spans)
        self.end = max(e["ts"] + e["dur"] for e in spans)
        self.tracks = sorted({e["tid"] for e in spans})
        self.title, self.out = title, []

    def x(self, time):
        return LEFT + (WIDTH - LEFT - RIGHT) * (time - self.begin) / (self.end - self.begin)

    def text(self, x, y, words, anchor="start", size=11):
        self.out.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{html.escape(words)}</text>')

    def bar(self, event, y):
        colour, hatch = KINDS[kind_of(event)]
        x, width = self.x(event["ts"]), max(self.x(event["ts"] + event["dur"]) - self.x(event["ts"]), 0.4)
        shape = f'x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 8}"'
        self.out.append(f'<rect {shape} fill="{colour}" stroke="#fff" stroke-width="0.3"><title>'
                        f'{html.escape(event["name"])}, {event["dur"] / 1e3:.3f} ms</title></rect>')
        if hatch is not None:
            self.out.append(f'<rect {shape} fill="url(#hatch{hatch})" pointer-events="none"/>')

    def draw_tracks(self):
        for row, track in enumerate(self.tracks):
            y = TOP + row * ROW
            self.text(LEFT - 8, y + ROW / 2, self.names.get(track, f"track {track}"), "end", 12)
            self.out.append(f'<line x1="{LEFT}" y1="{y + ROW - 4}" x2="{WIDTH - RIGHT}" y2="{y + ROW - 4}" stroke="#ddd"/>')
            for event in self.spans:
                if event["tid"] == track:
                    self.bar(event, y)
        return TOP + len(self.tracks) * ROW + GAP

    def draw_memory(self, top):
        if not self.memory:
            return top
        most = max(sum(held.values()) for _, held in self.memory)
        scale = lambda bytes_: top + MEMORY * (1 - bytes_ / most)
        times = [self.begin] + [time for time, _ in self.memory] + [self.end]
        held = [self.memory[0][1]] + [values for _, values in self.memory]
        below = [0] * len(held)
        for kind, colour in HELD.items():
            above = [base + values.get(kind, 0) for base, values in zip(below, held)]
            points = []
            for i, value in enumerate(above):
                points += [(times[i], value), (times[i + 1], value)]
            for i in reversed(range(len(below))):
                points += [(times[i + 1], below[i]), (times[i], below[i])]
            if any(a > b for a, b in zip(above, below)):
                path = " ".join(f"{self.x(t):.1f},{scale(v):.1f}" for t, v in points)
                self.out.append(f'<polygon points="{path}" fill="{colour}"><title>{kind}</title></polygon>')
                widest = max(range(len(above)), key=lambda i: above[i] - below[i])
                at_end = scale(below[-1]) - scale(above[-1]) > 12
                at = len(above) - 1 if at_end else widest
                x = WIDTH - RIGHT - 6 if at_end else (self.x(times[at]) + self.x(times[at + 1])) / 2
                if scale(below[at]) - scale(above[at]) > 12:
                    self.text(x, scale((above[at] + below[at]) / 2) + 4, kind, "end" if at_end else "middle")
            below = above
        for tick in ticks(most / 2**30, 4):
            self.text(LEFT - 8, scale(tick * 2**30) + 4, f"{tick:g} GiB", "end")
            self.out.append(f'<line x1="{LEFT - 4}" y1="{scale(tick * 2**30):.1f}" x2="{LEFT}" y2="{scale(tick * 2**30):.1f}" stroke="#444"/>')
        self.out.append(f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{MEMORY}" fill="none" stroke="#444"/>')
        self.text(14, top - 4, "memory of the rank", size=11)
        return top + MEMORY

    def draw_axis(self, y):
        for tick in ticks((self.end - self.begin) / 1e3, 8):
            x = self.x(self.begin + tick * 1e3)
            self.out.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{y + 4}" stroke="#000" stroke-opacity="0.12"/>')
            self.text(x, y + 18, f"{tick:g}", "middle")
        self.text((LEFT + WIDTH - RIGHT) / 2, y + 34, "milliseconds", "middle")
        return y + 52

    def draw_legend(self, y):
        seen = {kind_of(e) for e in self.spans if e["dur"] > 0}
        for i, kind in enumerate(kind for kind in KINDS if kind in seen):
            colour, hatch = KINDS[kind]
            x = LEFT + i * 105
            for fill in [colour] + ([f"url(#hatch{hatch})"] if hatch is not None else []):
                self.out.append(f'<rect x="{x}" y="{y}" width="18" height="12" fill="{fill}"/>')
            self.text(x + 24, y + 10, kind, size=12)
        return y + 28

    def svg(self):
        self.text(LEFT, 28, self.title, size=15)
        self.text(LEFT, 46, f"{(self.end - self.begin) / 1e3:.1f} ms; rank 0", size=12)
        height = self.draw_legend(self.draw_axis(self.draw_memory(self.draw_tracks() + GAP)))
        hatches = "".join(f'<pattern id="hatch{angle}" width="5" height="5" patternUnits="userSpaceOnUse" '
                          f'patternTransform="rotate({angle})"><line x1="0" y1="0" x2="0" y2="5" stroke="#fff" '
                          'stroke-opacity="0.75" stroke-width="1.4"/></pattern>' for angle in (45, -45, 90, 0))
        return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" '
                          'fill="#222">', f"<title>{html.escape(self.title)}</title>", f"<defs>{hatches}</defs>", f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
                          *self.out, "</svg>", ""])


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        figure = Figure(json.load(file), sys.argv[3] if len(sys.argv) == 4 else "a step")
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        file.write(figure.svg())


if __name__ == "__main__":
    main()
