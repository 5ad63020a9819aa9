#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rival of `tessera_bench tokenize --model FOLDER --text PATH`: the package `tokenizers` over the same documents.

usage: tokenizers_rate.py TOKENIZER_JSON PATH [--repeats 3]

Prints one JSON line for one thread and one for all cores: the median rate in MB/s. Needs tokenizers.
"""
import argparse
import json
import os
import statistics
import time
from pathlib import Path

MOST_BYTES = 64_000_000  # as bench/tokenize.cpp


def documents_of(path):
    files = sorted((p for p in path.rglob("*") if p.is_file()), key=str) if path.is_dir() else [path]
    documents, size = [], 0
    for file in files:
        documents.append(file.read_bytes().decode(errors="replace"))
        size += file.stat().st_size
        if size > MOST_BYTES:
            break
    return documents, size


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("tokenizer")
    parser.add_argument("path", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    documents, size = documents_of(options.path)
    for parallel in (False, True):
        os.environ["TOKENIZERS_PARALLELISM"] = "true" if parallel else "false"
        import tokenizers
        begin = time.time()
        tokenizer = tokenizers.Tokenizer.from_file(options.tokenizer)
        loaded = time.time() - begin
        times = []
        for _ in range(options.repeats):
            begin = time.time()
            encodings = tokenizer.encode_batch_fast(documents)
            times.append(time.time() - begin)
        print(json.dumps({"bench": "tokenizers", "threads": os.cpu_count() if parallel else 1, "bytes": size,
                          "tokens": sum(len(e.ids) for e in encodings), "load_ms": 1e3 * loaded,
                          "mb_per_second": size / 1e6 / statistics.median(times)}))


if __name__ == "__main__":
    main()
