#!/usr/bin/env -S python3 -B
"""Writes the files of a release, as the formats are described where they are written in C++: not by that code, so that the
two are checked against each other.

    tests/golden/make_golden.py tests/golden/release_1

A file of a release that is out never changes. A format that does gets files in a folder of its own, for which this changes.
"""

import json
import os
import struct
import sys


# --- Checks


def _crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc32c_table()


def crc32c(data):
    check = 0xFFFFFFFF
    for byte in data:
        check = check >> 8 ^ _TABLE[(check ^ byte) & 0xFF]
    return check ^ 0xFFFFFFFF


assert crc32c(b"123456789") == 0xE3069283


# --- safetensors (core/train/safetensors.h)


class Tensor:
    SIZES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "U8": 1, "BOOL": 1}
    _CODES = {"F64": "d", "I64": "q", "F32": "f", "I32": "i", "F16": "e", "U8": "B", "BOOL": "?"}

    def __init__(self, dtype, shape, values):
        self.dtype, self.shape = dtype, shape
        if dtype == "BF16":  # the upper half of a float32
            self.data = b"".join(struct.pack("<f", value)[2:] for value in values)
        else:
            self.data = struct.pack(f"<{len(values)}{self._CODES[dtype]}", *values)


def compact(value):
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def safetensors(tensors, metadata):
    checks = {f"crc32c:{name}": f"{crc32c(tensor.data):08x}" for name, tensor in tensors.items()}
    texts = (text.encode() + b"\0" for item in sorted(metadata.items()) for text in item)
    checks["crc32c"] = f"{crc32c(b''.join(texts)):08x}"
    header, data = {"__metadata__": {**metadata, **checks}}, b""
    for name, tensor in sorted(sorted(tensors.items()), key=lambda item: -Tensor.SIZES[item[1].dtype]):
        offsets = [len(data), len(data) + len(tensor.data)]
        header[name] = {"dtype": tensor.dtype, "shape": tensor.shape, "data_offsets": offsets}
        data += tensor.data
    text = compact(header)
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def weights():
    return safetensors(
        {
            "bfloat16": Tensor("BF16", [2], [1, -2]),
            "bool": Tensor("BOOL", [2], [True, False]),
            "float16": Tensor("F16", [2], [1, -2]),
            "float32": Tensor("F32", [2, 3], [1, -2, 3.5, 4, 5, -0.25]),
            "float64": Tensor("F64", [2], [0.5, -2]),
            "int32": Tensor("I32", [2], [7, -7]),
            "int64": Tensor("I64", [], [-(2**40)]),
            "none": Tensor("F32", [0, 4], []),
            "uint8": Tensor("U8", [3], [1, 2, 255]),
        },
        {"step": "12", "note": "of the first release"},
    )


def backup():
    """What BackupAndRestore keeps after the first epoch of a dense layer under Adam."""
    return safetensors(
        {
            "dense/kernel": Tensor("F32", [2, 2], [0.5, -1.5, 2, 0.25]),
            "dense/bias": Tensor("F32", [2], [0, 1]),
            "optimizer/iterations": Tensor("I64", [], [8]),
            "optimizer/learning_rate": Tensor("F64", [], [0.125]),
            "optimizer/momentum/dense/kernel": Tensor("F32", [2, 2], [1, 2, 3, 4]),
            "optimizer/momentum/dense/bias": Tensor("F32", [2], [5, 6]),
            "optimizer/velocity/dense/kernel": Tensor("F32", [2, 2], [7, 8, 9, 10]),
            "optimizer/velocity/dense/bias": Tensor("F32", [2], [11, 12]),
        },
        {"training": compact({"epoch": 1, "step": 0}).decode()},
    )


# --- The snapshot of a parameter server (strategies/parameter_server/snapshot.h)


def in_hex(text):
    return text.encode().hex()


def saved_shard(tensors, about):
    """What the manifest says of a shard, and its tensors one behind the other."""
    return compact({**about, "crc32c": [crc32c(tensor.data) for tensor in tensors]}), b"".join(t.data for t in tensors)


def snapshot():
    """The manifest, and the tensors: a part of a variable that is trained, and a table with rows on first use."""
    common = {"dtype": "float32", "update": "", "row_update": "", "row_block": 0, "slots": [], "marks": []}
    shards = [
        saved_shard(
            [Tensor("F32", [2, 2], [1, 2, 3, 4]), Tensor("F32", [2, 2], [0.5, 0.5, -1, 0])],
            {
                **common,
                "name": in_hex("w/part_1"),
                "variable": in_hex("w"),
                "shape": [5, 2],
                "begin": 3,
                "rows": 2,
                "update": in_hex("a function"),
                "slots": [{"name": in_hex("momentum"), "initial": 0.5}],
                "marks": [{"task": in_hex("worker:1"), "incarnation": 2**63 + 1, "sequence": 3}],
                "version": 9,
                "updates": 8,
            },
        ),
        saved_shard(
            [Tensor("I64", [2], [4, 17]), Tensor("F32", [2, 3], [1, 2, 3, 4, 5, 6])],
            {
                **common,
                "name": in_hex("table"),
                "variable": in_hex("table"),
                "shape": [1000, 3],
                "begin": 0,
                "rows": 1000,
                "in_use": 2,
                "lazy": {"kind": 1, "a": -0.5, "b": 0.5, "seed": 7, "max_rows": 100},
                "version": 2,
                "updates": 1,
            },
        ),
    ]
    data = b"".join(tensors for _, tensors in shards)
    text = f'{{"format":2,"file":"shards-1","bytes":{len(data)},"shards":['.encode()
    text += b",".join(about for about, _ in shards) + b"]}"
    return text + f"\n{crc32c(text)}\n".encode(), data


# --- Protocol buffers (proto/*.proto); numbers that are 0, and texts that are empty, are left out


def varint(number):
    data = b""
    while number > 0x7F:
        data += bytes([number & 0x7F | 0x80])
        number >>= 7
    return data + bytes([number])


def field(number, value):
    """A field by the Python type of its value: int, float (double) or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value) if value else b""
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value) if value else b""
    return varint(number << 3 | 2) + varint(len(value)) + value if value else b""


def message(number, *fields):
    """A message, which is there even where it is empty."""
    data = b"".join(fields)
    return varint(number << 3 | 2) + varint(len(data)) + data


def numbers(number, values):
    return field(number, b"".join(map(varint, values)))


# --- The log of a parameter server (strategies/parameter_server/change_log.h)


def entry(payload, *fields):
    header = b"".join(fields)
    lengths = struct.pack("<QI", len(payload), len(header))
    return lengths + struct.pack("<I", crc32c(lengths + header + payload)) + header + payload


def floats(*values):
    return struct.pack(f"<{len(values)}f", *values)


def changes():
    """A variable is made and overwritten, and so is a table with rows on first use; another is moved by a gradient."""
    mark = message(3, field(1, b"worker:1"), varint(2 << 3 | 1) + struct.pack("<Q", 2**63 + 1), field(3, 3))
    lazy = message(11, field(2, 0.5), field(4, 7), field(5, 100))
    created = message(4, field(1, b"w"), field(2, b"w"), numbers(4, [2]), field(6, 2))
    table = message(4, field(1, b"table"), field(2, b"table"), numbers(4, [1000, 2]), field(6, 1000), lazy)
    rows = struct.pack("<2q", 4, 17)
    gradient = message(5, field(1, 0.1), field(2, 8), field(3, 1))
    return (
        entry(floats(1, 2), field(1, b"w"), created)
        + entry(floats(3, -4), field(1, b"w"), field(2, 5), mark, message(6))
        + entry(b"", field(1, b"table"), table)
        + entry(rows + floats(1, 2, 3, 4), field(1, b"table"), field(2, 1), message(7, field(3, 2)))
        + entry(struct.pack("<q", 1) + floats(1, -2), field(1, b"gone"), field(2, 7), gradient)
    )


# --- A traced function (proto/graph.proto)


def function():
    """x * (3, 4) + w."""
    spec = numbers(2, [2])  # float32[2]
    shape = message(4, field(1, b"shape"), message(6, numbers(1, [2])))
    dtype = message(4, field(1, b"dtype"), varint(7 << 3) + varint(0))
    value = message(4, field(1, b"value"), message(8, message(1, spec), field(2, floats(3, 4))))
    result = message(5, spec)

    def node(name, op, *rest):
        return message(3, field(1, name), field(2, op), *rest)

    def endpoint(number, of):
        return message(number, field(1, of))

    content = b"".join(
        [
            field(1, 1),
            message(2, field(1, b"w"), message(2, spec)),
            node(b"x", b"Input", dtype, shape, result),
            node(b"factor", b"Constant", value, result),
            node(b"read", b"ReadVariable", result, field(6, b"w")),
            node(b"product", b"Mul", endpoint(3, 0), endpoint(3, 1), result),
            node(b"sum", b"Add", endpoint(3, 3), endpoint(3, 2), result),
            endpoint(4, 4),
        ]
    )
    return content + varint(5 << 3 | 5) + struct.pack("<I", crc32c(content))


def main(folder):
    manifest, shards = snapshot()
    files = {
        "weights.safetensors": weights(),
        "backup.safetensors": backup(),
        "snapshot.json": manifest,
        "shards-1": shards,
        "changes-1": changes(),
        "function.graph": function(),
    }
    for name, data in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    main(sys.argv[1])
