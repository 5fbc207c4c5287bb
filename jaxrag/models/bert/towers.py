"""Two networks, or one, that embed questions and passages, and their directories."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from jaxrag.models.checkpoint.files import locate, read_config, replace_directory, write_checkpoint
from jaxrag.models.parameters import to_numpy
from jaxrag.models.tokenizer import load_tokenizer, tokenizer_fingerprint
from jaxrag.types import InputError

Side = Literal["query", "passage"]
SIDES: tuple[Side, Side] = ("query", "passage")

Towers = dict[str, Any]
"""Parameters of two networks, for questions under "query" and for passages under "passage"; or of
one network for both, under "both"."""

_Network = TypeVar("_Network")


def tower(params: Towers, side: Side) -> Any:
    """The parameters that embed questions, or passages."""
    return params["both"] if "both" in params else params[side]


def has_towers(path: Path) -> bool:
    """Whether the checkpoint at ``path`` has two towers."""
    return all((path / side / "config.json").is_file() for side in SIDES)


def tokenizer_path(path: Path) -> Path:
    """Directory with the tokenizer of a checkpoint: its own, or a tower's."""
    return path / SIDES[0] if has_towers(path) else path


def locate_towers(checkpoint: str, *, kind: str) -> Path:
    """Directory of a checkpoint of two towers, or of one; InputError if there is none."""
    if not checkpoint:
        raise InputError(f"no {kind} is named: set --config.index.checkpoint=DIRECTORY.")
    path = Path(checkpoint).expanduser()
    return path if has_towers(path) else locate(checkpoint)


def load_both(
    path: Path, load: Callable[[Path], tuple[_Network, dict[str, Any]]]
) -> tuple[_Network, Towers]:
    """The network and two towers, each read by ``load``; InputError if their settings differ."""
    (module, query), (other, passage) = (load(path / side) for side in SIDES)
    if module != other:
        raise InputError(f"{path}: the towers for questions and passages differ in their settings.")
    return module, {"query": query, "passage": passage}


def write_towers(
    directory: Path,
    params: Towers,
    *,
    begun_with: Path,
    config: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Writes networks on a BERT for their loaders and Hugging Face, atomically.

    Args:
      directory: replaced if it exists; two networks become directories "query" and "passage" in it.
      params: of the networks.
      begun_with: the checkpoint whose tokenizer is copied, and whose config without ``config``.
      config: content of config.json.
      settings: objects that are added to config.json, each with the tokenizer's fingerprint.

    InputError if it cannot be written, such as on a full disk.
    """
    source = tokenizer_path(begun_with)
    config, tokenizer = config or read_config(source), load_tokenizer(source)
    with replace_directory(directory) as partial:
        for side, tree in params.items():
            target = partial if side == "both" else partial / side
            tokenizer.save_pretrained(target)
            added = {
                key: {**values, "tokenizer": tokenizer_fingerprint(target)}
                for key, values in (settings or {}).items()
            }
            write_checkpoint(target, {**config, **added}, to_numpy(tree))
    return Path(directory).absolute()
