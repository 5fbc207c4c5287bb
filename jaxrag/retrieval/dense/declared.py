"""What a checkpoint of sentence-transformers declares about its vectors.

modules.json names a network, the pooling of its states, dense layers and the scaling to unit
length, each with a config.json in its own folder. sentence_bert_config.json (in older ones named by
another network) has the length limit; config_sentence_transformers.json has prompts, the entries
that are kept and the similarity.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from jaxrag.core.json_text import parse_json
from jaxrag.models.bert.network import POOLINGS
from jaxrag.models.checkpoint.config_values import flag, integer
from jaxrag.models.checkpoint.files import MOST_JSON, check_file, read_json, read_settings
from jaxrag.models.layers import ACTIVATIONS
from jaxrag.types import InputError

DENSE_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "Identity": lambda x: x,
    "Tanh": jnp.tanh,
    "ReLU": ACTIVATIONS["relu"],
    "GELU": ACTIVATIONS["gelu"],
}
"""Activations of dense layers, by their classes in torch.nn."""

_QUERY, _PASSAGE = ("query",), ("document", "passage", "corpus")  # names of prompts
_UNLIMITED = 1 << 62  # tokens
_NETWORKS = ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
_LIMITS = [f"sentence_{network}_config.json" for network in _NETWORKS]
_DISTANCE = "declares {} distances: indexes have inner products, and euclidean ones with metric=l2"
_SIMILARITIES = {
    None: "declares neither Normalize nor a similarity: vectors get unit length, so that scores "
    "are cosines, as by default in sentence-transformers; normalise=False keeps their lengths",
    **{name: _DISTANCE.format(name) for name in ("euclidean", "manhattan")},
}  # what to tell of vectors whose own length counts, or may count
_log = logging.getLogger("jaxrag")
_told = set[str]()


class Dense(NamedTuple):
    """A layer after the pooling, activation(W x + b): folder of its weights, lengths of x and y."""

    folder: Path
    inputs: int
    outputs: int
    bias: bool
    activation: str


class Declared(NamedTuple):
    """The declarations of a checkpoint.

    Attributes:
      network: directory of the network and its tokenizer.
      settings: fields of `jaxrag.retrieval.dense.encoder.EncoderSettings`.
      dense: layers between pooling and scaling.
      lower_case: whether texts are put in lower case.
      pools_prompts: whether the tokens of a prompt are pooled, too.
      notes: for a setting, what to tell unless it is set.
    """

    network: Path
    settings: dict[str, Any]
    dense: tuple[Dense, ...]
    lower_case: bool
    pools_prompts: bool
    notes: dict[str, str]


def read_declared(path: Path) -> Declared:
    """Reads what the checkpoint at ``path`` declares, DPR's by its type; without files, nothing.

    InputError if a file is damaged, or declares what is not supported.
    """
    modules = _read_modules(path / "modules.json")
    network = path / modules[0][1] if modules else path
    general = _optional(path / "config_sentence_transformers.json")
    file = next((network / name for name in _LIMITS if (network / name).exists()), None)
    limits = read_settings(file) if file else {}
    settings, notes = _prompts(general, path)
    pools_prompts = True
    if general.get("truncate_dim") is not None:
        settings["matryoshka"] = integer(general, "truncate_dim", path)
    if limits.get("max_seq_length") is not None:
        settings["max_length"] = integer(limits, "max_seq_length", network)
    if modules:
        tokenizer = _optional(network / "tokenizer_config.json")
        most = min(
            integer(tokenizer, "model_max_length", network, _UNLIMITED, most=10**40), _UNLIMITED
        )
        settings.setdefault("max_length", most)
        settings["pooling"], pools_prompts = _read_pooling(path / modules[1][1])
        # inner products of unit vectors are cosines, the similarity unless another is declared
        unit, similarity = modules[-1][0] == "Normalize", general.get("similarity_fn_name")
        settings["normalise"] = unit or similarity in (None, "cosine")
        if not unit and similarity in _SIMILARITIES:
            notes["normalise"] = _SIMILARITIES[similarity]
    elif _optional(path / "config.json").get("model_type") == "dpr":
        settings |= {"pooling": "cls", "normalise": False}
    dense = tuple(_read_dense(path / folder) for name, folder in modules if name == "Dense")
    lower_case = flag(limits, "do_lower_case", network, False)
    return Declared(network, settings, dense, lower_case, pools_prompts, notes)


def _optional(file: Path) -> dict[str, Any]:
    return read_json(file) if file.exists() else {}


def _read_modules(file: Path) -> list[tuple[str, str]]:
    """Class and folder of each module; none without the file."""
    check_file(file, MOST_JSON)
    try:
        rows = parse_json(file.read_bytes()) if file.exists() else []
        modules = [(row["type"].rpartition(".")[2], str(row["path"])) for row in rows]
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{file} is no list of modules with type and path: {error!r}.") from error
    modules = [row for row in modules if row[0] != "Dropout"]
    names = [name for name, _ in modules]
    dense, unit = ["Dense"] * names.count("Dense"), ["Normalize"] * ("Normalize" in names)
    if modules and names != ["Transformer", "Pooling", *dense, *unit]:
        raise InputError(
            f"{file} names the modules {', '.join(names)}; supported are Transformer, Pooling, any "
            "number of Dense and Normalize, in this order: take another encoder."
        )
    if outside := [folder for _, folder in modules if ".." in folder or Path(folder).is_absolute()]:
        raise InputError(f"{file} names {outside[0]!r}; folders must lie beside it.")
    return modules


def _read_pooling(folder: Path) -> tuple[str, bool]:
    """Kinds of pooling, joined by "+", and whether the tokens of prompts are pooled, too."""
    config = read_settings(folder / "config.json")
    prefix, ends = "pooling_mode_", ("", "_token", "_tokens")  # of fields that are true where used
    on = [name.removeprefix(prefix) for name in config if name.startswith(prefix) and config[name]]
    used = [kind for kind in POOLINGS if any(kind + end in on for end in ends)]
    used += [name for name in on if not any(name == kind + e for kind in POOLINGS for e in ends)]
    default = "" if config.get(f"{prefix}mean_tokens") is False else "mean"
    kinds = config.get("pooling_mode") or used or default
    pooling = kinds.lower() if isinstance(kinds, str) else "+".join(map(str, kinds))
    check_pooling(pooling, source=folder)
    return pooling, config.get("include_prompt") is not False


def check_pooling(pooling: str, *, source: object) -> None:
    """InputError, naming ``source``, unless `jaxrag.models.bert.network.pool` knows the pooling."""
    if not {*pooling.split("+")} <= {*POOLINGS}:
        raise InputError(
            f"{source}: pooling is {pooling!r}; allowed are {', '.join(POOLINGS)}, and several "
            "joined by '+'."
        )


def _read_dense(folder: Path) -> Dense:
    config = read_settings(folder / "config.json")
    activation = str(config.get("activation_function", "Tanh")).rpartition(".")[2]
    ends = {config.get(name) for name in ("module_input_name", "module_output_name")}
    unsupported = config.get("use_residual") or ends - {None, "sentence_embedding"}
    if unsupported or activation not in DENSE_ACTIVATIONS:
        raise InputError(
            f"{folder}: a Dense module must map vectors, without residual, and its activation be "
            f"one of {', '.join(DENSE_ACTIVATIONS)} (it is {activation}): take another encoder."
        )
    inputs, outputs = (integer(config, f"{end}_features", folder) for end in ("in", "out"))
    return Dense(folder, inputs, outputs, flag(config, "bias", folder, True), activation)


def _prompts(general: Mapping[str, Any], path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Prefixes by the prompts' names, and a note; the default prompt serves what has none."""
    prompts, default = general.get("prompts") or {}, general.get("default_prompt_name")
    if not isinstance(prompts, dict) or any(not isinstance(p, str) for p in prompts.values()):
        raise InputError(f"{path}: the prompts of config_sentence_transformers.json are no texts.")

    def prefix(own: tuple[str, ...], others: tuple[str, ...]) -> str:
        names = own if default in others else (*own, default)
        return next((prompts[name] for name in names if prompts.get(name)), "")

    fields = {"query_prefix": prefix(_QUERY, _PASSAGE), "passage_prefix": prefix(_PASSAGE, _QUERY)}
    notes = {}
    if any(prompts.values()) and not any(fields.values()):
        names = ", ".join(prompts)
        notes["query_prefix"] = f"declares prompts ({names}), none of them for queries or passages"
    return (fields if prompts else {}), notes


def tell_once(message: str) -> None:
    """Logs a warning unless it was logged before."""
    if message not in _told:
        _told.add(message)
        _log.warning("%s", message)
