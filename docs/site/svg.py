# SPDX-License-Identifier: Apache-2.0
"""A small SVG writer: boxes, lines and texts in the book's colours, on white, so that a picture reads on any background."""
from html import escape

WIDTH = 520  # of every picture: as wide as a telephone allows with letters that can be read
COLOURS = {"weights": "#3b6ea8", "gathered": "#a9c8ea", "gradients": "#d9822b", "optimizer": "#5b8c5a", "activations": "#9a7bb5",
           "compute": "#243447", "reduce": "#b5492d", "kept": "#9a7bb5", "recomputed": "#e7ddf0", "absent": "#eeeeee"}


class Picture:
    def __init__(self, title):
        self.title, self.parts, self.height = title, [], 0

    def box(self, x, y, width, height, colour, outline=None):
        border = f' stroke="{outline}"' if outline else ""
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{COLOURS.get(colour, colour)}"{border}/>')
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

    def svg(self):
        height = self.height + 10
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" height="{height:.0f}" '
                f'font-family="sans-serif" role="img"><title>{escape(self.title)}</title>\n')
        return head + f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
