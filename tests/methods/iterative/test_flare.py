"""FLARE: sentence by sentence on scripts, both branches, its end, and what is searched for."""

import math

import pytest

from jaxrag.methods.iterative import flare
from jaxrag.methods.iterative.flare import LookAhead
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import needs_of
from jaxrag.types import InputError
from tests.scripted import QUESTION, ScriptedIndex, ScriptedModel, run
from tests.words import WORDS_AND_BREAKS, word_tokenizer

ANGLES = {"a": 0, "b": 20, "c": 40, "d": 60, "e": 80}
QUERIES = {"Oslo": 80, "Italy": 0, "Where is it?": 40, "": 60}
READER = Reader(prompts="baselines")
SURE = [0.9, 0.95, 0.9, 0.85, 0.1]  # the last token began what comes after the sentence


class Writer(ScriptedModel):
    """Says, in turn, what a test writes down for prompts without and with passages."""

    def __init__(self, direct, informed=()):
        said = {False: list(direct), True: list(informed)}
        super().__init__(
            lambda prompt, settings: said["text of" in prompt].pop(0),
            last_turn=True,
            tokenizer=word_tokenizer(WORDS_AND_BREAKS),
        )
        self.left = said


def answer(model, question=QUESTION, *, theta=0.8, beta=0.0, reader=READER, **settings):
    settings = {"candidates": OnePath(n=2), "select": Top(k=2), **settings}
    config = flare.Config(LookAhead(theta, beta), reader=reader, **settings)
    found = run(config, model, ScriptedIndex(ANGLES, QUERIES), question=question)
    assert model.left == {False: [], True: []}, "the script was not said to its end"
    return found


def so_far(model):
    return [p.rpartition("Answer so far:")[2].partition("\nThe next")[0] for p in model.prompts]


def test_certain_sentences_are_kept_without_retrieval():
    model = Writer([
        ("It lies in Italy", SURE, "stop"),
        ("So the answer is Rome.", [0.9, 0.9, 0.99, 0.8, 0.95, 0.2], "stop"),  # at a line break
    ])  # fmt: skip
    found = answer(model)
    trace = found.value.trace
    assert found.value.text == "Rome" and so_far(model) == ["", " It lies in Italy."]
    assert found.cost["llm_calls"] == 2 and "searches" not in found.cost
    assert [s["least"] for s in trace["sentences"]] == pytest.approx([0.85, 0.8])
    assert trace["gate"] == {
        "name": "flare", "retrieve": False, "least": pytest.approx(0.8), "theta": 0.8,
        "retrieved": 0, "of": 2,
    }  # fmt: skip
    assert trace["answer"]["raw"] == "It lies in Italy. So the answer is Rome."
    assert trace["answer"]["junk"] is False and trace["task"] == "open"
    assert "searches" not in trace and "selected" not in trace
    # u is over all kept tokens: -(ln .9 + .95 + .9 + .85 + .1 + ... ) / 11
    logs = [math.log(p) for p in (*SURE, 0.9, 0.9, 0.99, 0.8, 0.95, 0.2)]
    assert trace["answer"]["u"] == pytest.approx(-sum(logs) / 11, rel=1e-5)
    assert model.settings[0]["max_new_tokens"] == 64
    assert set(model.settings[0]["stop"]) >= {". ", "! ", "? ", "\n"}


def test_an_uncertain_sentence_is_the_query_and_is_regenerated():
    model = Writer(
        [("It lies in Oslo", [0.9, 0.9, 0.9, 0.3, 0.9], "stop"),
         ("So the answer is Rome.", [0.9] * 6, "stop")],
        [("It lies in Bern", [0.2] * 5, "stop")],
    )  # fmt: skip
    found = answer(model)
    trace = found.value.trace
    first, second = trace["sentences"]
    assert first["retrieve"] is True and second["retrieve"] is False
    assert first["least"] == pytest.approx(0.3)
    (search,) = trace["searches"]
    assert (search["path"], search["query"]) == ("sentence 1", "It lies in Oslo")
    assert search["ids"] == ["e", "d"] == first["ids"] == trace["selected"]["ids"]
    direct, informed, last = model.prompts
    assert "text of" not in direct and "text of" not in last
    assert informed.index("text of e") < informed.index("text of d") < informed.index("Where is")
    assert so_far(model) == ["", "", " It lies in Bern."]
    assert first["final"]["text"] == "It lies in Bern"
    assert found.cost["llm_calls"] == 3 and found.cost["searches"] == 1
    assert trace["gate"]["retrieve"] is True and trace["gate"]["retrieved"] == 1
    assert found.value.text == "Rome"


def test_words_below_beta_are_masked_in_the_query():
    # .35 and .3 are below beta; the first word of Italy's two tokens is sure
    model = Writer(
        [("It lies in Oslo not Italy", [0.9, 0.5, 0.9, 0.35, 0.3, 0.9, 0.8], "stop")],
        [("So the answer is Rome.", [0.9] * 6, "end")],
    )
    found = answer(model, beta=0.4)
    (search,) = found.value.trace["searches"]
    assert search["query"] == "It lies in Italy" and search["ids"] == ["a", "b"]
    assert found.value.trace["sentences"][0]["masked"] == 2


@pytest.mark.parametrize(
    "probabilities, masked",
    [
        ([0.1, 0.2, 0.1, 0.3, 0.5], 4),  # nothing would be left
        ([0.9, 0.1, 0.5], None),  # two tokens cannot make up four words
    ],
)
def test_the_whole_sentence_is_the_query_if_no_word_can_be_masked(probabilities, masked):
    model = Writer(
        [("It lies in Oslo", probabilities, "stop")],
        [("So the answer is Rome.", [0.9] * 6, "end")],
    )
    found = answer(model, beta=0.4)
    assert found.value.trace["searches"][0]["query"] == "It lies in Oslo"
    assert found.value.trace["sentences"][0]["masked"] == masked


def test_masking_needs_the_tokenizer():
    model = Writer([("It lies in Oslo", [0.5] * 5, "stop")])
    model.tokenizer = None
    with pytest.raises(InputError, match="length limit of the model are unknown"):
        answer(model, beta=0.4)
    whole = Writer([("It lies in Oslo", [0.5] * 5, "stop")], [("answer is x.", [0.9], "end")])
    whole.tokenizer = None
    assert answer(whole, beta=0.0).value.trace["searches"][0]["query"] == "It lies in Oslo"


@pytest.mark.parametrize("probability", [1e-9, 0.5, 1.0])
def test_threshold_zero_never_and_one_always_retrieves(probability):
    said = ("So the answer is Rome.", [probability] * 6, "end")
    never = answer(Writer([said]), theta=0.0)
    assert never.value.trace["gate"]["retrieve"] is False and "searches" not in never.cost
    always = answer(Writer([said], [("So the answer is Oslo.", [0.9] * 6, "end")]), theta=1.0)
    assert always.value.trace["gate"]["retrieve"] is True and always.cost["searches"] == 1
    assert (never.value.text, always.value.text) == ("Rome", "Oslo")


def test_a_sentence_cut_by_its_length_counts_to_its_last_token():
    model = Writer(
        [("It lies in", [0.9, 0.9, 0.1], "length"), ("So the answer is Rome.", [0.9] * 6, "end")],
        [("It lies in Italy", [0.9] * 3, "length")],
    )
    found = answer(model, sentence_tokens=3)
    assert found.value.trace["sentences"][0]["least"] == pytest.approx(0.1)
    assert so_far(model)[-1] == " It lies in Italy"  # no full stop was taken away
    assert model.settings[0]["max_new_tokens"] == 3


def test_an_empty_first_sentence_searches_by_the_question():
    model = Writer([("", [0.99], "end")], [("So the answer is Rome.", [0.9] * 6, "end")])
    found = answer(model)
    assert found.value.trace["searches"][0]["query"] == "Where is it?"
    assert found.value.trace["gate"]["least"] == 0 and found.value.text == "Rome"


def test_an_empty_later_sentence_ends_the_answer_without_retrieval():
    model = Writer([("It is Rome", SURE, "stop"), ("", [0.1], "stop")])
    found = answer(model)
    trace = found.value.trace
    assert trace["gate"]["of"] == 1 and trace["gate"]["retrieve"] is False
    assert trace["gate"]["least"] == pytest.approx(0.85)
    assert trace["sentences"][1]["least"] is None
    # no answer is stated: the last sentence stands for it
    assert found.value.text == "It is Rome." and trace["answer"]["junk"] is True


def test_it_ends_after_max_sentences():
    model = Writer([(f"Sentence {i}", SURE, "stop") for i in range(3)])
    found = answer(model, max_sentences=3)
    assert found.cost["llm_calls"] == 3 and found.value.trace["answer"]["junk"] is True
    assert found.value.trace["answer"]["raw"] == "Sentence 0. Sentence 1. Sentence 2."


def test_an_answer_with_an_inner_full_stop_is_complete():
    # ". " may end the sentence or stand in "St. Petersburg": only a line break ends the answer.
    model = Writer([
        ("So the answer is St", SURE, "stop"),
        ("Petersburg.", [0.9, 0.9, 0.9], "stop"),
        ("", [0.9], "stop"),
    ])  # fmt: skip
    assert answer(model).value.text == "St. Petersburg"


@pytest.mark.parametrize("name, calls", [("baselines", 2), ("baselines_small", 1)])
def test_chat_output_continues_after_an_end_token_and_plain_text_does_not(name, calls):
    said = [("It lies in Italy", [0.9] * 5, "end"), ("So the answer is Rome", [0.9] * 6, "end")]
    found = answer(Writer(said[:calls]), reader=Reader(prompts=name), theta=0.0)
    assert found.cost["llm_calls"] == calls
    raw = "It lies in Italy. So the answer is Rome."
    assert found.value.trace["answer"]["raw"] == raw[: len(raw) if calls == 2 else 17]
    assert found.value.text == ("Rome" if calls == 2 else "It lies in Italy.")


def test_plain_text_continues_within_the_line():
    model = Writer(
        [(" It lies in Oslo", [0.5] * 5, "stop"), (" So the answer is Rome.", [0.9] * 6, "stop")],
        [(" It lies in Italy", [0.9] * 5, "stop")],
    )
    model._show = lambda prompt: prompt[prompt.rindex("\n\n") :]  # without the demonstrations
    answer(model, reader=Reader(prompts="baselines_small"), beta=0.4)
    first, informed, last = model.prompts
    assert first.endswith("Question: Where is it?\nAnswer:")
    assert informed.strip().startswith("Title e. text of e\n")
    assert informed.endswith("Question: Where is it?\nAnswer:")
    assert last.endswith("\nAnswer: It lies in Italy.")


def test_flare_needs_logprobs():
    assert needs_of(flare.Config()).logprobs
