"""Trained helpers are refused where they were trained for another source than the run's."""

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import pytest

from jaxrag.methods.ars import ars, helpers
from jaxrag.methods.ars.helpers import RewriteRanker, labels_source
from jaxrag.methods.ars.rewrites import Rewriter
from jaxrag.steps.tools import LoadedRun
from jaxrag.types import InputError
from tests.scripted import ScriptedModel


@pytest.fixture
def loaded(tmp_path) -> LoadedRun:
    model: Any = ScriptedModel({})
    retriever: Any = SimpleNamespace(passages=SimpleNamespace(identity="corpus A"))
    return LoadedRun(ars.Config(), model, retriever, lambda _: model, tmp_path)


@pytest.fixture
def ranker(tmp_path, loaded, monkeypatch) -> RewriteRanker:
    """A checkpoint for the corpus and rewriter of ``loaded``, whose network is not read."""
    monkeypatch.setattr(helpers.scorer, "load", lambda _: SimpleNamespace(identity="{}"))
    monkeypatch.setattr(helpers, "RerankerTool", lambda scorer: "loaded")
    source = labels_source(loaded.method, loaded.llm, loaded.retriever.passages)
    (tmp_path / "source.json").write_text(json.dumps(source))
    return RewriteRanker(str(tmp_path))


def test_a_ranker_of_another_corpus_or_rewriter_is_refused(loaded, ranker):
    assert ranker.load(loaded) == "loaded"
    elsewhere: Any = SimpleNamespace(passages=SimpleNamespace(identity="corpus B"))
    three = dataclasses.replace(loaded.method, rewriter=Rewriter(temperature=0.6))
    for other, told in (
        (loaded._replace(retriever=elsewhere), 'corpus: "corpus A" recorded, "corpus B" now'),
        (loaded._replace(method=three), r"rewriter\.temperature: 0\.0 recorded, 0\.6 now"),
    ):
        with pytest.raises(InputError, match=rf"another source than this run's:\n  {told}"):
            ranker.load(other)
        assert dataclasses.replace(ranker, transfer=True).load(other) == "loaded"


def test_a_checkpoint_without_a_source_is_used_with_a_warning(loaded, ranker, tmp_path, caplog):
    (tmp_path / "source.json").unlink()
    assert ranker.load(loaded) == "loaded"
    assert "does not record what it was trained for" in caplog.text
    (tmp_path / "source.json").write_text("{")
    with pytest.raises(InputError, match=r"source\.json is damaged"):
        ranker.load(loaded)
