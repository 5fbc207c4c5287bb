"""ARS-RAG, its strategies and its ablations: STRATEGY@DATA.

Source: docs/methods.md, "ARS-RAG: strategies and ablations".

    python -m experiments.run --config configs/ars.py:rewriter10@factbook --workdir runs/r10

Strategies; those with a star need ``--config.method.order.ranker.checkpoint=DIRECTORY``, those with
two ``--config.method.count.bandit.checkpoint=DIRECTORY`` (see docs/ars.md):

- ``llm``: no retrieval; ``rag``: the question itself is searched for.
- ``rewriter5``, ``rewriter10``: the first 5, or all 10 rewrites, in no order.
- ``random``: 5 in random order. ``top`` *: the 5 best. ``worst`` *: the 5 worst.
- ``judge``: the original pipeline, whose language model judges every passage of every rewrite.
- ``bandit`` **: as many as the bandit says, in no order. ``ars`` * **: ARS-RAG.

Another number of rewrites: ``--config.method.count.k=3``. Data: ``tiny``, for tests; ``factbook``,
``boolq``, ``strategyqa``, ``hotpotqa``: 100 drawn test questions of each (300 others are to train
on), over the data's own passages; ``medmcqa``, ``arc_challenge``: test questions over the folder
wiki_pool. All with SmolLM2 and MiniLM. ``paper-boolq`` and so on: Qwen2.5-32B-Instruct and
nomic-embed-text from the hub, 1,600 and 400 questions where there are as many; not run by us yet.
Closed questions are answered by what the model writes (``--config.method.by=text``), the most
probable option (``logprob``), or, with SmolLM2, that option against a prompt that says nothing
(``calibrated``).
"""

from __future__ import annotations

import dataclasses
from typing import Any

from configs.parts import SMALL, K, own, parts_of, wiki
from jaxrag.data.draw import Draw
from jaxrag.data.factbook.build import Factbook
from jaxrag.engines.local.engine import Local
from jaxrag.methods.ars import ars
from jaxrag.methods.ars.relevance import Judge
from jaxrag.methods.ars.rewrite_steps import Chosen, Fixed, Generated, Judged, Ranked, Shuffled
from jaxrag.methods.ars.rewrites import Rewriter
from jaxrag.methods.baselines import few_shot
from jaxrag.methods.r3 import r3
from jaxrag.retrieval.dense.settings import BiEncoder, Exact, Scann
from jaxrag.runs.run import Run
from jaxrag.steps.asking import Reader
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.searches import Search
from jaxrag.types import InputError

CLOSED = 4
"""Most new tokens of a small model's answer to a closed question."""

BY = "calibrated"
"""What answers a small model's closed questions: by its words it says no to nearly all."""

DATA = {
    "tiny": Draw(
        Factbook(split="train", countries=3), test_source=Factbook(countries=3), train=8, test=4
    ),
    "factbook": Draw(Factbook(split="train"), test_source=Factbook()),
    "boolq": Draw(own("boolq", task="yes_no"), only_gold=True),
    "strategyqa": Draw(own("strategyqa", task="yes_no"), only_gold=True),
    "hotpotqa": Draw(own("hotpotqa")),
    "medmcqa": Draw(wiki("medmcqa")),
    "arc_challenge": Draw(wiki("arc_challenge", "train"), test_source=wiki("arc_challenge")),
}
REWRITER = Rewriter(tokens=200, temperature=0.6)
SEARCH = Search(m=5, read=K)
_FIVE = Fixed(5)
ORDERS: dict[str, tuple[Any, Any]] = {
    "rewriter5": (Generated(), _FIVE),
    "rewriter10": (Generated(), Fixed(10)),
    "random": (Shuffled(), _FIVE),
    "top": (Ranked(), _FIVE),
    "worst": (Ranked(reverse=True), _FIVE),
    "judge": (Judged(), _FIVE),
    "bandit": (Generated(), Chosen()),
    "ars": (Ranked(), Chosen()),
}
STRATEGIES = ("llm", "rag", *ORDERS)


def run_on(method: Any, data: str, *, paper: bool, part: str = "test") -> Run:
    """A run of a method on drawn questions."""
    drawn = dataclasses.replace(DATA[data], part=part)
    if not paper:
        return Run(method=method, data=drawn, model=Local(), index=Exact())
    nomic = BiEncoder(
        "hub:nomic-ai/nomic-embed-text-v1.5",
        query_prefix="search_query: ",
        passage_prefix="search_document: ",
        max_length=512,
    )
    drawn = dataclasses.replace(drawn, train=1600, test=400)
    return Run(method, drawn, Local("hub:Qwen/Qwen2.5-32B-Instruct"), Scann(nomic))


def shared(paper: bool) -> dict[str, Any]:
    """Settings that every method over rewrites has."""
    if paper:
        return {"rewriter": Rewriter(), "search": Search(), "reader": Reader(prompts="ars")}
    return {"rewriter": REWRITER, "search": SEARCH, "reader": SMALL}


def judge_of(paper: bool) -> Judge:
    """How relevance is asked for."""
    return Judge() if paper else Judge(prompts=SMALL.prompts, empty="N/A")


def method_of(strategy: str, *, paper: bool) -> Any:
    """The config of a strategy's method.

    Raises:
      InputError: no such strategy.
    """
    closed, by = (20, "text") if paper else (CLOSED, BY)
    reader = shared(paper)["reader"]
    if strategy == "llm":
        return few_shot.Config(reader=reader, closed_tokens=closed, by=by)
    if strategy == "rag":
        k = 5 if paper else K
        return r3.Config(OnePath(n=k), Top(k=k), reader, closed, by)
    if strategy not in ORDERS:
        raise InputError(f"no strategy {strategy!r}; there are {', '.join(STRATEGIES)}.")
    order, count = ORDERS[strategy]
    if isinstance(order, Judged):
        order = Judged(judge_of(paper))
    return ars.Config(order=order, count=count, closed_tokens=closed, by=by, **shared(paper))


def get_config(variant: str = "rewriter10@factbook") -> Run:
    """The run of a strategy on some data."""
    strategy, data, paper = parts_of(variant, DATA)
    run = run_on(method_of(strategy, paper=paper), data, paper=paper)
    index = None if strategy == "llm" else run.index
    return dataclasses.replace(run, label=strategy, index=index)
