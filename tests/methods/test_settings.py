"""The contract of all settings: a value out of range is one error that names the field."""

import math
import re
from typing import Any

import pytest

from jaxrag.data.draw import Draw
from jaxrag.data.folder import Folder
from jaxrag.methods.ars import labels as ars_labels
from jaxrag.methods.ars.bandit import settings as bandit
from jaxrag.methods.ars.ranker.training import RankerTraining
from jaxrag.methods.ars.relevance import RelevanceJudge
from jaxrag.methods.ars.rewrites import Rewriter
from jaxrag.methods.ars.strategies import Fixed
from jaxrag.methods.baselines import chain_of_thought, cor, fairrag, rankrag, replug
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.methods.errr import errr_pairs, rrr
from jaxrag.methods.errr.ppo.rewards import Worth
from jaxrag.methods.errr.queries import Prompted, Trained
from jaxrag.methods.inspecting import dragin, seakr
from jaxrag.methods.iterative import adaptive_labels, adaptive_rag, flare, ircot, react
from jaxrag.methods.pairs import AgreementGate
from jaxrag.methods.r3 import answer_probability
from jaxrag.methods.r3.labels import Rules
from jaxrag.methods.r3.settings import R3Training, SupervisedTraining, Update
from jaxrag.methods.self_rag import self_rag
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.retrieval.web.index import Web
from jaxrag.retrieval.wiki_dpr.index import FaissFlat
from jaxrag.steps.candidates import DualPath, FixedMix, OnePath, Search
from jaxrag.steps.passage_selectors import AIS, Rerank, Top
from jaxrag.steps.reader import Reader
from jaxrag.training.ppo.step import KlControl, PPOTraining
from jaxrag.training.student.training import StudentTraining
from jaxrag.training.trainer import TrainingSettings
from jaxrag.types import InputError

NAN, INF = math.nan, math.inf

# of each class, the wrong values of its fields, each of which is refused alone
WRONG: dict[type, dict[str, list[Any]]] = {
    # parts of methods
    Reader: {"answer_tokens": [0], "passage_tokens": [0], "closed_tokens": [0], "by": ["odds"]},
    UncertaintyGate: {"threshold": [-1.0, NAN]},
    AgreementGate: {"test": ["vibes"], "f1": [0.0]},
    OnePath: {"n": [0], "by": ["luck"]},
    DualPath: {"n": [-1]},
    FixedMix: {"from_query": [0], "duplicates": ["drop"]},
    Search: {"m": [0], "read": [-1], "merge": ["best"]},
    Top: {"k": [0]},
    AIS: {"k": [0], "score": ["sum"]},
    Rerank: {"k": [0]},
    # methods
    chain_of_thought.Config: {"reasoning_tokens": [0]},
    cor.Config: {"k": [0], "ranking_tokens": [0]},
    fairrag.Config: {"k": [0], "alpha": [-1.0, INF, 128.0], "temperature": [0.0, NAN]},
    rankrag.Config: {"k": [0]},
    replug.Config: {"temperature": [0.0, -1.0, NAN]},
    dragin.Config: {
        "tokens": [0],
        "theta": [-1.0, NAN],
        "fidelity": ["mine"],
        "max_retrievals": [0],
    },
    seakr.Config: {
        "samples": [0],
        "alpha": [0.0],
        "sure": [1.5],
        "layer": [-2],
        "state": ["logits"],
    },
    flare.Config: {"sentence_tokens": [0], "max_sentences": [0]},
    flare.LookAhead: {"theta": [-0.1, 1.1, NAN], "beta": [2.0]},
    ircot.Config: {"answer_from": ["x"]},
    ircot.Interleaving: {
        "k": [-1],
        "max_passages": [-1],
        "max_steps": [-1],
        "sentence_tokens": [-1],
    },
    react.Config: {"max_steps": [0], "repeats": [0], "on_limit": ["x"]},
    react.Pages: {"show": [0], "by": ["x"], "sentences": [-1]},
    adaptive_rag.Config: {"candidates": [None]},
    adaptive_rag.OneStrategy: {"strategy": ["some"]},
    adaptive_rag.Classified: {"asked": ["x"]},
    adaptive_labels.Config: {"bias": ["x"], "right": ["x"], "held_out": [1.0]},
    self_rag.Config: {
        "mode": ["real"],
        "retrieve": ["often"],
        "form": ["mid"],
        "fidelity": ["mine"],
        "threshold": [1.5, NAN],
        "beam": [0],
        "segment_tokens": [0],
    },
    answer_probability.Config: {"k": [0]},
    # ARS-RAG and ERRR
    Rewriter: {"n": [0, 100], "tokens": [0], "temperature": [-1.0], "word_tokens": [-1.0]},
    Fixed: {"k": [0]},
    RelevanceJudge: {"by": ["odds"]},
    ars_labels.Config: {"compared": [2.0]},
    Prompted: {"tokens": [0], "most": [0]},
    Trained: {"tokens": [0], "most": [0]},
    errr_pairs.Config: {"held_out": [1.0]},
    Worth: {"hit": [-1], "rerank": [-1.0]},
    bandit.RewardScheme: {"penalty": [-0.1, NAN], "first": [INF]},
    bandit.NeuralUcb: {
        "width": [0],
        "beta": [-1.0],
        "regularization": [0.0],
        "learning_rate": [NAN],
        "confidence": ["half"],
    },
    bandit.ReleasedNeuralUcb: {"width": [0], "nu": [0.0], "steps": [0], "learning_rate": [NAN]},
    bandit.EpsilonGreedy: {"epsilon": [1.5]},
    bandit.LinUcb: {"alpha": [-1.0]},
    bandit.BanditTraining: {"epochs": [0], "dimensions": [-1]},
    # trainings
    TrainingSettings: {"epochs": [0.0], "steps": [-1], "seed": [-1]},
    RankerTraining: {
        "ties": ["keep"],
        "unit": ["rewrites"],
        "dropout": [1.0],
        "learning_rate": [NAN, 0.0],
        "weight_decay": [-0.1],
        "clip": [NAN],
        "warmup": [-1],
        "epochs": [0.0],
        "seed": [-1],
    },
    StudentTraining: {
        "learning_rate": [0.0],
        "decay": ["step"],
        "best": ["bleu"],
        "epochs": [0.0],
        "clip": [-1.0],
    },
    PPOTraining: {
        "batch": [0],
        "epochs": [0.0],
        "clip": [1.0],
        "decay": [1.5],
        "learning_rate": [NAN],
    },
    KlControl: {"target": [0.0]},
    Update: {
        "objective": ["mse"],
        "form": ["mine"],
        "learning_rate": [0.0, NAN],
        "temperature": [0.0],
        "clip": [-1.0],
        "top": [-1],
        "dropout": [1.0],
    },
    SupervisedTraining: {"warmup_epochs": [-1], "epochs": [0.0], "negatives": [-1], "steps": [-1]},
    R3Training: {
        "phases": ["some"],
        "warmup": [1.5],
        "ahead": [0],
        "parts": [0],
        "epochs": [-1.0],
        "passages": [1],
        "keep": [(1.0,)],
    },
    Rules: {"sampling": ["D"]},
    # indexes and data
    Web: {
        "engine": ["google"],
        "count": [21, 0],
        "rate": [0.0],
        "patience": [-1.0],
        "concurrency": [0],
    },
    Sidr: {"search": ["gamma"], "m": [0]},
    Bm25: {"k1": [-1.0, INF], "b": [1.5, NAN]},
    FaissFlat: {"memory_gb": [-1.0, INF, NAN]},
}
CASES = [
    pytest.param(kind, field, value, id=f"{kind.__module__[7:]}.{kind.__name__}-{field}={value}")
    for kind, fields in WRONG.items()
    for field, values in fields.items()
    for value in values
]


@pytest.mark.parametrize(("kind", "field", "value"), CASES)
def test_a_value_out_of_range_is_refused_by_field(kind: type, field: str, value: Any) -> None:
    with pytest.raises(InputError) as refused:
        kind(**{field: value})
    told = str(refused.value)
    assert re.search(rf"\b{field}\b", told), told
    assert isinstance(value, tuple) or str(value) in told, told


# settings that are each allowed, and not together
TOGETHER: list[tuple[type, dict[str, Any], str]] = [
    (R3Training, {"evaluations": 2, "evaluate_every": 3}, "evaluations is 2 and evaluate_every 3"),
    (PPOTraining, {"rollouts": 10, "batch": 4}, "a multiple of batch"),
    (StudentTraining, {"patience": 2, "best": ""}, "patience is 2: it needs a metric"),
    (
        StudentTraining,
        {"patience": 2, "best": "loss", "evaluate_every": 0},
        "evaluate_every is 0",
    ),
    (self_rag.Config, {"form": "long", "depth": 1, "fidelity": "released"}, "depth 2 as released"),
    (self_rag.Config, {"reader": Reader(by="logprob")}, "set reader.by=text"),
    (self_rag.Config, {"reader": Reader(truncate=True)}, "truncate=False"),
    (rrr.Config, {"rewriter": Prompted()}, r"rewriter\.context is True.*use the method errr"),
    (rrr.Config, {"rewriter": Trained()}, r"rewriter\.context is True.*use the method errr"),
    (Worth, {"exact_match": 0, "f1": 0, "hit": 0}, "All weights of worth are 0"),
    (Web, {"engine": "searxng"}, "no SearXNG instance is named"),
    (Web, {"url": "x.org"}, "not a server's address"),
    (Draw, {"source": Folder("x"), "part": "dev"}, "part is 'dev'; allowed: both, train, test"),
    (Draw, {"source": Folder("x"), "train": -1}, "data.train is -1"),
    (Draw, {"source": Folder("x"), "train": 0, "test": 0}, "neither may be negative"),
    (Draw, {"source": Folder("x"), "part": "test", "test": 0}, "data.part=test needs at least one"),
    *(
        (one.Config, {"reader": Reader(by="logprob")}, r"reader\.by is 'logprob'.*reader\.by=text")
        for one in (chain_of_thought, flare, dragin, seakr)
    ),
]


@pytest.mark.parametrize(("kind", "given", "told"), TOGETHER)
def test_settings_that_do_not_go_together_are_refused(
    kind: type, given: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        kind(**given)
