#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the small tokenizers of tests/text/tokenizers, and writes what the Python package `tokenizers` makes of the sample
strings: for each string two hashes, of its ids and of the text they are decoded to.

usage: make_tokenizers.py [--vectors-only]        needs: pip install tokenizers (0.23.3 wrote the files that are kept)

Training breaks ties in another way each time, so new tokenizers are others; --vectors-only writes the same files again.
"""
import json
import struct
import sys
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import BPE

from text_strings import WORDS, sample

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "tokenizers"
STRINGS = 6000
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
GPT4O = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+")


def corpus():
    """The licence, words in many orders, and sample strings that the vectors do not hold: the same on every machine."""
    yield from (HERE.parent.parent / "LICENSE").read_text().splitlines(keepends=True)
    for index in range(2000):
        yield " ".join(WORDS[(index * 7 + k * k) % len(WORDS)] for k in range(12))
    for index in range(2000):
        yield sample(1_000_000 + index).decode("utf-8", errors="replace")


def train(tokenizer, vocabulary, special, alphabet=()):
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=special, initial_alphabet=list(alphabet),
                                  show_progress=False, limit_alphabet=300)
    tokenizer.train_from_iterator(corpus(), trainer)
    return tokenizer


def byte_level(pre_tokenizer, special, normalizer=None, vocabulary=1200):
    tokenizer = Tokenizer(BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    return train(tokenizer, vocabulary, special, pre_tokenizers.ByteLevel.alphabet())


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def sentence_piece(normalizer, pre_tokenizer, decoder, fallback=True, fuse=True, vocabulary=1500):
    special = ["<unk>", "<s>", "</s>"] + ([f"<0x{byte:02X}>" for byte in range(256)] if fallback else [])
    tokenizer = Tokenizer(BPE(unk_token="<unk>", fuse_unk=fuse, byte_fallback=fallback))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    train(tokenizer, vocabulary, special)
    tokenizer.decoder = decoder
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def without_split(content):
    """Merges do not cross words, as SentencePiece learns them, though the file does not split."""
    without_bytes_as_added(content)
    content["pre_tokenizer"] = None


def without_bytes_as_added(content):
    """<0x..> are tokens of the model alone, as in files that were converted from SentencePiece."""
    content["added_tokens"] = [token for token in content["added_tokens"] if not token["content"].startswith("<0x")]


def make():
    whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    gpt2 = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), ["<|endoftext|>"])
    gpt2.post_processor = processors.ByteLevel(trim_offsets=False)
    yield "gpt2", gpt2, None

    llama3 = byte_level(pre_tokenizers.Sequence([split(LLAMA3), whole]), ["<|begin_of_text|>", "<|endoftext|>"])
    llama3.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", pair="<|begin_of_text|> $A $B",
                                      special_tokens=[("<|begin_of_text|>", 0)])])

    def ignore_merges(content):
        content["model"]["ignore_merges"] = True
        del content["model"]["merges"][5::9]  # tokens that merges do not lead to
    yield "llama3", llama3, ignore_merges

    qwen = byte_level(pre_tokenizers.Sequence([split(LLAMA3.replace("{1,3}", "")), whole]),
                      ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], normalizers.NFC())
    qwen.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("<mask>", normalized=True, rstrip=True)])

    def old_merges(content):
        content["model"]["merges"] = [" ".join(merge) for merge in content["model"]["merges"]]
    yield "qwen", qwen, old_merges

    yield "llama2", sentence_piece(
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), pre_tokenizers.Metaspace(),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    ), without_split
    yield "mistral", sentence_piece(
        None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    ), without_bytes_as_added
    yield "gemma", sentence_piece(
        normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])), without_bytes_as_added
    yield "metaspace", sentence_piece(
        normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="always", split=True),
        decoders.Metaspace(prepend_scheme="always", split=True), fallback=False, fuse=False), None

    smollm = byte_level(pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                 pre_tokenizers.ByteLevel(add_prefix_space=True)]), ["<|endoftext|>"])
    yield "smollm", smollm, None

    deepseek = byte_level(pre_tokenizers.Sequence([split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK), whole]),
                          ["<s>", "</s>"], normalizers.Sequence([]))
    deepseek.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True), AddedToken("[WORD]", single_word=True)])
    deepseek.add_tokens([AddedToken("<tool>", lstrip=True), AddedToken("   ", normalized=True)])
    yield "deepseek", deepseek, None

    gpt4o = byte_level(pre_tokenizers.Sequence([split(GPT4O, "removed", True), whole]), ["<|endoftext|>"], normalizers.NFKC())
    gpt4o.add_tokens([AddedToken("Café!", normalized=True), AddedToken("the", single_word=True, lstrip=True)])
    yield "gpt4o", gpt4o, None

    odd = byte_level(pre_tokenizers.Sequence([split(r"[\p{Lu}&&[^A-F]]", "merged_with_next"), split("[,;]", "merged_with_previous"),
                                              split(r"\d+|(?<=x)\w", "contiguous", True), split(r"\s", "removed"),
                                              pre_tokenizers.Digits(individual_digits=False), whole]),
                     ["<|endoftext|>"], normalizers.Sequence([normalizers.NFD(), normalizers.Replace(Regex("[aeiou]{2}"), "ø"),
                                                             normalizers.Replace("-", "")]))
    yield "odd", odd, None


def fnv(data, value=0x811C9DC5):
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def write_vectors(path):
    tokenizer = Tokenizer.from_file(str(path))
    with open(path.with_suffix(".hashes"), "wb") as out:
        for index in range(STRINGS):
            text = sample(index).decode("utf-8", errors="replace")
            ids = tokenizer.encode(text, add_special_tokens=index % 2 == 0).ids
            decoded = tokenizer.decode(ids, skip_special_tokens=index % 3 == 0)
            out.write(struct.pack("<II", fnv(struct.pack(f"<{len(ids)}I", *ids)), fnv(decoded.encode())))


def main():
    FOLDER.mkdir(exist_ok=True)
    if "--vectors-only" not in sys.argv:
        for name, tokenizer, change in make():
            content = json.loads(tokenizer.to_str())
            if change is not None:
                change(content)
            (FOLDER / f"{name}.json").write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")))
    for path in sorted(FOLDER.glob("*.json")):
        write_vectors(path)
        print(path.name, path.stat().st_size, "bytes, tokenizers", tokenizers.__version__)


if __name__ == "__main__":
    main()
