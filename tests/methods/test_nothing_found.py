"""Methods over an index that finds nothing, as a search engine may."""

import dataclasses

import pytest

from jaxrag.methods.baselines import cor, fairrag, rankrag, replug
from jaxrag.methods.errr import rrr
from jaxrag.methods.retrieve_and_read import STANDARD_RAG
from jaxrag.steps.candidates import DualPath, FixedMix, OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from tests.methods.test_text_retriever import WordIndex
from tests.scripted import ScriptedModel, run

SMALL = Reader(prompts="errr_small")
RANKS = Reader(prompts="baselines_small")


@pytest.mark.parametrize(
    "config",
    [
        dataclasses.replace(STANDARD_RAG, candidates=OnePath(n=2), select=Top(k=1), reader=SMALL),
        dataclasses.replace(STANDARD_RAG, candidates=DualPath(n=2), select=Top(k=1), reader=SMALL),
        dataclasses.replace(STANDARD_RAG, candidates=FixedMix(), select=Top(k=1), reader=SMALL),
        fairrag.Config(reader=RANKS),
        rankrag.Config(reader=RANKS),
        cor.Config(reader=RANKS),
        replug.Config(reader=SMALL),
        rrr.Config(reader=SMALL),
    ],
)
def test_without_passages_questions_are_answered_directly(config):
    found = run(config, ScriptedModel({"": "Rome"}), WordIndex())
    assert found.error is None and found.value.text == "Rome"
    assert found.value.trace["selected"]["ids"] == []
