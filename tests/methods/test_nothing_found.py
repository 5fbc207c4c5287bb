"""Methods over an index that finds nothing, as a search engine may."""

import pytest

from jaxrag.methods import cor, fairrag, rankrag, rrr, standard_rag
from jaxrag.methods.candidates import DualPath, FixedMix, OnePath
from jaxrag.methods.selectors import Top
from jaxrag.methods.steps import Reader
from tests.methods.scripted import ScriptedModel, run
from tests.methods.test_text_retriever import WordIndex

SMALL = Reader(prompts="errr_small")
RANKS = Reader(prompts="baselines_small")


@pytest.mark.parametrize(
    "method, config",
    [
        (standard_rag, standard_rag.Config(OnePath(n=2), Top(k=1), SMALL)),
        (standard_rag, standard_rag.Config(DualPath(n=2), Top(k=1), SMALL)),
        (standard_rag, standard_rag.Config(FixedMix(), Top(k=1), SMALL)),
        (fairrag, fairrag.Config(reader=RANKS)),
        (rankrag, rankrag.Config(reader=RANKS)),
        (cor, cor.Config(reader=RANKS)),
        (rrr, rrr.Config(reader=SMALL)),
    ],
)
def test_the_question_is_answered_all_the_same(method, config):
    found = run(method.answer, config, ScriptedModel({"": "Rome"}), WordIndex())
    assert found.error is None and found.value.text == "Rome"
    assert found.value.trace["selected"]["ids"] == []
