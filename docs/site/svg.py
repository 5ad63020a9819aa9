# SPDX-License-Identifier: Apache-2.0
"""A small SVG writer: boxes, lines and texts in the book's colours and patterns, on white. A picture reads on any background, and
without colours."""
from html import escape

WIDTH = 520  # of every picture: as wide as a telephone allows with letters that can be read
COLOURS = {"weights": "#3b6ea8", "gathered": "#a9c8ea", "gradients": "#d9822b", "optimizer": "#5b8c5a", "activations": "#9a7bb5",
           "compute": "#243447", "reduce": "#b5492d", "kept": "#9a7bb5", "recomputed": "#e7ddf0", "absent": "#eeeeee"}
# What is drawn over a colour, on squares of 8 by 8: a path and its colour.
PATTERNS = {"gathered": ("M0,8 L8,0 M-1,1 L1,-1 M7,9 L9,7", "#3b6ea8"), "gradients": ("M2,2 h2 v2 h-2 z M6,6 h2 v2 h-2 z", "#ffffff"),
            "optimizer": ("M0,0 L8,8 M0,8 L8,0", "#ffffff"), "activations": ("M0,2 h8 M0,6 h8", "#ffffff"), "kept": ("M0,2 h8 M0,6 h8", "#ffffff"),
            "recomputed": ("M0,8 L8,0 M-1,1 L1,-1 M7,9 L9,7", "#9a7bb5")}


class Picture:
    def __init__(self, title):
        self.title, self.parts, self.height, self.patterns = title, [], 0, set()

    def box(self, x, y, width, height, colour, outline=None):
        border = f' stroke="{outline}"' if outline else ""
        fill = f"url(#{colour})" if colour in PATTERNS else COLOURS.get(colour, colour)
        self.patterns |= {colour} & set(PATTERNS)
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{border}/>')
        self.height = max(self.height, y + height)

    def text(self, x, y, words, size=14, anchor="start", bold=False, colour="#222222"):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{weight}>{escape(words)}</text>')
        self.height = max(self.height, y + 4)

    def line(self, x1, y1, x2, y2, colour="#999999"):
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{COLOURS.get(colour, colour)}"/>')

    def mark(self, x, y, colour, up):
        """A triangle at (x, y), 10 wide: up for what is sent away, down for what comes."""
        tip = -9 if up else 9
        self.parts.append(f'<path d="M{x - 5:.1f},{y:.1f} h10 l-5,{tip} z" fill="{COLOURS.get(colour, colour)}"/>')
        self.height = max(self.height, y + 9)

    def key(self, y, entries):
        """A row of colours and what they mean, of (colour, words)."""
        x = 10
        for colour, words in entries:
            width = 22 + 7.2 * len(words)
            if x + width > WIDTH:
                x, y = 10, y + 20
            self.box(x, y - 11, 13, 13, colour, "#888888")
            self.text(x + 18, y, words, 13)
            x += width + 10
        return y + 10

    def axis(self, y, x, width, most, unit):
        """A scale from 0 at x to `most` at x + width, below y, with four to nine marks."""
        step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if most / step < 9)
        self.line(x, y, x + width, y, "#555555")
        for mark in range(0, int(most) + 1, step):
            at = x + mark / most * width
            self.line(at, y, at, y + 4, "#555555")
            self.text(at, y + 17, f"{mark}", 12, "middle")
        self.text(x + width + 12, y + 17, unit, 12)
        return y + 20

    def svg(self):
        height = self.height + 10
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
                f'font-family="sans-serif" role="img"><title>{escape(self.title)}</title>\n')
        patterns = [f'<pattern id="{name}" width="8" height="8" patternUnits="userSpaceOnUse"><rect width="8" height="8" fill="{COLOURS[name]}"/>'
                    f'<path d="{PATTERNS[name][0]}" stroke="{PATTERNS[name][1]}" fill="none"/></pattern>' for name in sorted(self.patterns)]
        paper = f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>'
        return head + "\n".join([*patterns, paper, *self.parts]) + "\n</svg>\n"
