"""Reads tensors on demand from the zip archives of ``torch.save``, such as pytorch_model.bin."""

from __future__ import annotations

import zipfile
from functools import partial
from pathlib import Path

import numpy as np

from jaxrag.models.checkpoint.stored import Index, StoredTensor
from jaxrag.models.checkpoint.tensor_pickle import StorageRecord, TensorRecord, read_tensor_pickle
from jaxrag.types import InputError

_PICKLE, _BYTE_ORDER = "data.pkl", "byteorder"
_MOST_PICKLE = 2 << 20  # bytes, each at most an opcode: seconds; 10,000 tensors take 1.5 MB


def tensors_of_torch(path: Path) -> dict[str, StoredTensor]:
    """The tensors of an archive, by name; InputError if it is damaged or holds anything else."""
    archive = _Archive(path)
    if archive.has(_BYTE_ORDER) and archive.content(_BYTE_ORDER) != b"little":
        raise InputError(
            f"{path} has numbers in big-endian order; only little-endian ones are read."
        )
    if (size := archive.size(_PICKLE)) > _MOST_PICKLE:
        raise InputError(
            f"{path}: the description of its tensors has {size:,} bytes; at most {_MOST_PICKLE:,} "
            "are read."
        )
    records = read_tensor_pickle(archive.content(_PICKLE), source=f"{path}, {_PICKLE}")
    for record in records.values():
        archive.check_storage(record.storage)
    return {name: archive.stored(record) for name, record in records.items()}


class _Archive:
    """The files of an archive, without the name of its folder."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._archive = zipfile.ZipFile(path)
        except FileNotFoundError:
            raise InputError(f"{path} is missing; the checkpoint is incomplete.") from None
        except zipfile.BadZipFile as error:
            raise InputError(_not_an_archive(path, error)) from error
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error}") from error
        self._files: dict[str, zipfile.ZipInfo] = {}
        for info in self._archive.infolist():
            folder, _, name = info.filename.partition("/")
            first = self._archive.filelist[0].filename.partition("/")[0]
            if not name or folder != first or name in self._files:
                raise InputError(
                    f"{path}: {info.filename[:200]!r} is not a file that torch writes; an archive "
                    "has one folder, and each name once."
                )
            if info.compress_type != zipfile.ZIP_STORED:
                raise InputError(f"{path}: {name!r} is compressed, which torch does not do.")
            self._files[name] = info

    def has(self, name: str) -> bool:
        return name in self._files

    def size(self, name: str) -> int:
        """Bytes of a file, as the archive declares them."""
        if not self.has(name):
            raise InputError(f"{self._path} lacks the file {name!r}; the archive is incomplete.")
        return self._files[name].file_size

    def content(self, name: str) -> bytes:
        """The bytes of a file, whose checksum `zipfile` verifies."""
        size, content = self.size(name), b""
        try:
            content = self._archive.read(self._files[name])
            problem: object = f"{len(content):,} bytes of {size:,}"
        except (zipfile.BadZipFile, EOFError, RuntimeError, NotImplementedError, OSError) as error:
            problem = error
        if len(content) != size:
            raise InputError(f"{self._path} is damaged ({name!r}: {problem}); download it again.")
        return content

    def check_storage(self, storage: StorageRecord) -> None:
        needed = storage.size * storage.dtype.itemsize
        if (size := self.size(f"data/{storage.key}")) != needed:
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
        flat = np.frombuffer(self.content(f"data/{storage.key}"), storage.dtype)
        strides = [stride * storage.dtype.itemsize for stride in record.strides]
        view = np.lib.stride_tricks.as_strided(
            flat[record.offset :], record.shape, strides, writeable=False
        )
        return np.array(view[index], order="C")


def _not_an_archive(path: Path, error: Exception) -> str:
    with path.open("rb") as file:
        begins = file.read(4)
    if begins[:1] == b"\x80":
        return (
            f"{path} is a pickle, the format of torch before 1.6, which is not read. Convert it to "
            "safetensors where you trust it (docs/encoders.md)."
        )
    return f"{path} is truncated or not an archive of torch ({error}); download it again."
