# SPDX-License-Identifier: Apache-2.0
"""What tests of programs read, write and compare. Regular expressions are searched in lines."""
import filecmp
import json
import os
import pathlib
import re
import shutil
import struct

TESTS = pathlib.Path(__file__).resolve().parent.parent
GOLDEN = TESTS / "golden"


def listing(folder="."):
    """Everything below a folder, sorted."""
    return sorted(str(path) for path in pathlib.Path(folder).rglob("*"))


def read(path):
    return pathlib.Path(path).read_text(encoding="utf-8")


def write(path, text):
    """Writes a file in folders that are made, and returns its path."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8") if isinstance(text, str) else path.write_bytes(text)
    return path


def same(one, other):
    """Two files have the same bytes."""
    assert filecmp.cmp(one, other, shallow=False), f"{one} and {other} differ"


def text(size, path=None):
    """Repeatable text of so many bytes, written to a file if one is given."""
    vocabulary = "the rank holds a shard of every weight and gathers the next while it computes this one".split()
    state, made, length = 1, [], 0
    while length < size:
        state = state * 6364136223846793005 + 1442695040888963407 & (1 << 64) - 1
        made.append(vocabulary[state >> 33 & 15] + (" " if state >> 40 & 7 else ".\n"))
        length += len(made[-1])
    written = "".join(made)[:size]
    if path:
        write(path, written)
    return written


def records(metrics):
    """The records of a file of JSON lines; floating-point numbers as printed. A line that is being written is omitted."""
    return [json.loads(line, parse_float=str) for line in read(metrics).splitlines(keepends=True) if line.endswith("\n")]


def steps(metrics, first=1):
    """(step, loss, grad_norm, lr) of each step from `first` on, as printed."""
    return [(record["step"], record["loss"], record["grad_norm"], record["lr"])
            for record in records(metrics) if "event" not in record and record["step"] >= first]


def losses(metrics):
    return [float(step[1]) for step in steps(metrics)]


def summary(metrics):
    """The last record of a run."""
    record = json.loads(read(metrics).splitlines()[-1])
    assert record["event"] == "summary", record
    return record


def header_and_data(path):
    """The header of a safetensors file, and the bytes of its tensors."""
    written = pathlib.Path(path).read_bytes()
    end = 8 + struct.unpack_from("<Q", written)[0]
    return json.loads(written[8:end]), written[end:]


def expected(folder, *tensors):
    """Values of a golden folder's expected.safetensors, one after another, a list for each tensor."""
    header, body = header_and_data(pathlib.Path(folder) / "expected.safetensors")
    return [list(struct.unpack(f"<{(end - begin) // 8}d", body[begin:end]))
            for begin, end in (header[name]["data_offsets"] for name in tensors)]


def close(one, other, tolerance):
    """Two lists of numbers (or of tuples of numbers) differ by no more than this, relatively; NaN is close to nothing."""
    def flat(values):
        return [float(number) for value in values for number in (value if isinstance(value, (list, tuple)) else [value])]
    a, b = flat(one), flat(other)
    assert len(a) == len(b) > 0, (len(a), len(b))
    differences = [abs(x - y) / max(abs(y), 1e-30) for x, y in zip(a, b)]
    assert all(difference <= tolerance for difference in differences), f"relative differences {differences}"


def falls(metrics):
    """The mean loss of the last quarter of the steps is below that of the first."""
    values = losses(metrics)
    part = max(len(values) // 4, 1)
    assert sum(values[-part:]) < sum(values[:part]), (values[:part], values[-part:])


def tensors(*paths):
    """The tensors of safetensors files, {name: (type, shape, bytes)}."""
    found = {}
    for path in paths:
        header, body = header_and_data(path)
        assert header.pop("__metadata__", {"format": "pt"}) == {"format": "pt"}, path
        found |= {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])]) for name, entry in header.items()}
    return found


def save_tensors(path, saved):
    """Writes a safetensors file of {name: (type, shape, bytes)}."""
    header, size = {}, 0
    for name, (dtype, shape, data) in saved.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [size, size + len(data)]}
        size += len(data)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    return write(path, struct.pack("<Q", len(head)) + head + b"".join(data for _, _, data in saved.values()))


def set_value(path, tensor, index, value):
    """Overwrites one float32 of a tensor of a safetensors file; index -1 is the last."""
    header, body = header_and_data(path)
    assert header[tensor]["dtype"] == "F32", header[tensor]
    with open(path, "r+b") as file:
        file.seek(header[tensor]["data_offsets"][index < 0] + 4 * index - len(body), os.SEEK_END)
        file.write(struct.pack("<f", value))


def edit(path, old, new):
    """Replaces the first occurrence of a string in a file, which has to contain it."""
    data = pathlib.Path(path).read_bytes()
    assert old.encode() in data, f"no {old} in {path}"
    write(path, data.replace(old.encode(), new.encode(), 1))


def shorten(path):
    """Removes the last byte of a file."""
    os.truncate(path, os.path.getsize(path) - 1)


def copied(folder, to):
    """A copy of a folder, which replaces `to`; links to files become files."""
    shutil.rmtree(to, ignore_errors=True)
    return shutil.copytree(folder, to)


def lines_with(pattern, text):
    """The lines of a text in which it is found."""
    return [line for line in text.splitlines() if re.search(pattern, line)]


def contains(path, *patterns):
    """Each is found in a line of the file."""
    for pattern in patterns:
        assert lines_with(pattern, read(path)), f"no /{pattern}/ in {path}:\n{read(path)[-2000:]}"


def lacks(path, *patterns):
    """None is found in a line of the file."""
    for pattern in patterns:
        assert not lines_with(pattern, read(path)), f"/{pattern}/ in {path}"


def fresh(path):
    """Removes a file or a folder where there is one, and returns its path."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    pathlib.Path(path).unlink(missing_ok=True)
    return path


def cluster(path, *changes):
    """Writes the cluster of docs/plan.md, two ranks of a CPU, with other values: "key=value", or "key=" without the key."""
    written = read(TESTS / "docs" / "two.toml")
    for key, value in (change.split("=", 1) for change in changes):
        written = re.sub(rf"^{key} =.*\n", "", written, flags=re.M) + (f"{key} = {value}\n" if value else "")
    return write(path, written)


def flip(path, at):
    """Changes a bit of a byte of a file."""
    data = bytearray(pathlib.Path(path).read_bytes())
    data[at] ^= 16
    write(path, data)


def latest(folder):
    """The name of a folder's newest checkpoint; None where there is none."""
    return read(f"{folder}/latest").strip() if os.path.exists(f"{folder}/latest") else None


def digests(path):
    """The lines of a file of --digests except for events."""
    return [line for line in read(path).splitlines() if "event" not in line]
