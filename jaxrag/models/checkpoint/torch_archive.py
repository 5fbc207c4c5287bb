"""Reads tensors from the zip archives that ``torch.save`` writes, such as pytorch_model.bin.

An archive holds a pickle that describes the tensors (`jaxrag.models.checkpoint.tensor_pickle`) and
a file for each storage, stored as it is. Nothing is extracted: storages are read from a memory map
of the archive when a tensor is asked for.
"""

from __future__ import annotations

import mmap
import re
import zipfile
import zlib
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from jaxrag.models.checkpoint.stored import Index, StoredTensor
from jaxrag.models.checkpoint.tensor_pickle import TensorRecord, read_tensor_pickle
from jaxrag.types import InputError

_PICKLE, _STORAGES, _BYTE_ORDER = "data.pkl", "data/", "byteorder"
_MOST_PICKLE = 2 << 20  # bytes, each at most an opcode: seconds; 10,000 tensors take 1.5 MB
_HEADER = b"PK\x03\x04"
_HEADER_SIZE = 30
_NAME = re.compile(r"[ -.0-\[\]-~]+(/[ -.0-\[\]-~]+)+")  # printable, without / and \ in a part
_ENCRYPTED = 0x1


class _Entry(NamedTuple):
    """Where the bytes of a file of the archive lie."""

    start: int
    size: int
    checksum: int


def tensors_of_torch(path: Path) -> dict[str, StoredTensor]:
    """The tensors of an archive, by name.

    Raises:
      InputError: it is not such an archive, is damaged or truncated, or holds anything but tensors.
    """
    try:
        with path.open("rb") as file:
            entries = _entries(file, path)
            whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise InputError(f"{path} is missing; the checkpoint is incomplete.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    archive = _Archive(path, whole, entries)
    archive.check_byte_order()
    size = archive.entry(_PICKLE).size
    if size > _MOST_PICKLE:
        raise InputError(
            f"{path}: the description of its tensors has {size:,} bytes; at most {_MOST_PICKLE:,} "
            "are read."
        )
    pickled = archive.content(_PICKLE)
    records = read_tensor_pickle(bytes(pickled), source=f"{path}, {_PICKLE}")
    for record in records.values():
        archive.check_storage(record)
    return {name: archive.stored(record) for name, record in records.items()}


class _Archive:
    """The files of an archive, without the name of its folder."""

    def __init__(self, path: Path, whole: mmap.mmap, entries: dict[str, _Entry]) -> None:
        self._path, self._whole, self._entries = path, whole, entries
        self._verified: set[str] = set()

    def entry(self, name: str) -> _Entry:
        if name not in self._entries:
            raise InputError(f"{self._path} lacks the file {name!r}; the archive is incomplete.")
        return self._entries[name]

    def content(self, name: str) -> memoryview:
        """The bytes of a file, whose checksum is verified the first time."""
        entry = self.entry(name)
        view = memoryview(self._whole)[entry.start : entry.start + entry.size]
        if name not in self._verified and zlib.crc32(view) != entry.checksum:
            raise InputError(
                f"{self._path}: the checksum of {name!r} differs, so the file is damaged; "
                "download it again."
            )
        self._verified.add(name)
        return view

    def check_byte_order(self) -> None:
        if _BYTE_ORDER in self._entries and bytes(self.content(_BYTE_ORDER)) != b"little":
            raise InputError(
                f"{self._path} has numbers in big-endian order; only little-endian ones are read."
            )

    def check_storage(self, record: TensorRecord) -> None:
        storage = record.storage
        needed = storage.size * storage.dtype.itemsize
        if (size := self.entry(_STORAGES + storage.key).size) != needed:
            raise InputError(
                f"{self._path}: the storage {storage.key!r} has {size:,} bytes; {storage.size:,} "
                f"numbers of {storage.dtype} are {needed:,}."
            )

    def stored(self, record: TensorRecord) -> StoredTensor:
        """A tensor whose bounds have been checked."""
        return StoredTensor(
            tuple(record.shape),
            partial(self._part, record, ()),
            partial(self._part, record),
            record.storage.dtype,
        )

    def _part(self, record: TensorRecord, index: Index) -> np.ndarray:
        """A copy of the part of a tensor that some slices select."""
        storage = record.storage
        flat = np.frombuffer(self.content(_STORAGES + storage.key), storage.dtype)
        strides = [stride * storage.dtype.itemsize for stride in record.strides]
        view = np.lib.stride_tricks.as_strided(
            flat[record.offset :], record.shape, strides, writeable=False
        )
        return np.array(view[index], order="C")


def _entries(file: BinaryIO, path: Path) -> dict[str, _Entry]:
    """The files of an archive by their names in its one folder."""
    try:
        with zipfile.ZipFile(file) as archive:
            listed, end = archive.infolist(), archive.start_dir
    except zipfile.BadZipFile as error:
        raise InputError(_not_an_archive(path, error)) from error
    entries: dict[str, _Entry] = {}
    folders: set[str] = set()
    for info in listed:
        folder, _, name = info.filename.partition("/")
        folders.add(folder)
        if not _is_plain(info.filename) or name in entries or len(folders) > 1 or not name:
            raise InputError(
                f"{path}: {info.filename[:200]!r} is not a file that torch writes; an archive has "
                "one folder, and each name once."
            )
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & _ENCRYPTED:
            raise InputError(f"{path}: {name!r} is compressed or encrypted; torch does neither.")
        entries[name] = _Entry(_start(file, info, path), info.file_size, info.CRC)
    _check_spans(entries, end, path)
    return entries


def _is_plain(name: str) -> bool:
    return bool(_NAME.fullmatch(name)) and not {".", ".."} & {*name.split("/")}


def _start(file: BinaryIO, info: zipfile.ZipInfo, path: Path) -> int:
    """Where a file's bytes begin, by its own header, which must agree with the directory."""
    file.seek(info.header_offset)
    header = file.read(_HEADER_SIZE)
    name_size = int.from_bytes(header[26:28], "little")
    name = file.read(name_size)
    if header[:4] != _HEADER or name != info.filename.encode():
        raise InputError(f"{path} is damaged: the header of {info.filename!r} is not in its place.")
    return info.header_offset + _HEADER_SIZE + name_size + int.from_bytes(header[28:30], "little")


def _check_spans(entries: dict[str, _Entry], end: int, path: Path) -> None:
    """Refuses files that overlap or reach beyond the archive."""
    before = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].start):
        if entry.start < before or entry.start + entry.size > end:
            raise InputError(f"{path} is damaged: {name!r} overlaps another file or the end.")
        before = entry.start + entry.size


def _not_an_archive(path: Path, error: Exception) -> str:
    with path.open("rb") as file:
        begins = file.read(4)
    if begins[:1] == b"\x80":
        return (
            f"{path} is a pickle, the format of torch before 1.6, which is not read. Convert it to "
            "safetensors where you trust it (docs/encoders.md)."
        )
    return f"{path} is truncated or not an archive of torch ({error}); download it again."
