"""Trained selectors on disk: safetensors and what belongs to them as JSON."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrag.functional.bandits.networks import mlp
from jaxrag.methods.ars.bandit.selector import Selector
from jaxrag.models.checkpoint.files import (
    check_parameters,
    read_json,
    read_tensors,
    write_checkpoint,
)
from jaxrag.types import InputError

TYPE = "ars-selector"
_AXES = "axes"


def write_selector(
    directory: str | Path, selector: Selector, *, trained: Mapping[str, Any] | None = None
) -> Path:
    """Writes a selector so that `load_selector` reads it, all or nothing.

    Args:
      directory: replaced if it is there.
      selector: what is written.
      trained: how it came about, plain JSON, for the reader.

    Raises:
      InputError: it cannot be written, such as on a full disk.
    """
    config = {
        "model_type": TYPE,
        "arms": selector.arms,
        "features": selector.features,
        "hidden": list(selector.hidden),
        "dimensions": 0 if selector.axes is None else selector.axes.shape[1],
        "encoder": selector.encoder,
        "trained": dict(trained or {}),
    }
    tensors = {
        f"layers.{at}": np.asarray(leaf, np.float32)
        for at, leaf in enumerate(jax.tree.leaves(selector.params))
    }
    if selector.axes is not None:
        tensors[_AXES] = np.asarray(selector.axes, np.float32)
    directory = Path(directory).absolute()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{directory.name}.", dir=directory.parent))
        write_checkpoint(partial, config, tensors)
        shutil.rmtree(directory, ignore_errors=True)
        partial.rename(directory)
    except OSError as error:
        raise InputError(f"{directory} cannot be written: {error}") from error
    return directory


def load_selector(path: str | Path, *, encoder: Any = None, arms: int | None = None) -> Selector:
    """Reads a selector.

    Args:
      path: what `write_selector` wrote.
      encoder: identity of what will embed the questions; None does not check it.
      arms: rewrites that a question will have; None does not check it.

    Raises:
      InputError: it is none, cut short, does not fit its config, or belongs to another encoder or
        number of rewrites.
    """
    path = Path(path)
    config = read_json(path / "config.json")
    if config.get("model_type") != TYPE:
        raise InputError(
            f"{path} is not a selector: its config.json has model_type "
            f"{config.get('model_type')!r}, not {TYPE!r}."
        )
    sizes = _sizes(path, config)
    for name, given in (("encoder", encoder), ("arms", arms)):
        if given is not None and config[name] != given:
            raise InputError(
                f"{path} is a selector for {name} {config[name]!r}, but here it is {given!r}; use "
                "the selector of this run, or train one from its reward table."
            )
    features, dimensions, hidden = sizes["features"], sizes["dimensions"], tuple(config["hidden"])
    network = mlp(dimensions or features, sizes["arms"], hidden=hidden)
    like = jax.eval_shape(network.init, jax.random.key(0))
    leaves, structure = jax.tree.flatten(like)
    shapes = {f"layers.{at}": leaf.shape for at, leaf in enumerate(leaves)}
    if dimensions:
        shapes[_AXES] = (features, dimensions)
    found = check_parameters(read_tensors(path), shapes, source=path)
    if bad := [name for name, array in found.items() if not np.isfinite(array).all()]:
        raise InputError(f"{path}: {', '.join(bad)} are not all finite numbers; train it again.")
    params = jax.tree.unflatten(
        structure, [jnp.asarray(found[name]) for name in shapes][: len(leaves)]
    )
    axes = jnp.asarray(found[_AXES]) if dimensions else None
    return Selector(sizes["arms"], features, hidden, params, axes, config["encoder"])


def _sizes(path: Path, config: Mapping[str, Any]) -> dict[str, int]:
    names = ("arms", "features", "dimensions")
    hidden = config.get("hidden")
    whole = isinstance(hidden, list) and all(isinstance(one, int) for one in hidden)
    if (
        not whole
        or "encoder" not in config
        or any(not isinstance(config.get(n), int) for n in names)
    ):
        raise InputError(
            f"{path / 'config.json'} lacks arms, features, dimensions, hidden or encoder of a "
            "selector; it is not whole."
        )
    return {name: config[name] for name in names}
