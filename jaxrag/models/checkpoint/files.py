"""Finds, reads, checks and writes checkpoints.

A checkpoint is a Hugging Face directory or a GGUF file, read with the same config keys and tensor
names. A directory has config.json and safetensors, or archives of torch (pytorch_model.bin), both
single or sharded. Nothing is unpickled: see `jaxrag.models.checkpoint.torch_archive`.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from jaxrag.core.checks import check_local
from jaxrag.core.json_text import parse_json
from jaxrag.core.progress import tell
from jaxrag.models.checkpoint.config_values import check_sizes
from jaxrag.models.checkpoint.gguf import config_from_gguf, gguf_parts, tensors_of_gguf
from jaxrag.models.checkpoint.stored import StoredTensor
from jaxrag.models.checkpoint.torch_archive import tensors_of_torch
from jaxrag.types import InputError

_SINGLE, _INDEX = "model.safetensors", "model.safetensors.index.json"
_TORCH, _TORCH_INDEX = "pytorch_model.bin", "pytorch_model.bin.index.json"
_WEIGHTS = (_SINGLE, _INDEX, _TORCH, _TORCH_INDEX)  # in the order of preference
_HUB_FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
_TORCH_FILES = "pytorch_model*.bin"
_ADAPTER_FILES = ("adapter_model", "new_embeddings")  # of LoRA; safetensors are preferred
_DENSE_FILES = "*_Dense/*.bin"  # layers after an encoder, even where its own are safetensors
MOST_JSON = 16 << 20
"""Bytes of a config, of an index, of the header of safetensors: its values take 400 MB at most."""

_TYPES = ("F64", "F32", "F16", "BF16", "I64")  # I64 is that of buffers such as position_ids
_WINDOW, _WINDOWS = 1 << 20, 1024


class Tensors(Mapping[str, np.ndarray]):
    """Tensors by name, each read from disk on access."""

    def __init__(self, stored: Mapping[str, StoredTensor]):
        self._stored = dict(stored)

    def __getitem__(self, name: str) -> np.ndarray:
        return self._stored[name].read()

    def stored(self, name: str) -> StoredTensor:
        """A tensor that is not read yet."""
        return self._stored[name]

    def __contains__(self, name: object) -> bool:
        return name in self._stored  # Mapping's would read the tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def locate(spec: str, *, weights: bool = True) -> Path:
    """The directory or GGUF file that a model specification names; InputError if there is none.

    Args:
      spec: a path; ``package:NAME``, weights inside an installed pip package, which is not
        imported; or ``hub:ORG/NAME[@REVISION]``, downloaded from the Hugging Face hub (the only one
        that uses the network).
      weights: whether to download the weights, too, of a model on the hub.
    """
    kind, _, name = spec.partition(":")
    if kind == "package":
        return _package_path(name)
    if kind == "hub":
        return _from_hub(name, weights)
    check_local({"the checkpoint": spec})
    path = Path(spec).expanduser()
    if path.is_dir() or (path.is_file() and path.suffix == ".gguf"):
        return path
    raise InputError(
        f"No checkpoint at {spec!r}: neither a directory nor a .gguf file. "
        "Also allowed: package:NAME (a pip package's weights) and hub:ORG/NAME (downloads)."
    )


def short_name(spec: str) -> str:
    """The last part of a model specification, for tables: "hub:org/name" gives "name"."""
    return spec.rpartition(":")[2].rpartition("/")[2]


def _package_path(name: str) -> Path:
    try:
        package = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        package = None
    if package is None or not package.submodule_search_locations:
        raise InputError(
            f"The package {name!r} is not installed: pip install {name.replace('_', '-')}"
        )
    root = Path(package.submodule_search_locations[0])
    later = re.compile(r"-(?!00001)\d{5}-of-\d{5}$")  # parts of a split file after its first
    ggufs = [path for path in sorted(root.rglob("*.gguf")) if not later.search(path.stem)]
    checkpoints = ggufs + sorted(
        config.parent
        for config in root.rglob("config.json")
        if any((config.parent / name).exists() for name in _WEIGHTS)
    )
    if len(checkpoints) != 1:
        listed = ", ".join(map(str, checkpoints)) or "none"
        raise InputError(f"Package {name!r} must hold one checkpoint, found: {listed}.")
    return checkpoints[0]


def _from_hub(name: str, weights: bool) -> Path:
    """Downloads a model; archives of torch only if there are no safetensors."""
    path = _download(name, (*_HUB_FILES, _DENSE_FILES) if weights else _HUB_FILES[1:])
    if weights and not any(path.glob(_HUB_FILES[0])):
        path = _download(name, (*_HUB_FILES, _DENSE_FILES, _TORCH_FILES))
    return path


def _download(name: str, patterns: Sequence[str]) -> Path:
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    try:
        path = snapshot_download(
            repository, revision=revision or None, allow_patterns=list(patterns)
        )
    except (OSError, ValueError) as error:  # base classes of the hub's errors
        raise InputError(f"Cannot download {name!r} from the Hugging Face hub: {error}") from error
    return Path(path)


def read_config(path: Path) -> dict[str, Any]:
    """The checkpoint's config.json, or its equivalent from a GGUF file's metadata."""
    path = Path(path)
    if path.is_file():
        return config_from_gguf(path)
    config = read_settings(path / "config.json")
    check_sizes(config, path / "config.json")
    return config


def read_settings(path: Path) -> dict[str, Any]:
    """The object in a JSON file; numbers, true and false also where they are written as texts."""
    return {name: _typed(name, value) for name, value in read_json(path).items()}


_NUMBER = re.compile(r"-?\d+(?P<fraction>\.\d*)?(?P<exponent>[eE][-+]?\d+)?")
_NO_NUMBERS = ("transformers_version", "_name_or_path", "_commit_hash")


def _typed(key: str, value: Any) -> Any:
    """A setting of a config, a number or truth also where it is written as a text: "1e-6"."""
    if isinstance(value, dict):
        return {k: _typed(k, v) for k, v in value.items()}
    if isinstance(value, list):
        return [_typed(key, item) for item in value]
    if not isinstance(value, str) or key in _NO_NUMBERS:
        return value
    if (text := value.strip()).lower() in ("true", "false"):
        return text.lower() == "true"
    if not (match := _NUMBER.fullmatch(text)):
        return value
    return float(text) if match["fraction"] or match["exponent"] else int(text)


def check_file(path: Path, most: int | None = None) -> None:
    """Checks that a path is no pipe or device, which never end, and has at most ``most`` bytes."""
    if path.exists() and not path.is_file():
        raise InputError(f"{path} is a directory, a pipe or a device; a file is needed.")
    if most and path.exists() and (size := path.stat().st_size) > most:
        raise InputError(f"{path} has {size:,} bytes; at most {most:,} are read.")


def read_json(path: Path) -> dict[str, Any]:
    """Reads the object in a JSON file; InputError with file and line if there is no valid one."""
    try:
        check_file(path, MOST_JSON)
        value = parse_json(path.read_text(encoding="utf-8"))
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{path} is missing; is the checkpoint {path.parent} complete?") from None
    except json.JSONDecodeError as error:
        raise InputError(f"{path}, line {error.lineno}: not JSON ({error.msg}).") from error
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} holds a JSON {type(value).__name__}; it must be an object.")
    return value


def read_tensors(path: Path, *, layers: int = 0) -> Tensors:
    """All tensors of a checkpoint under their Hugging Face names, read on demand; tells its path.

    InputError if a file is missing or damaged, or there are fewer tensors than ``layers``.
    """
    path = Path(path)
    tell(f"loading the weights of {path}")
    tensors = Tensors(tensors_of_gguf(path) if path.is_file() else _open_directory(path))
    if len(tensors) < layers:
        raise InputError(f"{path} has {len(tensors)} tensors, and its config {layers} layers.")
    return tensors


def _open_directory(path: Path) -> dict[str, StoredTensor]:
    file = next((path / name for name in _WEIGHTS if (path / name).exists()), None)
    if file is None:
        raise InputError(f"{path} holds neither {', '.join(_WEIGHTS[:-1])} nor {_WEIGHTS[-1]}.")
    return _open_sharded(file) if file.suffix == ".json" else _open(file)


def _open_sharded(index: Path) -> dict[str, StoredTensor]:
    """The tensors of all files that an index names."""
    weight_map = read_json(index).get("weight_map")
    if not isinstance(weight_map, dict):
        raise InputError(f"{index} lacks the field 'weight_map'.")
    for file in weight_map.values():
        if not isinstance(file, str) or Path(file).name != file:
            raise InputError(f"{index} names {file!r}; files must lie beside it.")
    shards = {file: _open(index.parent / file) for file in sorted(set(weight_map.values()))}
    if lacking := [name for name, file in weight_map.items() if name not in shards[file]]:
        raise InputError(f"{index} names tensors that its files lack: {lacking[:5]}")
    return {name: shards[file][name] for name, file in weight_map.items()}


def _open(path: Path) -> dict[str, StoredTensor]:
    check_file(path)
    return tensors_of_torch(path) if path.suffix == ".bin" else _open_safetensors(path)


def _open_safetensors(path: Path) -> dict[str, StoredTensor]:
    try:
        with path.open("rb") as stream:
            header = int.from_bytes(stream.read(8), "little")
        if header > MOST_JSON:
            raise SafetensorError(f"a header of {header:,} bytes")
        file = safe_open(path, framework="np")
    except FileNotFoundError:
        raise InputError(f"{path} is missing; the checkpoint is incomplete.") from None
    except (SafetensorError, OSError, MemoryError) as error:
        raise InputError(
            f"{path} is truncated or not safetensors ({error}); download it again."
        ) from error
    stored = {}
    for name in file.keys():  # noqa: SIM118
        part = file.get_slice(name)
        shape, read = tuple(part.get_shape()), partial(file.get_tensor, name)
        if (kind := part.get_dtype()) not in _TYPES:
            raise InputError(
                f"{path} holds {name} as {kind}: quantised weights are not supported; use the "
                "float32, float16 or bfloat16 checkpoint, or a GGUF file."
            )
        stored[name] = StoredTensor(shape, read, part.__getitem__ if shape else None)
    return stored


def check_parameters(
    tensors: Mapping[str, np.ndarray],
    shapes: Mapping[str, Sequence[int]],
    *,
    source: str | Path,
    ignore: Sequence[str] = (),
    read: bool = True,
) -> dict[str, Any]:
    """A network's parameters from a checkpoint, an array for each name in ``shapes``.

    Args:
      tensors: the checkpoint's, by name.
      shapes: the network's, by the same names.
      source: the checkpoint, for the message.
      ignore: regular expressions of further names that are allowed (buffers, unused heads).
      read: whether they are read; False gives each as a `StoredTensor`, for `to_devices`.

    InputError lists all missing, surplus and misshapen parameters.
    """
    parameters: dict[str, Any] = {}
    problems = [f"missing: {name} {tuple(shapes[name])}" for name in shapes if name not in tensors]
    for name in (name for name in shapes if name in tensors):
        array: Any
        if isinstance(tensors, Tensors) and not read:
            array = tensors.stored(name)
        else:
            array = np.asarray(tensors[name])
        expected = tuple(shapes[name])
        if array.shape != expected:
            problems.append(f"misshapen: {name} has {array.shape}, expected {expected}")
        if array.dtype is not None and array.dtype.kind in "biu":
            problems.append(f"quantised: {name} is of type {array.dtype}, which is not supported")
        parameters[name] = array
    allowed = re.compile("|".join(f"(?:{pattern})" for pattern in ignore) or r"(?!)")
    problems += [
        f"surplus: {name}" for name in tensors if name not in shapes and not allowed.fullmatch(name)
    ]
    if problems:
        listed = "\n  ".join(problems)
        raise InputError(f"{source} does not fit the network its config describes:\n  {listed}")
    return parameters


def fingerprint(path: Path) -> str:
    """SHA-256 hex digest of a checkpoint's or a LoRA adapter's weights, config and tokenizer.

    Archives of torch count only where there are no safetensors. Of files above 1 GiB only the
    length and evenly spaced windows of 1 MiB, 1 GiB in all, are hashed, so that a 70B model takes
    seconds.
    """
    path = Path(path)
    suffixes = {suffix[1:] for suffix in _HUB_FILES}
    files = (
        gguf_parts(path) if path.is_file() else [f for f in path.iterdir() if f.suffix in suffixes]
    )
    if path.is_dir() and not any((path / name).exists() for name in (_SINGLE, _INDEX)):
        files += path.glob(_TORCH_FILES)
    for name in _ADAPTER_FILES if path.is_dir() else ():
        if not (path / f"{name}.safetensors").exists():
            files += [f for f in path.glob(f"{name}.*") if f.suffix in (".bin", ".pt")]
    if not files:
        raise InputError(f"{path} holds no checkpoint.")
    hasher = hashlib.sha256()
    for file in sorted(files):
        size = file.stat().st_size
        hasher.update(f"{file.name}\0{size}\0".encode())
        with file.open("rb") as stream:
            for start in _windows(size):
                stream.seek(start)
                hasher.update(stream.read(_WINDOW))
    return hasher.hexdigest()


def _windows(size: int) -> Sequence[int]:
    if size <= _WINDOW * _WINDOWS:
        return range(0, size, _WINDOW)
    return [(size - _WINDOW) * i // (_WINDOWS - 1) for i in range(_WINDOWS)]


@contextlib.contextmanager
def replace_directory(directory: str | Path) -> Iterator[Path]:
    """A temporary directory that replaces ``directory`` when the block ends without an error.

    InputError if it cannot be written, such as on a full disk.
    """
    directory = Path(directory).absolute()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
        try:
            yield partial
            shutil.rmtree(directory, ignore_errors=True)
            partial.rename(directory)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise InputError(f"{directory} cannot be written: {error}") from error


def write_checkpoint(
    directory: str | Path, config: Mapping[str, Any], tensors: Mapping[str, np.ndarray]
) -> Path:
    """Writes a ``config``.json and parameters by their Hugging Face names, for `read_tensors`."""
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(dict(config), indent=2) + "\n")
    arrays = {name: np.ascontiguousarray(array) for name, array in tensors.items()}
    save_file(arrays, directory / _SINGLE, metadata={"format": "pt"})
    return directory
