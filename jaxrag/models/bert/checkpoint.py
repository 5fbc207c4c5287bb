"""BERT and XLM-RoBERTa checkpoints into the networks of :mod:`jaxrag.models.bert.network`."""

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
from flax.traverse_util import flatten_dict, unflatten_dict

from jaxrag.models.bert.network import ACTIVATIONS, BertClassifier, BertConfig, BertEncoder
from jaxrag.models.checkpoint.files import check_parameters, read_config, read_tensors
from jaxrag.types import InputError

# Buffers, and the heads that an encoder without them leaves aside.
BUFFERS = r"(.*\.)?position_ids"
HEADS = (r"pooler\..*", r"cls\..*", r"lm_head\..*", r"classifier\..*")
_FAMILIES = {"bert": "bert", "dpr": "bert", "roberta": "roberta", "xlm-roberta": "roberta"}
_DPR = re.compile(r"^(question|ctx)_encoder\.bert_model\.")  # what DPR's classes put before BERT's


def read_bert_config(config: Mapping[str, Any], *, source: object) -> BertConfig:
    """The settings in a Hugging Face config.json.

    A tower of DPR (model_type "dpr") is a BERT whose vector is the first token's state.

    Raises:
      InputError: naming ``source``, for another kind of model, a lacking field, or a setting that
        this encoder does not have.
    """
    kind = config.get("model_type")
    if kind not in _FAMILIES:
        raise InputError(
            f"{source}: model_type is {kind!r}; an encoder is one of {', '.join(_FAMILIES)}."
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
    if lacking := [name for name, value in values.items() if value is None]:
        raise InputError(f"{source}: config.json lacks {', '.join(lacking)}.")
    zero_allowed = ("pad_token_id",)
    for field in dataclasses.fields(BertConfig):
        value, least = values.get(field.name), int(field.name not in zero_allowed)
        if field.type == "int" and (not isinstance(value, int) or value < least):
            raise InputError(f"{source}: {field.name} is {value!r}; an integer from {least} up.")
    result = BertConfig(**values, family=_FAMILIES[kind])
    if result.hidden_size % result.num_attention_heads:
        raise InputError(
            f"{source}: hidden_size {result.hidden_size} is no multiple of num_attention_heads "
            f"{result.num_attention_heads}."
        )
    if result.hidden_act not in ACTIVATIONS:
        allowed = ", ".join(ACTIVATIONS)
        raise InputError(f"{source}: hidden_act is {result.hidden_act!r}; allowed: {allowed}.")
    positions = config.get("position_embedding_type", "absolute")
    if positions != "absolute":
        raise InputError(
            f"{source}: position_embedding_type is {positions!r}; only 'absolute' is built."
        )
    if projected := config.get("projection_dim") or 0:
        raise InputError(
            f"{source}: projection_dim is {projected}; only 0, DPR without projection, is built."
        )
    return result


def load_encoder(path: Path, *, dtype: jnp.dtype) -> tuple[BertEncoder, dict[str, Any]]:
    """An encoder and its parameters, whatever head the checkpoint has besides.

    Raises:
      InputError: if the checkpoint is of another kind, incomplete, or does not fit its config.
    """
    config = read_bert_config(read_config(path), source=path)
    tensors = modern_names(read_tensors(path), config.family)
    module = BertEncoder(config, dtype)
    return module, parameters(module, tensors, path, ignore=(BUFFERS, *HEADS))


def load_classifier(path: Path, *, dtype: jnp.dtype) -> tuple[BertClassifier, dict[str, Any]]:
    """A sequence classifier, such as a cross-encoder reranker, and its parameters.

    Raises:
      InputError: as :func:`load_encoder`; also for a checkpoint without a classification head.
    """
    config = read_bert_config(read_config(path), source=path)
    tensors = modern_names(read_tensors(path), config.family, body=config.family + ".")
    module = BertClassifier(config, dtype)
    return module, parameters(module, tensors, path, ignore=(BUFFERS, r"roberta\.pooler\..*"))


def modern_names(
    tensors: Mapping[str, np.ndarray], family: str, *, body: str = ""
) -> dict[str, np.ndarray]:
    """Names as of today: the body under ``body``, layer norms with weight and bias.

    The prefix of the body depends on which class saved it, and checkpoints converted from the
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
    """The tree of a module's parameters, checked against its shapes; norms are float32.

    Raises:
      InputError: naming ``path``, for what lacks, is left over and not in ``ignore``, or differs.
    """
    arrays = check_parameters(tensors, parameter_shapes(module), source=path, ignore=ignore)
    params = {
        name: jnp.asarray(array, jnp.float32 if "norm" in name.lower() else module.dtype)
        for name, array in arrays.items()
    }
    return unflatten_dict(params, sep=".")


def parameter_shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """Shape of each parameter of an encoder or classifier, under its name in checkpoints."""
    ids = jax.ShapeDtypeStruct((1, 2), jnp.int32)
    mask = jax.ShapeDtypeStruct((1, 2), jnp.bool_)
    variables = jax.eval_shape(
        lambda i, m: module.init(jax.random.key(0), i, i, where=m), ids, mask
    )
    leaves: dict[str, Any] = flatten_dict(variables["params"], sep=".")  # type: ignore[assignment]
    return {name: leaf.shape for name, leaf in leaves.items()}
