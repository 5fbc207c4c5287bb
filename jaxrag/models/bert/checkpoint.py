"""Loads checkpoints of BERT, XLM-RoBERTa and NomicBert, and of the networks built on them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from jaxrag.models.bert.network import BertClassifier, BertConfig, BertEncoder
from jaxrag.models.bert.nomic import MODEL_TYPE, NomicConfig, NomicEncoder, read_nomic_config
from jaxrag.models.checkpoint.config_values import LAYERS, WIDTH, integer, number, readable
from jaxrag.models.checkpoint.files import check_parameters, read_config, read_tensors
from jaxrag.models.layers import ACTIVATIONS
from jaxrag.models.parameters import shapes, template, unflatten
from jaxrag.types import InputError

# Buffers, and heads that an encoder does not use.
BUFFERS = r"(.*\.)?position_ids"
HEADS = (r"pooler\..*", r"cls\..*", r"lm_head\..*", r"classifier\..*")
_FAMILIES = {"bert": "bert", "dpr": "bert", "roberta": "roberta", "xlm-roberta": "roberta"}
_DPR = re.compile(r"^(question|ctx)_encoder\.bert_model\.")  # DPR's prefix of BERT's names


@readable
def read_bert_config(config: Mapping[str, Any], *, source: object) -> BertConfig:
    """The config of an encoder from its config.json; InputError for one that is not supported.

    An encoder of DPR (model_type "dpr") is a BERT whose vector is the first token's state.
    """
    kind = config.get("model_type")
    if kind not in _FAMILIES:
        raise InputError(
            f"{source}: model_type is {kind!r}; a BERT is one of {', '.join(_FAMILIES)}."
        )
    defaults = {
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
        "pad_token_id": 0 if _FAMILIES[kind] == "bert" else 1,
        "num_labels": len(config.get("id2label", ())) or 2,
        "type_vocab_size": 2,
    }
    names = [f.name for f in dataclasses.fields(BertConfig) if f.name != "family"]
    values = {name: config.get(name, defaults.get(name)) for name in names}
    if missing := [name for name, value in values.items() if value is None]:
        raise InputError(f"{source}: config.json lacks {', '.join(missing)}.")
    most = {"num_hidden_layers": LAYERS, "hidden_size": WIDTH}
    for field in dataclasses.fields(BertConfig):
        if field.type == "int":
            least = int(field.name != "pad_token_id")
            high = most[field.name] if field.name in most else 2**31 - 1
            integer(values, field.name, source, least=least, most=high)
        elif field.type == "float":
            number(values, field.name, source)
    result = BertConfig(**values, family=_FAMILIES[kind])
    if result.hidden_size % result.num_attention_heads:
        raise InputError(
            f"{source}: hidden_size {result.hidden_size} is not a multiple of num_attention_heads "
            f"{result.num_attention_heads}."
        )
    if result.hidden_act not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        raise InputError(f"{source}: hidden_act is {result.hidden_act!r}; allowed: {allowed}.")
    positions = config.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise InputError(
            f"{source}: position_embedding_type is {positions!r}; only 'absolute' is supported."
        )
    if projected := config.get("projection_dim") or 0:
        raise InputError(
            f"{source}: projection_dim is {projected}; only 0 is supported, DPR without projection."
        )
    return result


def read_encoder_config(path: Path) -> BertConfig | NomicConfig:
    """The config of the encoder at ``path``, of any type; InputError for one not supported."""
    config = read_config(path)
    kind = config.get("model_type")
    if kind == MODEL_TYPE:
        return read_nomic_config(config, source=path)
    if kind not in _FAMILIES:
        raise InputError(
            f"{path}: model_type is {kind!r}; an encoder is one of {', '.join(_FAMILIES)}, "
            f"{MODEL_TYPE}."
        )
    return read_bert_config(config, source=path)


def load_encoder(
    path: Path, *, dtype: jnp.dtype
) -> tuple[BertEncoder | NomicEncoder, dict[str, Any]]:
    """An encoder and its parameters without heads; InputError if they do not fit its config."""
    config = read_encoder_config(path)
    if isinstance(config, NomicConfig):
        nomic = NomicEncoder(config, dtype)
        tensors = read_tensors(path, layers=config.num_hidden_layers)
        # its masked language model has a prefix
        tensors = {name.removeprefix("bert."): tensors[name] for name in tensors}
        return nomic, parameters(nomic, tensors, path, ignore=HEADS)
    tensors = modern_names(read_tensors(path, layers=config.num_hidden_layers), config.family)
    module = BertEncoder(config, dtype)
    return module, parameters(module, tensors, path, ignore=(BUFFERS, *HEADS))


def load_classifier(path: Path, *, dtype: jnp.dtype) -> tuple[BertClassifier, dict[str, Any]]:
    """A sequence classifier, such as a reranker; InputError as `load_encoder`, or for no head."""
    config = read_bert_config(read_config(path), source=path)
    tensors = modern_names(
        read_tensors(path, layers=config.num_hidden_layers), config.family, body=config.family + "."
    )
    module = BertClassifier(config, dtype)
    return module, parameters(module, tensors, path, ignore=(BUFFERS, r"roberta\.pooler\..*"))


def modern_names(
    tensors: Mapping[str, np.ndarray], family: str, *, body: str = ""
) -> dict[str, np.ndarray]:
    """Tensors under today's names: the encoder's with prefix ``body``, norms with weight and bias.

    The prefix depends on the class that saved the checkpoint; checkpoints converted from BERT's
    first release call a layer norm's parameters gamma and beta.
    """
    names = {}
    for name in tensors:
        new = _DPR.sub("", name).removeprefix(family + ".")
        if new.startswith(("embeddings.", "encoder.", "pooler.")):
            new = body + new
        new = new.replace("LayerNorm.gamma", "LayerNorm.weight")
        names[new.replace("LayerNorm.beta", "LayerNorm.bias")] = name
    return {new: tensors[old] for new, old in names.items()}


def parameters(
    module: Any,
    tensors: Mapping[str, np.ndarray],
    path: Path,
    *,
    ignore: tuple[str, ...],
) -> dict[str, Any]:
    """A module's parameters, those of norms in float32.

    InputError, naming ``path``, for missing, misshapen and surplus ones, but those in ``ignore``.
    """
    arrays = check_parameters(tensors, parameter_shapes(module), source=path, ignore=ignore)
    params = {
        name: jnp.asarray(array, jnp.float32 if _is_norm(name) else module.dtype)
        for name, array in arrays.items()
    }
    return unflatten(params, template(initialise, module))


def _is_norm(name: str) -> bool:
    return "norm" in name.lower() or name.startswith("emb_ln.")


def parameter_shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Shape of each parameter of a network on a BERT, by its name in checkpoints."""
    return shapes(template(initialise, module))


def initialise(module: Any) -> dict[str, Any]:
    """Random parameters."""
    ids = jnp.zeros((1, 2), jnp.int32)
    return module.init(jax.random.key(0), ids, ids, where=ids == 0)["params"]
