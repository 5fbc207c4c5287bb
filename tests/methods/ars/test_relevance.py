"""Relevance by a model's word and by its words' probabilities."""

import math

import pytest

from jaxrag.methods.ars import relevance
from jaxrag.methods.ars.relevance import Judgement, RelevanceJudge
from jaxrag.types import InputError, Passage
from tests.scripted import ScriptedModel, run_episode, tools_of

PASSAGE = Passage("p", "Title", "text")


def odds(**words):
    """Gives each word of the pair its log-probabilities, token by token."""
    return ScriptedModel(scores=words)


def judge(model, settings) -> Judgement:
    def judged(episode):
        return relevance.judge(episode, PASSAGE, settings)

    return run_episode(judged, tools_of(model))[0]


def judged(model, **changes) -> Judgement:
    settings = RelevanceJudge(**{"by": "logprob", "prompts": "small"} | changes)
    return judge(model, settings)


def test_judgements_by_logprob():
    # log P(relevant) = -1, log P(irrelevant) = -0.5 - 1.5 = -2: p = 1 / (1 + e^-1)
    model = odds(relevant=[-1.0], irrelevant=[-0.5, -1.5])
    found = judged(model)
    assert found == (True, pytest.approx(1 / (1 + math.exp(-1))), False)
    (prompt, first), (_, second) = model.scored
    assert prompt.endswith("Passage: Title. text\nThe passage is")
    assert (first, second) == (" relevant", " irrelevant")


def test_improbable_and_equal_words():
    assert judged(odds(relevant=[-900.0], irrelevant=[0.0])) == (False, pytest.approx(0), False)
    assert judged(odds(relevant=[0.0], irrelevant=[-900.0])) == (True, 1.0, False)
    assert judged(odds(relevant=[-2.0], irrelevant=[-2.0])) == (False, 0.5, False)


def test_calibration_by_a_content_free_passage():
    # log-odds -1 with the passage and -3 with "N/A": the passage speaks for it, p = 1/(1 + e^-2)
    def scores(prompt, word):
        return 0.0 if word == " irrelevant" else -3.0 if "N/A" in prompt else -1.0

    model = ScriptedModel(scores=scores)
    assert judged(model, empty="N/A") == (True, pytest.approx(1 / (1 + math.exp(-2))), False)
    assert len(model.scored) == 4
    model = ScriptedModel(scores=scores)
    assert judged(model) == (False, pytest.approx(1 / (1 + math.exp(1))), False)


@pytest.mark.parametrize(
    "text, wanted",
    [
        (" relevant", (True, None, False)),
        ("Irrelevant.", (False, None, False)),
        ("It is RELEVANT, not irrelevant", (True, None, False)),
        ("irrelevantly", (False, None, True)),
        ("", (False, None, True)),
        ("perhaps", (False, None, True)),
    ],
)
def test_judgements_by_word(text, wanted):
    assert judged(ScriptedModel({"": text}), by="word") == wanted


def test_the_written_word_decides_unless_set_otherwise():
    assert RelevanceJudge().by == "word" and not RelevanceJudge().needs.scores


def test_chat_prompts_ask_for_the_bare_word():
    model = odds(relevant=[-1.0], irrelevant=[-2.0])
    assert judge(model, RelevanceJudge("logprob")).relevant
    assert [word for _, word in model.scored] == ["relevant", "irrelevant"]


def test_invalid_settings_are_refused(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[relevance]\nuser = "{question} {passage}"\nwords = ["yes"]\n')
    with pytest.raises(InputError, match=r"\[relevance\] has the words \['yes'\]; give 2"):
        judge(ScriptedModel({"": "yes"}), RelevanceJudge(prompts=str(file)))
