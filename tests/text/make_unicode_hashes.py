#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/text/unicode.hashes: hashes over every code point of what the Python package `tokenizers` makes of it.

usage: make_unicode_hashes.py        needs: pip install tokenizers (0.23.3 wrote the file that is kept)

A line is a normalization form, or a regular expression of one character, and a hash: of all code points' forms, or of all
code points that match, in UTF-8.
"""
from pathlib import Path

from tokenizers import Regex, normalizers, pre_tokenizers

from make_tokenizers import fnv

CODE_POINTS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CLASSES = ("L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp C Cc Cf Co Cn "
           "Han Hiragana Katakana Hangul Letter Punctuation").split()
PATTERNS = [rf"\p{{{name}}}" for name in CLASSES] + [
    r"\s", r"\S", r"\w", r"\W", r"\d", r"\D", ".", r"\P{L}", r"\p{^N}", "(?i:s)", "(?i:k)", "(?i:[a-z])",
    r"[^\r\n\p{L}\p{N}]", r"[\p{Lu}\p{Lo}\p{M}&&[^\p{Han}]]"]


def main():
    with open(Path(__file__).resolve().parent / "unicode.hashes", "w") as out:
        for form in ("NFC", "NFD", "NFKC", "NFKD"):
            normalizer = getattr(normalizers, form)()
            text = "".join(normalizer.normalize_str(c) for c in CODE_POINTS)
            out.write(f"{form} {fnv(text.encode()):08x}\n")
        for pattern in PATTERNS:
            split = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed", invert=True)
            text = "".join(piece for piece, _ in split.pre_tokenize_str("".join(CODE_POINTS)))
            out.write(f"{pattern} {fnv(text.encode()):08x}\n")


if __name__ == "__main__":
    main()
