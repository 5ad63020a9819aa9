# SPDX-License-Identifier: Apache-2.0
"""Numbers that once crashed, wrapped or did nothing. tests/long/numbers_test.py tries every flag at every edge."""
import pytest

from support.files import write


@pytest.mark.parametrize("pattern, flags", [
    (r"batch-size 2147483648 must be at least 1 and at most 1048576", "--batch-size 2147483648"),
    (r"batch-size 9223372036854775807 must be", "--batch-size 9223372036854775807"),
    (r"grad-accum 4294967296 must be at least 1 and at most 1048576", "--grad-accum 4294967296"),
    (r"threads 100000 must be at least 0 and at most 1024", "--threads 100000"),
    (r"threads 4294967297 must be", "--threads 4294967297"),
    (r"deadline 1e\+16 must be above 0 and at most 1e\+06", "--deadline 1e16"),
    (r"ranks 4294967298 must be at least 0 and at most 65536", "--dry-run --ranks 4294967298"),
    (r"fsdp2:4294967298: the number must be at most 2147483647", "--sharding fsdp2:4294967298"),
    (r"threads:4294967298: the number must be at most 1024", "--comm threads:4294967298"),
    (r"tokens:9223372036854775807: the number must be at most", "--tiling tokens:9223372036854775807"),
    (r"grad-accum 4294967296 must be", "--config file.toml"),
])
def test_is_refused(program, pattern, flags):
    write("file.toml", "steps = 3\ngrad-accum = 4294967296\n")
    program.refuses(pattern, "train --data text.txt --model tiny --seq-len 16 --precision fp32 --steps 2", flags)
