import io
import json
import pickle
import struct
import zipfile
import zlib
from collections import OrderedDict
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrag.models.checkpoint.files import fingerprint, read_tensors, write_checkpoint
from jaxrag.models.checkpoint.tensor_pickle import read_tensor_pickle
from jaxrag.models.checkpoint.torch_archive import tensors_of_torch
from jaxrag.types import InputError
from tests.models.checkpoint import small_torch as made
from tests.models.checkpoint.small_torch import BEGIN, END, name, number, text

ARRAYS = {
    "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
    "b.weight": np.array([1.5, -2], ml_dtypes.bfloat16),
    "c.bias": np.array([[0.25]], np.float16),
    "d.ids": np.arange(3, dtype=np.int64)[None],
    "e.mask": np.array([True, False]),
    "f.scale": np.array(2.5, np.float64),  # no axis
    "g.empty": np.zeros((0, 4), np.float32),
}


def read(path: Path) -> dict[str, np.ndarray]:
    return {key: stored.read() for key, stored in tensors_of_torch(path).items()}


def assert_equal(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for key, array in wanted.items():
        np.testing.assert_array_equal(found[key], array)
        assert found[key].dtype == array.dtype and found[key].flags.writeable


def test_tensors_of_all_dtypes_are_read(tmp_path):
    assert_equal(read(made.write_arrays(tmp_path / "m.bin", ARRAYS)), ARRAYS)


def test_views_of_one_storage_are_read_by_offset_and_strides(tmp_path):
    # numbers 0 to 11: rows 1 and 2 of [3, 4] are 4..11; transposed, [4, 3] has strides 1 and 4
    stored = made.storage("FloatStorage", "0", 12)
    views = {
        "rows": made.tensor(stored, 4, (2, 4), (4, 1)),
        "transposed": made.tensor(stored, 0, (4, 3), (1, 4)),
    }
    pickled = made.state_dict(views)
    data = np.arange(12, dtype=np.float32)
    found = read(made.write(tmp_path / "m.bin", pickled, {"0": data.tobytes()}))
    np.testing.assert_array_equal(found["rows"], data.reshape(3, 4)[1:])
    np.testing.assert_array_equal(found["transposed"], data.reshape(3, 4).T)


def test_a_parameter_and_a_nested_state_dict_are_read(tmp_path):
    stored = made.tensor(made.storage("FloatStorage", "0", 2), 0, (2,), (1,))
    hooks = name("collections", "OrderedDict") + b")R"
    parameter = name("torch._utils", "_rebuild_parameter") + stored + b"\x88" + hooks + b"\x87R"
    inner = b"}" + text("w") + parameter + b"s"
    pickled = BEGIN + b"}(" + text("epoch") + number(3) + text("state_dict") + inner + b"u" + END
    found = read(made.write(tmp_path / "m.bin", pickled, {"0": np.ones(2, "<f4").tobytes()}))
    np.testing.assert_array_equal(found["w"], np.ones(2))


def test_a_directory_is_read_whole_and_in_shards(tmp_path):
    write_checkpoint(tmp_path / "safe", {"model_type": "bert"}, {"a": np.ones(2, np.float32)})
    (tmp_path / "one").mkdir()
    made.write_arrays(tmp_path / "one" / "pytorch_model.bin", ARRAYS)
    assert_equal(dict(read_tensors(tmp_path / "one")), ARRAYS)

    shards = tmp_path / "shards"
    shards.mkdir()
    files = {key: f"pytorch_model-0000{1 + i % 2}-of-00002.bin" for i, key in enumerate(ARRAYS)}
    for file in set(files.values()):
        part = {key: ARRAYS[key] for key, where in files.items() if where == file}
        made.write_arrays(shards / file, part)
    index = shards / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": files}))
    assert_equal(dict(read_tensors(shards)), ARRAYS)
    index.write_text(json.dumps({"weight_map": {"a.weight": "../one/pytorch_model.bin"}}))
    with pytest.raises(InputError, match=r"names '\.\./one/pytorch_model\.bin'; files must lie"):
        read_tensors(shards)


def test_fingerprints_follow_the_file_that_is_read(tmp_path):
    path = write_checkpoint(tmp_path, {"x": 1}, {"a": np.ones(2, np.float32)})
    before = fingerprint(path)
    made.write_arrays(path / "pytorch_model.bin", ARRAYS)
    assert fingerprint(path) == before  # safetensors are preferred
    (path / "model.safetensors").unlink()
    first = fingerprint(path)
    made.write_arrays(path / "pytorch_model.bin", ARRAYS | {"c.bias": np.ones(1, np.float16)})
    assert len({before, first, fingerprint(path)}) == 3


@pytest.mark.parametrize("name", ["adapter_model.bin", "adapter_model.pt", "new_embeddings.bin"])
def test_fingerprints_of_adapters_follow_their_archives(tmp_path, name):
    (tmp_path / "adapter_config.json").write_text("{}")
    found = []
    for content in (b"a", b"b"):
        (tmp_path / name).write_bytes(content)
        found.append(fingerprint(tmp_path))
    (tmp_path / name).with_suffix(".safetensors").write_bytes(b"")
    found.append(fingerprint(tmp_path))  # it is preferred
    (tmp_path / name).unlink()
    assert fingerprint(tmp_path) == found[2]
    assert len(set(found)) == 3


class Bomb:
    """What an attacker saves; unpickling it would raise."""

    def __init__(self, function: object, *arguments: object) -> None:
        self._made = function, arguments

    def __reduce__(self) -> object:
        return self._made


def attacks() -> dict[str, tuple[bytes, str]]:
    """Pickles that must not be obeyed, and what the message says."""
    import os

    run = "raise SystemExit('a pickle was obeyed')"
    deep = b"".join([b")", b"\x85" * 50_000])
    os_name = os.system.__module__
    by_hand: dict[str, tuple[bytes, str]] = {
        "os.system": (pickle.dumps(Bomb(os.system, "exit 1"), 2), f"names '{os_name}.system"),
        "newer protocol": (pickle.dumps(Bomb(exec, run), 4), "is a pickle of protocol 4"),
        "bytes through codecs": (pickle.dumps({"a": b"x"}, 2), r"names '_codecs\.encode"),
        "in a state dict": (
            made.state_dict({"a": name("builtins", "exec") + b"(" + text(run) + b"tR"}),
            r"names 'builtins\.exec",
        ),
        "INST": (BEGIN + b"(" + text(run) + b"ibuiltins\nexec\n" + END, "pickle opcode INST"),
        "STACK_GLOBAL": (
            BEGIN + text("builtins") + text("exec") + b"\x93" + END,
            "pickle opcode STACK_GLOBAL",
        ),
        "BUILD with a state": (
            BEGIN
            + name("torch", "FloatStorage")
            + b"}"
            + text("__setstate__")
            + number(1)
            + b"sb.",
            "changes a function or class as if it were a dict",
        ),
        "call of a string": (BEGIN + text("exec") + b")R" + END, "calls a str"),
        "call of a class of storages": (
            BEGIN + name("torch", "FloatStorage") + b")R" + END,
            r"calls torch\.FloatStorage with other arguments",
        ),
        "persistent id of a path": (BEGIN + text("/etc/passwd") + b"Q" + END, "persistent id"),
        "persistent id without a class": (
            BEGIN + b"(" + text("storage") * 4 + number(1) + b"tQ" + END,
            "persistent id",
        ),
        "huge LONG4": (BEGIN + b"\x8b\xff\xff\xff\x7f" + b"\x00" * 9 + END, "damaged.*long4"),
        "deep tuple": (BEGIN + deep + END, "holds a tuple; a dict of tensors"),
        "deep tuple as a key": (
            BEGIN + b"}" + deep + number(1) + b"s" + END,
            "a dict whose key is a tuple",
        ),
        "copies of the memo": (BEGIN + b"]q\x00" + b"h\x00a" * 50_000 + END, "holds a list"),
        "unset memo": (BEGIN + b"h\x09" + END, "damaged"),
        "mark as a value": (BEGIN + b"((\x85" + END, "damaged"),
        "no end": (BEGIN + b"}", "damaged"),
        "more after the end": (BEGIN + b"}" + END + pickle.dumps(Bomb(exec, run)), "damaged"),
        "two values": (BEGIN + b"}}" + END, "damaged"),
        "another value": (
            BEGIN + b"}" + text("lr") + number(1) + b"s" + END,
            "'lr' is a int; only tensors",
        ),
        "a key that is a number": (BEGIN + b"}" + number(1) * 2 + b"s" + END, "whose key is a int"),
    }
    return by_hand


@pytest.mark.parametrize("which", attacks())
def test_malicious_pickles_are_refused(which, tmp_path, monkeypatch):
    def forbidden(*args: object, **kwargs: object) -> None:
        raise AssertionError("unpickled")

    pickled, message = attacks()[which]
    path = made.write(tmp_path / "pytorch_model.bin", pickled, {"0": bytes(4)})
    for function in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, function, forbidden)
    with pytest.raises(InputError, match=message) as error:
        read_tensors(tmp_path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


@given(st.binary(max_size=200), st.integers(0, 400))
def test_damaged_pickles_give_input_errors_alone(noise, place):
    whole = made.state_dict(
        {"a": made.tensor(made.storage("FloatStorage", "0", 4), 0, (2, 2), (2, 1))}
    )
    damaged = whole[: place % len(whole)] + noise + whole[place % len(whole) + len(noise) :]
    try:
        found = read_tensor_pickle(damaged, source="x")
    except InputError:
        return
    assert all(record.storage.size >= np.prod(record.shape) for record in found.values())


@pytest.mark.parametrize(
    ("offset", "shape", "strides", "message"),
    [
        (0, (5,), (1,), "does not fit its storage of 4"),
        (1, (4,), (1,), "does not fit"),
        (0, (2, 2), (4, 1), "does not fit"),
        (0, (10**9, 10**9), (0, 0), "does not fit"),  # an expanded tensor is a bomb
        (5, (0,), (1,), "does not fit"),
        (-1, (1,), (1,), "without a storage, an offset"),
        (0, (-1,), (1,), "without a storage, an offset"),
        (0, (2,), (-1,), "without a storage, an offset"),
        (0, (2, 2), (1,), "without a storage, an offset"),
        (0, (1,) * 17, (1,) * 17, "without a storage, an offset"),
    ],
)
def test_tensors_beyond_their_storage_are_refused(offset, shape, strides, message):
    stored = made.storage("FloatStorage", "0", 4)
    pickled = made.state_dict({"a": made.tensor(stored, offset, shape, strides)})
    with pytest.raises(InputError, match=message):
        read_tensor_pickle(pickled, source="x")


def weight(size: int = 4) -> bytes:
    stored = made.storage("FloatStorage", "0", size)
    return made.state_dict({"a": made.tensor(stored, 0, (size,), (1,))})


def refused(path: Path, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        read(path)
    assert str(path) in str(error.value)


def test_storages_must_have_the_size_of_their_numbers(tmp_path):
    path = tmp_path / "m.bin"
    refused(made.write(path, weight(), {"0": bytes(12)}), r"'0' has 12 bytes; 4 numbers.* are 16")
    refused(made.write(path, weight(), {}), "lacks the file 'data/0'")
    outside = made.state_dict(
        {"a": made.tensor(made.storage("FloatStorage", "../data.pkl", 4), 0, (4,), (1,))}
    )
    refused(made.write(path, outside, {"0": bytes(16)}), r"lacks the file 'data/\.\./data\.pkl'")


def test_archives_that_torch_does_not_write_are_refused(tmp_path):
    path = tmp_path / "m.bin"

    def write(entries: list[tuple[str, bytes]], how: int = zipfile.ZIP_STORED) -> Path:
        with zipfile.ZipFile(path, "w", how) as archive:
            for entry, data in entries:
                archive.writestr(entry, data)
        return path

    whole = [("m/data.pkl", weight()), ("m/data/0", bytes(16))]
    np.testing.assert_array_equal(read(write(whole))["a"], np.zeros(4))
    refused(write(whole, zipfile.ZIP_DEFLATED), "'data.pkl' is compressed")
    for bad in ("/m/x", "other/x", "m/"):
        refused(write([*whole, (bad, b"")]), "is not a file that torch writes")
    with pytest.warns(UserWarning, match="Duplicate"):
        write([*whole, ("m/data/0", bytes(16))])
    refused(path, "each name once")
    refused(write(whole[1:]), r"lacks the file 'data\.pkl'")
    refused(write([*whole, ("m/byteorder", b"big")]), "big-endian")
    refused(write([("m/data.pkl", bytes(3 << 20))]), "at most 2,097,152")


def test_damaged_archives_are_refused(tmp_path):
    path = made.write(tmp_path / "m.bin", weight(4000), {"0": bytes(range(250)) * 64})
    data = path.read_bytes()
    for kept in (0, 3, 40, len(data) // 2, len(data) - 10):
        path.write_bytes(data[:kept])
        refused(path, "truncated or not an archive")
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 1  # in the storage, which is most of the file
    path.write_bytes(flipped)
    refused(path, "is damaged .'data/0': Bad CRC-32")
    path.unlink()
    refused(path, "is missing")


def test_a_directory_that_lies_is_refused(tmp_path):
    """Of where a file is, and of how many bytes it has: views beyond them would read memory."""
    path = made.write(tmp_path / "m.bin", weight(), {"0": bytes(16), "1": bytes(16)})
    whole = path.read_bytes()
    with zipfile.ZipFile(path) as archive:
        offsets = {info.filename: info.header_offset for info in archive.infolist()}
    data, place = bytearray(whole), whole.rindex(b"model/data/0") - 46
    struct.pack_into("<I", data, place + 42, offsets["model/data/1"])
    path.write_bytes(data)
    refused(path, "is damaged .*'data/0': File name in directory")
    data = bytearray(whole)
    struct.pack_into("<II", data, place + 16, zlib.crc32(bytes(8)), 8)  # checksum, stored bytes
    path.write_bytes(data)
    refused(path, "is damaged .'data/0': 8 bytes of 16")


def test_the_format_before_zip_archives_is_refused_with_the_way_out(tmp_path):
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2))
    with pytest.raises(InputError, match=r"before 1\.6.*Convert it to safetensors"):
        read_tensors(tmp_path)


@pytest.mark.parity
def test_files_that_torch_writes(tmp_path):
    torch = pytest.importorskip("torch")
    base = torch.randn(6, 8)
    values = OrderedDict(
        a=base,
        rows=base[2:5],
        transposed=base.T,
        half=base.half(),
        brain=base.bfloat16(),
        ids=torch.arange(5),
        small=torch.tensor([1, 2], dtype=torch.int8),
        mask=torch.tensor([True, False]),
        scalar=torch.tensor(2.5, dtype=torch.float64),
        empty=torch.zeros(0, 3),
        parameter=torch.nn.Parameter(torch.ones(2)),
    )
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    for number_, saved in enumerate((values, module.state_dict(), {"state_dict": dict(values)})):
        path = tmp_path / f"some model {number_}.bin"
        torch.save(saved, path)
        found = read(path)
        wanted = saved.get("state_dict", saved)
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            value = value.detach()
            got = torch.tensor(found[key].astype(np.float64))
            assert torch.equal(got, value.double()) and str(found[key].dtype) in str(value.dtype)
    stream = io.BytesIO()
    torch.save(values, stream, _use_new_zipfile_serialization=False)
    path.write_bytes(stream.getvalue())
    refused(path, "before 1.6")
    torch.save(torch.nn.Linear(2, 2), path)
    refused(path, "which tensors do not need")
