"""Trained helpers are refused where they were trained for another source than the run's."""

import dataclasses
import json
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.engines.local.engine import Local
from jaxrag.functional.bandits.networks import Layer
from jaxrag.methods.ars import ars, helpers
from jaxrag.methods.ars.bandit.trained import TrainedBandit, write_bandit
from jaxrag.methods.ars.helpers import CountBandit, RewriteRanker, labels_source, rewards_source
from jaxrag.methods.ars.rewrites import Rewriter
from jaxrag.methods.ars.strategies import Chosen
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.steps.tools import LanguageModelTool, LoadedRun, Tools
from jaxrag.types import InputError, Question
from tests.scripted import ScriptedModel, run_episode


@pytest.fixture
def loaded(tmp_path) -> LoadedRun:
    model: Any = ScriptedModel({})
    retriever: Any = SimpleNamespace(passages=SimpleNamespace(identity="corpus A"))
    return LoadedRun(ars.Config(), lambda: model, retriever, lambda _: model, tmp_path)


@pytest.fixture
def ranker(tmp_path, loaded, monkeypatch) -> RewriteRanker:
    """A checkpoint for the corpus and rewriter of ``loaded``, whose network is not read."""
    monkeypatch.setattr(helpers.scorer, "load", lambda _: SimpleNamespace(identity="{}"))
    monkeypatch.setattr(helpers, "RerankerTool", lambda scorer: "loaded")
    source = labels_source(loaded.method, loaded.language_model(), loaded.retriever.passages)
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


class Letters:
    """An encoder by the number of a's and b's."""

    identity = json.dumps({"encoder": "letters"})

    def embed(self, texts):
        return np.array([[text.count("a"), text.count("b")] for text in texts], np.float32)


def test_a_bandit_may_have_an_encoder_of_its_own(loaded, tmp_path, monkeypatch):
    """K = 1 for more a's than b's, K = 2 otherwise; the index gives no vectors at all."""
    monkeypatch.setattr(helpers.BiEncoder, "load", lambda self: Letters())
    layers = (Layer(jnp.array([[[1.0, 0.0]], [[0.0, 1.0]]]), None), Layer(jnp.ones((2, 1)), None))
    source = rewards_source(loaded.method, loaded.language_model(), loaded.load_model)
    encoder = json.loads(Letters.identity)
    write_bandit(tmp_path / "bandit", TrainedBandit(2, 2, (1,), layers, None, encoder, source))
    count = Chosen(CountBandit(str(tmp_path / "bandit"), context=BiEncoder("somewhere")))
    assert not count.needs.vectors
    tool = count.bandit.load(loaded)
    tools = Tools(llm=LanguageModelTool(ScriptedModel({})), helpers={count.bandit: tool})
    for text, wanted in (("banana", 1), ("bubble", 2)):
        asked = Question("q", text, ("x",))
        k, _ = run_episode(lambda episode: count(episode, 2), tools, asked)
        assert k == wanted
    with pytest.raises(InputError, match="is a bandit for encoder"):
        monkeypatch.setattr(Letters, "identity", json.dumps({"encoder": "other"}))
        count.bandit.load(loaded)


def test_the_rewriting_model_is_part_of_a_source(loaded):
    """By its identity, wherever its checkpoint lies; without one of its own nothing changes."""
    other: Any = ScriptedModel({})
    other.identity = json.dumps({"model": "writer"})
    plain = rewards_source(loaded.method, loaded.language_model(), loaded.load_model)
    named = dataclasses.replace(loaded.method, rewriter=Rewriter(model=Local("somewhere")))
    found = rewards_source(named, loaded.language_model(), lambda _: other)
    assert found.pop("rewriting_model") == {"model": "writer"} and found == plain
    moved = dataclasses.replace(loaded.method, rewriter=Rewriter(model=Local("elsewhere")))
    found = rewards_source(moved, loaded.language_model(), lambda _: other)
    assert found["rewriter"] == plain["rewriter"]


def test_the_words_of_an_own_prompt_file_are_part_of_a_source(loaded, tmp_path):
    file = tmp_path / "mine.toml"

    def sources(words: str) -> list[Any]:
        file.write_text(f'extends = "ars"\n[rewrite]\nuser = "{words} {{question}}"\n')
        reader = dataclasses.replace(loaded.method.reader, prompts=str(file))
        method, model = dataclasses.replace(loaded.method, reader=reader), loaded.language_model()
        return [
            labels_source(method, model, loaded.retriever.passages),
            rewards_source(method, model, loaded.load_model),
        ]

    first, changed = sources("Rewrite"), sources("Reword")
    for one, other in zip(first, changed, strict=True):
        assert one.pop("prompt_files") != other.pop("prompt_files") and one == other
    plain = labels_source(loaded.method, loaded.language_model(), loaded.retriever.passages)
    assert "prompt_files" not in plain


def test_a_checkpoint_without_a_source_is_used_with_a_warning(loaded, ranker, tmp_path, caplog):
    (tmp_path / "source.json").unlink()
    assert ranker.load(loaded) == "loaded"
    assert "does not record what it was trained for" in caplog.text
    (tmp_path / "source.json").write_text("{")
    with pytest.raises(InputError, match=r"source\.json is damaged"):
        ranker.load(loaded)
