"""Models and retrievers by the names that the papers print, and what stands for them at smaller
scales."""

from __future__ import annotations

import dataclasses
from typing import Any

from jaxrag.configs.baselines import E5_TUNED
from jaxrag.configs.data import SOURCES
from jaxrag.configs.parts import BGE, K
from jaxrag.engines.local.engine import Local
from jaxrag.models.decoder.config import DecoderConfig, read_decoder_config
from jaxrag.reproduction.check import PublishedModels
from jaxrag.reproduction.printed.models import GENERATORS
from jaxrag.reproduction.printed.tables import PrintedRow
from jaxrag.reproduction.tables import Line, Scale, Setting
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import dpr, e5
from jaxrag.runs.run import Run
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top

INDEXES: dict[str, Any] = {"bge-large-en-v1.5": Exact(BGE), "e5": Exact(e5())}


def model(generator: str) -> Local:
    """A generator by its printed name."""
    return Local(f"hub:{GENERATORS[generator]}")


def with_models(run: Run, row: PrintedRow, setting: Setting) -> Run:
    """The run with the row's generator and retriever; unchanged at smaller scales."""
    if not setting.paper:
        return run
    changes: dict[str, Any] = {}
    if row.generator:
        changes["model"] = model(row.generator)
    if row.retriever and run.index is not None:
        changes["index"] = INDEXES[row.retriever]
    return dataclasses.replace(run, **changes)


def passages(row: PrintedRow, setting: Setting) -> int:
    """Number of passages that the generator reads: as printed; a small model reads a third."""
    printed = row.passages or 0
    return printed if setting.paper else max(K, -(-printed // 3))


def with_method(run: Run, **changes: Any) -> Run:
    """The run with changed settings of its method."""
    method: Any = run.method
    return dataclasses.replace(run, method=dataclasses.replace(method, **changes))


def reading(run: Run, k: int) -> Run:
    """The run with another number of passages that the generator reads."""
    method: Any = run.method
    changes: dict[str, Any] = {"select": dataclasses.replace(method.select, k=k)}
    if isinstance(method.select, Top) and isinstance(method.candidates, OnePath):
        changes["candidates"] = dataclasses.replace(method.candidates, n=k)
    return with_method(run, **changes)


def three(line: Line) -> Line:
    """The line with three passages at every scale: for recall@3, and beside mixes of three."""

    def make(row: PrintedRow, setting: Setting) -> Run:
        run: Any = line.job(row, setting)
        return reading(run, 3)

    return Line(make)


def questions(scale: Scale, dataset: str) -> str:
    """DATA of a data set in the configs of PAIRS, DTR and R3: a folder of its own, or factbook."""
    if scale != "small":
        return "tiny" if scale == "tiny" else f"paper-{dataset}"
    source = SOURCES.get(dataset)
    has_folder = source is not None and source.test is not None and source.first is not None
    return dataset if has_folder else "factbook"


DIMENSIONS = {
    BGE.checkpoint: 1024,
    e5().checkpoint: 768,
    E5_TUNED: 768,
    "hub:intfloat/e5-base-unsupervised": 768,
    "hub:BAAI/bge-base-en-v1.5": 768,
    "hub:nomic-ai/nomic-embed-text-v1.5": 768,
    "hub:facebook/contriever": 768,
    "hub:facebook/contriever-msmarco": 768,
    dpr().checkpoint: 768,
}
"""Lengths of the vectors of published encoders."""


def _decoder(kind: str, *shape: int, **more: Any) -> DecoderConfig:
    """A decoder by its published config.

    Shape: layers, key-value heads, widths of layers and MLP, heads, tokens of the vocabulary.
    """
    names = (
        "num_hidden_layers", "num_key_value_heads", "hidden_size", "intermediate_size",
        "num_attention_heads", "vocab_size",
    )  # fmt: skip
    sizes = dict(zip(names, shape, strict=True), max_position_embeddings=4096)
    return read_decoder_config({"model_type": kind, **sizes, **more}, source=kind)


_LLAMA_2 = _decoder("llama", 32, 32, 4096, 11008, 32, 32000)
_LLAMA_3 = _decoder("llama", 32, 8, 4096, 14336, 32, 128256)

DECODERS = {
    "hub:Qwen/Qwen2.5-3B-Instruct": _decoder(
        "qwen2", 36, 2, 2048, 11008, 16, 151936, tie_word_embeddings=True
    ),
    "hub:Qwen/Qwen2.5-7B-Instruct": _decoder("qwen2", 28, 4, 3584, 18944, 28, 152064),
    "hub:Qwen/Qwen2.5-32B-Instruct": _decoder("qwen2", 64, 8, 5120, 27648, 40, 152064),
    "hub:Qwen/Qwen2.5-72B-Instruct": _decoder("qwen2", 80, 8, 8192, 29568, 64, 152064),
    "hub:meta-llama/Meta-Llama-3-8B": _LLAMA_3,
    "hub:meta-llama/Meta-Llama-3-8B-Instruct": _LLAMA_3,
    "hub:meta-llama/Llama-3.1-8B-Instruct": _LLAMA_3,
    "hub:meta-llama/Llama-3.3-70B-Instruct": _decoder("llama", 80, 8, 8192, 28672, 64, 128256),
    "hub:meta-llama/Llama-2-7b-hf": _LLAMA_2,
    "hub:meta-llama/Llama-2-7b-chat-hf": _LLAMA_2,
    "hub:selfrag/selfrag_llama2_7b": _LLAMA_2,  # and 16 special tokens
    "hub:google/gemma-2-9b-it": _decoder("gemma2", 42, 8, 3584, 14336, 16, 256000),
    "hub:mistralai/Mistral-7B-Instruct-v0.3": _decoder("mistral", 32, 8, 4096, 14336, 32, 32768),
    "hub:microsoft/Phi-3-mini-4k-instruct": _decoder("phi3", 32, 32, 3072, 8192, 32, 32064),
}
"""Shapes of published decoders, for estimates of memory."""

PARAMETERS = {
    **{name: config.parameters / 1e9 for name, config in DECODERS.items()},
    "hub:google-t5/t5-large": 0.738,
    "hub:google/flan-t5-large": 0.783,
    "hub:google-bert/bert-base-uncased": 0.110,
    "hub:emilyalsentzer/Bio_ClinicalBERT": 0.108,
    "hub:facebook/contriever": 0.109,
    "hub:facebook/contriever-msmarco": 0.109,
    "hub:facebook/dpr-question_encoder-single-nq-base": 0.109,
    "hub:facebook/dpr-ctx_encoder-single-nq-base": 0.109,
    "hub:intfloat/e5-base-v2": 0.109,
    E5_TUNED: 0.109,
    "hub:intfloat/e5-base-unsupervised": 0.109,
    "hub:BAAI/bge-base-en-v1.5": 0.109,
    "hub:nomic-ai/nomic-embed-text-v1.5": 0.137,
    "hub:BAAI/bge-large-en-v1.5": 0.335,
    "hub:BAAI/bge-reranker-base": 0.278,
}
"""Parameters of published models, in billions."""

PUBLISHED = PublishedModels(DIMENSIONS, PARAMETERS, DECODERS)
