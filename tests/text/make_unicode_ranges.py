#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/text/unicode/unicode_tables.cpp: which code points are what, asked of the Python package `tokenizers`, one by one.

usage: make_unicode_ranges.py OUTPUT        needs: pip install tokenizers (0.23.3 wrote the file that is kept)

Its regular expressions, its flags of added tokens, its pre-tokenizer Digits and its normalizers know different versions of
Unicode, so each is asked itself.
"""
import sys

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
EVERYTHING = "".join(map(chr, CODE_POINTS))
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn".split()


def matched(pattern):
    """All code points that a regular expression of one code point matches."""
    split = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed", invert=True)
    return {ord(c) for piece, _ in split.pre_tokenize_str(EVERYTHING) for c in piece}


def word_of_added_tokens():
    """What single_word takes for a part of a word: the Rust crate regex, as in the pre-tokenizer Whitespace."""
    found = set()
    for begin in range(0, len(CODE_POINTS), 10000):
        text = "".join(f"a{chr(c)} " for c in CODE_POINTS[begin:begin + 10000])
        for piece, _ in pre_tokenizers.Whitespace().pre_tokenize_str(text):
            if len(piece) == 2 and piece[0] == "a":
                found.add(ord(piece[1]))
    return found | set(range(0x30, 0x3A)) | set(range(0x41, 0x5B)) | set(range(0x61, 0x7B)) | {0x5F}


def digits():
    """What Digits isolates. No two neighbours that are numbers join, all others do, so a piece of one is asked again."""
    split = pre_tokenizers.Digits(True)
    alone = [piece for piece, _ in split.pre_tokenize_str(EVERYTHING) if len(piece) == 1]
    return {ord(c) for c in alone if len(split.pre_tokenize_str("a" + c)) == 2}


def reordered():
    """Code points whose canonical combining class is not 0: they change places with a neighbour of class 1 or 230."""
    nfd = normalizers.NFD()
    found = set()
    for c in map(chr, CODE_POINTS):
        if nfd.normalize_str(c) == c and (nfd.normalize_str(f"a{c}\u0334") != f"a{c}\u0334" or
                                          nfd.normalize_str(f"a\u0301{c}") != f"a\u0301{c}"):
            found.add(ord(c))
    return found


def changed_by_nfkd():
    """The forms of a character follow from this set and the decompositions: see code_points.cpp."""
    return {ord(c) for c in map(chr, CODE_POINTS) if normalizers.NFKD().normalize_str(c) != c}


def runs(members):
    """Lengths of runs outside, inside, outside, ... from 0 on; surrogates go with what stands before them."""
    lengths, inside, begin = [], False, 0
    for c in CODE_POINTS:
        if (c in members) != inside:
            lengths.append(c - begin)
            inside, begin = not inside, c
    return lengths + ([0x110000 - begin] if inside else [])


def lines(text):
    return [text[i:i + 112] for i in range(0, len(text), 112)]


def main():
    category_of = {}
    for name in CATEGORIES:
        for c in matched(rf"\p{{{name}}}"):
            assert c not in category_of
            category_of[c] = name
    text, previous, length = "", None, 0
    for c in range(0x110000):
        category = category_of.get(c, "Cn")
        if category != previous:
            text += (previous + (str(length) if length > 1 else "")) if previous else ""
            previous, length = category, 0
        length += 1
    text += previous + str(length)

    whitespace = pre_tokenizers.WhitespaceSplit()
    words = "L M Nd Nl Pc"
    sets = {  # each with the categories that it differs little from
        "space": ("", matched(r"\s")),
        "word": (words, matched(r"\w")),
        "han": ("", matched(r"\p{Han}")),
        "hiragana": ("", matched(r"\p{Hiragana}")),
        "katakana": ("", matched(r"\p{Katakana}")),
        "hangul": ("", matched(r"\p{Hangul}")),
        "added_word": (words, word_of_added_tokens()),
        "numeric": ("N", digits()),
        "reordered": ("", reordered()),
        "nfkd": ("", changed_by_nfkd()),
    }
    assert {ord(c) for c in EVERYTHING} - {ord(c) for p, _ in whitespace.pre_tokenize_str(EVERYTHING) for c in p} \
        == sets["space"][1]
    with open(sys.argv[1], "w") as out:
        out.write("// SPDX-License-Identifier: Apache-2.0\n"
                  f"// Written by make_unicode_ranges.py with tokenizers {tokenizers.__version__}; do not edit.\n"
                  '#include "unicode_sets.hpp"\n\n'
                  "namespace fsdp::text {\n\n// clang-format off\n"
                  "const char* const category_runs =\n")
        out.write("\n".join(f'  "{line}"' for line in lines(text)) + ";\n\n")
        out.write("const std::array<UnicodeTable, unicode_table_count> unicode_tables = {{\n")
        for name, (categories, members) in sets.items():
            near = {c for c, category in category_of.items() if {category, category[0]} & set(categories.split())}
            out.write(f'  {{"{name}", "{categories}",\n')
            out.write("\n".join(f'   "{line}"' for line in lines(" ".join(map(str, runs(members ^ near))))) + "},\n")
        out.write("}};\n// clang-format on\n\n}  // namespace fsdp::text\n")
    print(", ".join(f"{name} {len(members)}" for name, (_, members) in sets.items()))


if __name__ == "__main__":
    main()
