# SPDX-License-Identifier: Apache-2.0
"""Strings of bytes that test tokenizers, by a formula: sample_strings.hpp makes the same ones in C++."""

MASK = (1 << 64) - 1
WORDS = ("the of and to in is that it was for on are with as his they be at one have this from or had by hot but some what there "
         "we can out other were all your when up use word how said an each she which their time if will way about many then them "
         "template typename constexpr static_cast std::vector std::size_t namespace inline return include define struct "
         "HTTPServer getElementById snake_case_name CamelCase naïve Straße coöperate façade Привет мир Ελληνικά שלום مرحبا "
         "नमस्ते สวัสดี 日本語 東京 中文字符 안녕하세요 ひらがな カタカナ").split()
SPACES = [" ", " ", " ", "\t", "\n", "\r\n", "\r", "\u00a0", "\u3000", "\u0085", "\u2028", "\u200b"]
CONTRACTIONS = ["'s", "'t", "'re", "'VE", "'m", "'ll", "'LL", "'d", "'S", "'\u017f", "\u2019s", "'", "''s", "'x"]
EMOJI = ["\U0001f468", "\U0001f469", "\u200d", "\ufe0f", "\U0001f3fd", "\u2764", "\U0001f1e9", "\U0001f1ea", "\U0001f600", "\u20e3"]
TOKENS = ["<s>", "</s>", "<unk>", "<|endoftext|>", "<|begin_of_text|>", "<|im_start|>", "<|im_end|>", "<mask>", "<tool>", "<0x41>",
          "<pad", "[WORD]", "Caf\u00e9!", "<|", "   "]
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
SIGNS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


class Draw:
    def __init__(self, seed):
        self.state = seed

    def next(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, count):
        return (self.next() >> 33) % count

    def of(self, many):
        return many[self.below(len(many))]


def code_point(draw, begin, end):
    code = begin + draw.below(end - begin)
    return chr(code if not 0xD800 <= code < 0xE000 else code - 0x1000)


def several(draw, least, most, one):
    return "".join(one() for _ in range(least + draw.below(most - least + 1)))


def piece(draw):
    kind = draw.below(20)
    if kind < 4:
        return ((" " if draw.below(3) else "") + draw.of(WORDS)).encode()
    if kind == 4:
        return several(draw, 1, 12, lambda: draw.of(LETTERS)).encode()
    if kind < 7:
        return several(draw, 1, 6, lambda: draw.of(SPACES)).encode()
    if kind == 7:
        return several(draw, 1, 8, lambda: draw.of("0123456789")).encode()
    if kind == 8:
        return several(draw, 1, 5, lambda: draw.of(SIGNS)).encode()
    if kind == 9:
        return several(draw, 1, 3, lambda: code_point(draw, 0, 0x110000)).encode()
    if kind == 10:
        return several(draw, 1, 5, lambda: code_point(draw, 0x80, 0x3000)).encode()
    if kind == 11:
        return several(draw, 1, 4, lambda: code_point(draw, 0xA000, 0x20000)).encode()
    if kind == 12:
        return several(draw, 1, 6, lambda: draw.of(EMOJI)).encode()
    if kind == 13:
        return several(draw, 1, 6, lambda: code_point(draw, 0x3041, 0x9FFF)).encode()
    if kind == 14:
        return several(draw, 1, 3, lambda: draw.of(CONTRACTIONS)).encode()
    if kind == 15:
        return (several(draw, 0, 2, lambda: draw.of(SPACES)) + draw.of(TOKENS) + several(draw, 0, 2, lambda: draw.of(SPACES))).encode()
    if kind == 16:
        return bytes(draw.below(256) for _ in range(1 + draw.below(4)))
    if kind == 17:
        return (draw.of(LETTERS) + several(draw, 1, 4, lambda: code_point(draw, 0x300, 0x370))).encode()
    if kind == 18:
        return several(draw, 1, 4, lambda: code_point(draw, 0xF900, 0xFFFF)).encode()
    return (draw.of(LETTERS) + draw.of(LETTERS)).encode() * (1 + draw.below(150)) if draw.below(8) == 0 else b" " * draw.below(30)


def sample(index):
    draw = Draw(index)
    return b"".join(piece(draw) for _ in range(1 + draw.below(12)))
