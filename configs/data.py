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

``paper-NAME``: the same questions, as many as in the paper or as available, with the paper's
settings and models.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from jaxrag.data.dataset import DataSettings
from jaxrag.data.draw import Draw
from jaxrag.data.factbook.build import Factbook
from jaxrag.data.folder import Folder

ROOT = os.environ.get("JAXRAG_DATA", "../shared/data")


class Drawn(NamedTuple):
    """How many questions are drawn at random, with seed 0.

    Attributes:
      train, test: numbers of questions to train on and to evaluate.
      only_gold: whether only questions with gold passages are drawn.
      split: whether training questions come from the training split, if the data set has one.
    """

    train: int
    test: int
    only_gold: bool = False
    split: bool = True


class Source(NamedTuple):
    """Questions of a data set; None for a number or draw: the paper's config does not use the set.

    Attributes:
      test: questions to evaluate.
      train: the split of questions to train on, if there is one.
      first: PAIRS, DTR and R3 evaluate this many questions, the first ones; 0 is all.
      errr: the draw of ERRR and of methods that retrieve in turns.
      errr_paper: the draw of ERRR with the paper's sizes; None uses ``errr``.
      ars: the draw of ARS-RAG.
    """

    test: DataSettings
    train: Any = None
    first: int | None = None
    errr: Drawn | None = None
    errr_paper: Drawn | None = None
    ars: Drawn | None = None


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
        errr_paper=Drawn(100, 500),
    ),
    "squad": Source(_wiki("squad"), first=0),
    "nq": Source(_wiki("nq"), _wiki("nq", "train"), 0),
    "popqa": Source(
        _wiki("popqa"), errr=Drawn(700, 200, only_gold=True), errr_paper=Drawn(900, 997)
    ),
    "ambigqa": Source(
        _wiki("ambigqa"),
        _wiki("ambigqa", "train"),
        errr=Drawn(1000, 200),
        errr_paper=Drawn(2000, 1000),
    ),
    "boolq": Source(_own("boolq", task="yes_no"), ars=Drawn(300, 100, only_gold=True)),
    "strategyqa": Source(_own("strategyqa", task="yes_no"), ars=Drawn(300, 100, only_gold=True)),
    "hotpotqa_distractor": Source(_own("hotpotqa"), ars=Drawn(300, 100)),
    "medmcqa": Source(_wiki("medmcqa"), ars=Drawn(300, 100)),
    "arc_challenge": Source(
        _wiki("arc_challenge"), _wiki("arc_challenge", "train"), ars=Drawn(300, 100)
    ),
}

ARS_PAPER = (1600, 400)
"""ARS-RAG's questions to train on and to evaluate, of every data set."""


class Questions(NamedTuple):
    """Questions of a run: the first ``limit`` of ``data``, or all where that is 0."""

    data: DataSettings
    limit: int = 0


def _draw(source: Source, drawn: Drawn) -> Questions:
    sizes = {"train": drawn.train, "test": drawn.test, "only_gold": drawn.only_gold}
    if source.train is None or not drawn.split:
        return Questions(Draw(source.test, part="test", **sizes))
    return Questions(Draw(source.train, source.test, part="test", **sizes))


def _first_questions() -> dict[str, Questions]:
    found = {
        name: Questions(source.test, source.first)
        for name, source in SOURCES.items()
        if source.first is not None
    }
    papers = {f"paper-{name}": found[name] for name in ("hotpotqa", "squad", "nq")}
    return found | papers


def _errr_questions() -> dict[str, Questions]:
    found = {}
    for name, source in SOURCES.items():
        if source.errr is not None:
            found[name] = _draw(source, source.errr)
            found[f"paper-{name}"] = _draw(source, source.errr_paper or source.errr)
    return found


def _ars_questions() -> dict[str, Questions]:
    found = {}
    for name, source in SOURCES.items():
        if source.ars is not None:
            train, test = ARS_PAPER
            found[name] = _draw(source, source.ars)
            found[f"paper-{name}"] = _draw(source, source.ars._replace(train=train, test=test))
    return found


PAIRS: Mapping[str, Questions] = _first_questions()
"""Of PAIRS, DTR and R3."""

ERRR: Mapping[str, Questions] = _errr_questions()
ARS: Mapping[str, Questions] = _ars_questions()
