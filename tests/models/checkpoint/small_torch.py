"""Archives as torch writes them, made of opcodes and a zip file without torch."""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

CLASSES = {
    "float32": "FloatStorage",
    "float16": "HalfStorage",
    "bfloat16": "BFloat16Storage",
    "float64": "DoubleStorage",
    "int64": "LongStorage",
    "int32": "IntStorage",
    "int16": "ShortStorage",
    "int8": "CharStorage",
    "uint8": "ByteStorage",
    "bool": "BoolStorage",
}
BEGIN, END = b"\x80\x02", b"."


def text(value: str) -> bytes:
    """BINUNICODE."""
    encoded = value.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def number(value: int) -> bytes:
    """LONG1 of eight bytes."""
    return b"\x8a\x08" + struct.pack("<q", value)


def numbers(values: Sequence[int]) -> bytes:
    """A tuple."""
    return b"(" + b"".join(map(number, values)) + b"t"


def name(module: str, attribute: str) -> bytes:
    """GLOBAL."""
    return f"c{module}\n{attribute}\n".encode()


def storage(kind: str, key: str, size: int) -> bytes:
    """A persistent id."""
    parts = text("storage") + name("torch", kind) + text(key) + text("cpu") + number(size)
    return b"(" + parts + b"tQ"


def tensor(stored: bytes, offset: int, shape: Sequence[int], strides: Sequence[int]) -> bytes:
    """torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, False, OrderedDict())."""
    hooks = name("collections", "OrderedDict") + b")R"
    given = stored + number(offset) + numbers(shape) + numbers(strides) + b"\x89" + hooks
    return name("torch._utils", "_rebuild_tensor_v2") + b"(" + given + b"tR"


def state_dict(values: Mapping[str, bytes]) -> bytes:
    """An OrderedDict with items, and versions as an attribute that BUILD sets."""
    items = b"".join(text(key) + value for key, value in values.items())
    attribute = b"}" + text("_metadata") + b"}s"
    made = name("collections", "OrderedDict") + b")R" + b"(" + items + b"u"
    return BEGIN + made + attribute + b"b" + END


def contiguous(shape: Sequence[int]) -> list[int]:
    """Strides in elements."""
    return [int(np.prod(shape[i + 1 :], dtype=int)) for i in range(len(shape))]


def write(path: Path, pickled: bytes, storages: Mapping[str, bytes], folder: str = "model") -> Path:
    """An archive with a pickle and its storages."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{folder}/data.pkl", pickled)
        archive.writestr(f"{folder}/byteorder", b"little")
        for key, data in storages.items():
            archive.writestr(f"{folder}/data/{key}", data)
        archive.writestr(f"{folder}/version", b"3\n")
    return path


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> Path:
    """An archive with a storage for each array."""
    values, storages = {}, {}
    for key, (label, array) in enumerate(arrays.items()):
        stored = storage(CLASSES[array.dtype.name], str(key), array.size)
        values[label] = tensor(stored, 0, array.shape, contiguous(array.shape))
        storages[str(key)] = np.ascontiguousarray(array).tobytes()
    return write(path, state_dict(values), storages)
