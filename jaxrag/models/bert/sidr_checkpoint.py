"""SiDR's parameters: trained ones, or a BERT checkpoint to begin with."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict

from jaxrag.models.bert.checkpoint import BUFFERS, HEADS, modern_names, parameters, read_bert_config
from jaxrag.models.bert.sidr import SidrNetwork, Towers
from jaxrag.models.checkpoint.files import fingerprint, read_config, read_tensors, write_checkpoint
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import InputError

_SIDES = ("query", "passage")
_KEY = "sidr"  # of config.json, with what a BERT's does not say


def load_sidr(
    path: Path,
    *,
    dtype: jnp.dtype,
    first: int | None = None,
    masked: bool | None = None,
    scale: float = 1.0,
) -> tuple[SidrNetwork, dict[str, Any]]:
    """A tower and its parameters; of a plain BERT the last norm's are 1 and 0, as training begins.

    Args:
      path: a checkpoint's directory.
      dtype: what is computed in, and what matrices are held in.
      scale: another beginning than 1, for a network whose logits are large.
      first, masked: as in `SidrNetwork`; by default what the checkpoint says, else Sidr's own
      defaults.

    Raises:
      InputError: if it is no BERT checkpoint, incomplete, or does not fit its config.
    """
    whole = read_config(path)
    config = read_bert_config(whole, source=path)
    if config.family != "bert":
        raise InputError(f"{path}: SiDR is built on BERT, this is {config.family!r}.")
    said = {"first": SidrNetwork.first, "masked": SidrNetwork.masked, **whole.get(_KEY, {})}
    first = int(said["first"]) if first is None else first
    masked = bool(said["masked"]) if masked is None else masked
    if not 0 <= first < config.vocab_size:
        raise InputError(
            f"{path}: first is {first}, but the vocabulary has {config.vocab_size} tokens; give "
            "the id of the first token that is one of words."
        )
    tensors = modern_names(read_tensors(path), config.family, body="bert.")
    if "norm.weight" not in tensors and _KEY not in whole:
        tensors["norm.weight"] = np.full(config.hidden_size, scale, np.float32)
        tensors["norm.bias"] = np.zeros(config.hidden_size, np.float32)
    module = SidrNetwork(config, dtype, first, masked)
    ignore = (BUFFERS, *HEADS, *(rf"bert\.{head}" for head in HEADS))
    return module, parameters(module, tensors, path, ignore=ignore)


def load_towers(
    path: Path,
    *,
    dtype: jnp.dtype,
    shared: bool = False,
    first: int | None = None,
    scale: float = 1.0,
) -> tuple[SidrNetwork, Towers]:
    """The network and the parameters of both towers, in float32 whatever is computed in.

    Args:
      path: what `write_towers` wrote; or a checkpoint, with which both towers then begin.
      dtype: what is computed in.
      shared: whether a checkpoint that is not SiDR's yet becomes one tower or two.
      first, scale: as in `load_sidr`.

    Raises:
      InputError: as `load_sidr`; also for two towers of different shapes.
    """
    float32 = jnp.dtype("float32")
    if not has_towers(path):
        module, params = load_sidr(path, dtype=float32, first=first, scale=scale)
        one = is_trained(path)
        towers: Towers = {"both": params}
        if not (shared or one):
            towers = {"query": params, "passage": params}
        return module.clone(dtype=dtype), towers
    loaded = [load_sidr(path / side, dtype=float32, first=first) for side in _SIDES]
    (module, query), (other, passage) = loaded
    if module != other:
        raise InputError(f"{path}: the towers for questions and passages differ in their settings.")
    return module.clone(dtype=dtype), {"query": query, "passage": passage}


def is_trained(path: Path) -> bool:
    """Whether a checkpoint is SiDR's, and no plain BERT with which a training begins."""
    return has_towers(path) or _KEY in read_config(path)


def has_towers(path: Path) -> bool:
    """Whether there are two towers at ``path``."""
    return all((path / side / "config.json").is_file() for side in _SIDES)


def first_token(path: Path) -> int:
    """The first token id that counts for the SiDR at ``path``, told without its weights."""
    return int(read_config(tokenizer_path(path)).get(_KEY, {}).get("first", SidrNetwork.first))


def tokenizer_path(path: Path) -> Path:
    """Where the tokenizer of a SiDR lies: in a checkpoint, or in either tower's."""
    return path / _SIDES[0] if has_towers(path) else path


def towers_fingerprint(path: Path) -> str:
    """A hex digest that stands for the weights, settings and tokenizer of a SiDR."""
    if not has_towers(path):
        return fingerprint(path)
    return "-".join(fingerprint(path / side) for side in _SIDES)


def write_towers(directory: Path, module: SidrNetwork, params: Towers, *, begun_with: Path) -> Path:
    """Writes a SiDR so that `load_towers` reads it, all or nothing.

    One tower is an ordinary checkpoint directory; two are directories "query" and "passage".

    Args:
      directory: replaced if it is there.
      module: the network.
      params: of its towers.
      begun_with: the checkpoint whose config and tokenizer are taken over.

    Raises:
      InputError: it cannot be written, such as on a full disk.
    """
    source = tokenizer_path(begun_with)
    config = {**read_config(source), _KEY: {"first": module.first, "masked": module.masked}}
    tokenizer = load_tokenizer(source)
    directory = Path(directory).absolute()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
        for side, tree in params.items():
            place = partial if side == "both" else partial / side
            arrays: dict[str, Any] = flatten_dict(tree, sep=".")  # type: ignore[assignment]
            tensors = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
            write_checkpoint(place, config, tensors)
            tokenizer.save_pretrained(place)
        shutil.rmtree(directory, ignore_errors=True)
        partial.rename(directory)
    except OSError as error:
        raise InputError(f"{directory} cannot be written: {error}") from error
    return directory
