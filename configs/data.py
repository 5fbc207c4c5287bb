"""The data sets of all configs: sources of the questions, and how many each paper's config uses.

Values of DATA in METHOD@DATA:

- ``tiny``: 3 countries of the World Factbook, few questions; for tests.
- ``quickstart``: 100 questions about 40 countries. ``quickstart_train``: 200 training questions
  about 40 others, on which the settings of small models were tuned.
- ``factbook``: the whole World Factbook. Training and test questions are about different countries.
- ``factbook_known``: test questions about the countries of the training questions, for students
  that start from random weights and write no name that they have not learned.
- all others: folders below ``$JAXRAG_DATA`` (by default ../shared/data). They are searched in the
  27,218 Wikipedia passages of the folder ``wiki_pool``, but for ``boolq``, ``strategyqa`` and
  ``hotpotqa_distractor``, which are searched in their own passages.

``paper-NAME``: the published set in the split and size of the paper, over the corpus that the paper
searched, with the paper's settings and models. ``jaxrag data NAME`` builds set and
corpus (docs/data.md); ``--dry-run`` tells what is missing. ``paper-factbook`` has the paper's
settings on the factbook. Any published set serves any config: ``--config.data=webq``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxrag.data.benchmark import Benchmark
from jaxrag.data.dataset import OTHERS, OWN, DataSettings
from jaxrag.data.draw import Draw
from jaxrag.data.factbook import Factbook
from jaxrag.data.folder import Folder
from jaxrag.data.sets import SETS

ROOT = os.environ.get("JAXRAG_DATA", "../shared/data")


class Drawn(NamedTuple):
    """How many questions are drawn at random, with seed 0, to train on and to evaluate.

    ``only_gold`` draws those with gold passages; ``split`` says whether training questions come
    from the training split, if the data set has one.
    """

    train: int
    test: int
    only_gold: bool = False
    split: bool = True


class Published(NamedTuple):
    """How the papers use a published set; `Benchmark` gives split and corpus that they evaluate.

    Attributes:
      pairs, r3: whether PAIRS and DTR, or R3, evaluate it.
    """

    name: str  # of the set
    train: str = "train"  # the split to train on; "" if papers evaluate the only one
    dev: str = ""  # the split that is evaluated in a training; "" is the one that papers evaluate
    pairs: bool = False
    r3: bool = False
    errr: Drawn | None = None  # the draw of ERRR, which evaluates the first questions of the set
    ars: bool = False  # whether ARS-RAG evaluates 400 questions of it


class Source(NamedTuple):
    """Questions of a data set; None for a number or draw: the small configs do not use the set so.

    Attributes:
      test, train: `DataSettings` of questions to evaluate and to train on; None without any.
      first: PAIRS, DTR and R3 evaluate this many questions, the first ones; 0 is all.
    """

    test: Any = None
    train: Any = None
    first: int | None = None
    errr: Drawn | None = None  # the draw of ERRR and of methods that retrieve in turns
    ars: Drawn | None = None  # the draw of ARS-RAG
    paper: Published | None = None


def _own(name: str, **settings: Any) -> Folder:
    """A folder that is searched in its own passages."""
    return Folder(f"{ROOT}/{name}", **settings)


def _wiki(name: str, split: str = "queries") -> Folder:
    """A folder that is searched in the folder wiki_pool."""
    return _own(name, split=split, corpus=f"{ROOT}/wiki_pool")


_FEW = Drawn(8, 4)

SOURCES = {
    "tiny": Source(
        Factbook(countries=3), Factbook(split="train", countries=3), 8, errr=_FEW, ars=_FEW
    ),
    "quickstart": Source(Factbook(countries=40), Factbook(split="train", countries=40), 100),
    "quickstart_train": Source(Factbook(split="train", countries=40), first=200),
    "factbook": Source(
        Factbook(), Factbook(split="train"), 0, errr=Drawn(1000, 200), ars=Drawn(300, 100)
    ),
    "factbook_known": Source(Factbook(split="train"), errr=Drawn(1000, 200)),
    "hotpotqa": Source(
        _wiki("hotpotqa"),
        _wiki("hotpotqa", "train"),
        0,
        errr=Drawn(300, 200, split=False),
        paper=Published("hotpotqa", pairs=True, r3=True, errr=Drawn(2000, 7405)),
    ),
    "squad": Source(_wiki("squad"), first=0, paper=Published("squad", pairs=True)),
    "nq": Source(
        _wiki("nq"),
        _wiki("nq", "train"),
        0,
        paper=Published("nq", dev="dev", pairs=True, r3=True),
    ),
    "triviaqa": Source(paper=Published("triviaqa", dev="dev", pairs=True, r3=True)),
    "webq": Source(paper=Published("webq", pairs=True)),
    "2wiki": Source(paper=Published("2wiki", pairs=True)),
    "pubhealth": Source(paper=Published("pubhealth", dev="dev", r3=True)),
    "msmarco": Source(paper=Published("msmarco")),
    "popqa": Source(
        _wiki("popqa"),
        errr=Drawn(700, 200, only_gold=True),
        paper=Published("popqa", train="", errr=Drawn(900, 997)),
    ),
    "ambigqa": Source(
        _wiki("ambigqa"),
        _wiki("ambigqa", "train"),
        errr=Drawn(1000, 200),
        paper=Published("ambigqa", errr=Drawn(2000, 1000)),
    ),
    "boolq": Source(
        _own("boolq", task="yes_no"),
        ars=Drawn(300, 100, only_gold=True),
        paper=Published("boolq", ars=True),
    ),
    "strategyqa": Source(
        _own("strategyqa", task="yes_no"),
        ars=Drawn(300, 100, only_gold=True),
        paper=Published("strategyqa", train="", ars=True),
    ),
    "hotpotqa_distractor": Source(
        _own("hotpotqa"), ars=Drawn(300, 100), paper=Published("hotpotqa", ars=True)
    ),
    "medmcqa": Source(_wiki("medmcqa"), ars=Drawn(300, 100), paper=Published("medmcqa", ars=True)),
    "arc_challenge": Source(
        _wiki("arc_challenge"),
        _wiki("arc_challenge", "train"),
        ars=Drawn(300, 100),
        paper=Published("arc_challenge", dev="dev", r3=True),
    ),
}

ARS_PAPER = (1600, 400)
"""ARS-RAG's questions to train on and to evaluate, of every data set."""

ERRR_CORPUS = "psgs_w100"
"""The corpus of ERRR with an index of its own, for every set."""


class Questions(NamedTuple):
    """Questions of a run: the first ``limit`` of ``data``, or all where that is 0."""

    data: DataSettings
    limit: int = 0


def _draw(source: Source, drawn: Drawn) -> Questions:
    sizes: Any = {"train": drawn.train, "test": drawn.test, "only_gold": drawn.only_gold}
    if source.train is None or not drawn.split:
        return Questions(Draw(source.test, part="test", **sizes))
    return Questions(Draw(source.train, source.test, part="test", **sizes))


def _first_questions() -> dict[str, Questions]:
    """The small questions of PAIRS, DTR and R3."""
    return {
        name: Questions(source.test, source.first)
        for name, source in SOURCES.items()
        if source.first is not None and source.test is not None
    }


def _whole(use: str) -> dict[str, Questions]:
    """The published sets that a paper evaluates whole."""
    return {
        f"paper-{source.paper.name}": Questions(Benchmark(source.paper.name))
        for source in SOURCES.values()
        if source.paper is not None and getattr(source.paper, use)
    }


def _errr_questions() -> dict[str, Questions]:
    draws = {}
    for name, source in SOURCES.items():
        if source.errr is None:
            continue
        draws[name] = _draw(source, source.errr)
        if source.paper is None:
            draws[f"paper-{name}"] = draws[name]
        elif source.paper.errr is not None:
            draws[f"paper-{name}"] = _errr_paper(source.paper, source.paper.errr)
    return draws


def _errr_paper(published: Published, drawn: Drawn) -> Questions:
    """The first questions of a set; training questions are others at random."""
    size = SETS[published.name].splits[SETS[published.name].evaluated]
    first = 0 if drawn.test == size else drawn.test
    test = Benchmark(published.name, corpus=ERRR_CORPUS, first=first)
    train = Benchmark(published.name, published.train, corpus=ERRR_CORPUS)
    sizes: Any = {"train": drawn.train, "test": drawn.test}
    return Questions(Draw(train, test, part="test", leakage="drop", **sizes))


def _ars_questions() -> dict[str, Questions]:
    draws = {}
    for name, source in SOURCES.items():
        if source.ars is None:
            continue
        draws[name] = _draw(source, source.ars)
        train, test = ARS_PAPER
        if source.paper is None:
            drawn = source.ars._replace(train=train, test=test)
            draws[f"paper-{name}"] = _draw(source, drawn)
        elif source.paper.ars:
            draws[f"paper-{source.paper.name}"] = _ars_paper(source.paper.name, source.paper.train)
    return draws


def _ars_paper(name: str, split: str) -> Questions:
    """Questions at random, which are searched in the set's own contexts."""
    train, test = ARS_PAPER
    corpus = OTHERS if SETS[name].corpus == OTHERS else OWN
    evaluated = Benchmark(name, corpus=corpus)
    source = Benchmark(name, split, corpus=corpus) if split else evaluated
    evaluation = evaluated if split else None
    drawn = Draw(source, evaluation, part="test", train=train, test=test, leakage="drop")
    return Questions(drawn)


PAIRS: Mapping[str, Questions] = _first_questions() | _whole("pairs")
"""Of PAIRS and DTR."""

R3: Mapping[str, Questions] = _first_questions() | _whole("r3")
ERRR: Mapping[str, Questions] = _errr_questions()
ARS: Mapping[str, Questions] = _ars_questions()


def training_of(name: str) -> tuple[DataSettings, DataSettings]:
    """Questions of a published set to train on, and those to evaluate in the training."""
    used = next(
        source.paper
        for source in SOURCES.values()
        if source.paper is not None and source.paper.name == name and source.paper.train
    )
    return Benchmark(name, used.train), Benchmark(name, used.dev)
