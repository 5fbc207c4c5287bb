"""DRAGIN on scripts: what triggers, where it cuts, what is searched for, and that it ends."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.methods.inspecting.dragin import Config
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError, Question
from tests.methods.inspecting.looking import Transparent, run
from tests.scripted import QUESTION

FIRST = " It lies in Oslo. So the answer is Oslo."
SECOND = " the old Rome. Paris is far. So the answer is Rome."


def config(**changes):
    given = {
        "theta": 0.5,
        "fidelity": "paper",
        "candidates": OnePath(n=2),
        "select": Top(k=2),
        "reader": Reader(prompts="inspecting_small"),
    }
    return Config(**{**given, **changes})


def at(text, word, char=0):
    return text.index(word) + char


def unsure_of(*words, entropy=2.0, share=0.5):
    """Entropy at the second character of each word, to which the last character attends."""

    def inside(text, n):
        t = len(text)
        entropies, attention = np.zeros(t), np.full((t, n), 1e-6)
        for word in words:
            if word in text:
                place = at(text, word, 1)
                entropies[place] = entropy
                attention[-1, n - t + place] = share
        return entropies, attention

    return inside


def writer(*texts):
    """Says the texts in turn, to new prompts."""
    said = {}

    def write(prompt, seed):
        return said.setdefault(prompt, texts[min(len(said), len(texts) - 1)])

    return write


def answers(prompt):
    return prompt.rpartition("Answer:")[2]


def test_a_certain_text_is_the_answer() -> None:
    model = Transparent(writer(FIRST))
    found = run(config(), model)
    trace = found.value.trace
    assert found.value.text == "Oslo" and "searches" not in trace and "selected" not in trace
    assert found.cost["llm_calls"] == 1 and found.cost["llm_scores"] == 1
    assert trace["gate"] == {
        "name": "dragin", "retrieve": False, "highest": 0.0, "theta": 0.5, "retrieved": 0, "of": 1,
    }  # fmt: skip
    assert trace["answer"]["raw"] == FIRST.strip() and not trace["answer"]["junk"]
    assert model.settings[0]["max_new_tokens"] == 100 and model.looked[0][1] == FIRST


def test_the_text_is_cut_at_the_trigger_and_continued_from_passages() -> None:
    model = Transparent(writer(FIRST, SECOND), unsure_of("Oslo."))
    found = run(config(), model)
    trace = found.value.trace
    first, second = trace["generations"]
    # entropy 2 times attention .5
    assert first["trigger"]["word"] == "Oslo." and first["trigger"]["score"] == pytest.approx(1.0)
    assert first["trigger"]["entropy"] == pytest.approx(2.0)
    assert first["trigger"]["received"] == pytest.approx(0.5)
    direct, informed = model.prompts
    assert "text of" not in direct and answers(direct) == ""
    assert answers(informed) == " It lies in"
    assert informed.index("text of") < informed.index("Where is it?")
    assert found.value.text == "Rome"
    assert trace["answer"]["raw"] == "It lies in the old Rome. Paris is far. So the answer is Rome."
    # each character is a token, and none of the word is kept, though its second one is the trigger
    assert trace["answer"]["tokens"] == len(" It lies in ") + len(SECOND)
    # the question's and the text's own words but stopwords; "Where" finds c, then its neighbours
    (search,) = trace["searches"]
    assert search["query"] == "lies" and search["path"] == "generation 1"
    assert first["ids"] == search["ids"] == trace["selected"]["ids"]
    assert second["passages"] == 2 and trace["gate"]["retrieved"] == 1
    assert found.cost["llm_calls"] == 2 and found.cost["searches"] == 1


def test_the_query_has_the_attended_words_in_text_order() -> None:
    question = Question("q", "Which river crosses Italy near Rome, by Italy?", ("Po",))
    text = " The river of Italy is the long Po."
    base = unsure_of("Po.")

    def inside(text, n):
        entropies, attention = base(text, n)
        if "Po." not in text:
            return entropies, attention
        start = n - len(text)
        row, prompt_at = (
            attention[at(text, "Po.", 1)],
            start - len(question.text) - len("\nAnswer:"),
        )
        for word, weight in (("crosses", 0.3), ("Rome,", 0.2), ("Italy", 0.04), ("near", 0.05)):
            row[prompt_at + at(question.text, word)] = weight
        row[start + at(text, "Italy")] = 0.02  # with the question's .04 the word has .06
        row[3] = 0.9  # a word of a demonstration
        return entropies, attention

    model = Transparent(writer(text, SECOND), inside)
    for n, query in [(1, "crosses"), (2, "crosses Rome"), (3, "crosses Italy Rome"),
                     (4, "crosses Italy near Rome")]:  # fmt: skip
        found = run(config(query_words=n), model, question=question)
        assert found.value.trace["searches"][0]["query"] == query


def test_stopwords_and_marks_do_not_trigger() -> None:
    model = Transparent(writer(FIRST), unsure_of("in ", " . ", "the "))
    assert not run(config(), model).value.trace["gate"]["retrieve"]


def test_the_last_token_does_not_trigger() -> None:
    model = Transparent(writer(" Oslo"), unsure_of("slo"))  # its "o" attends to "l" alone

    def last(text, n):
        return np.array([0, 0, 0, 0, 9.0]), np.full((5, n), 0.5)

    model.inside = last
    assert not run(config(), model).value.trace["gate"]["retrieve"]


@pytest.mark.parametrize("theta, retrieves", [(0.99, True), (1.01, False)])
def test_the_threshold_decides(theta, retrieves) -> None:
    model = Transparent(writer(FIRST, SECOND), unsure_of("Oslo."))
    found = run(config(theta=theta), model)
    assert found.value.trace["gate"]["retrieve"] is retrieves
    assert found.value.trace["gate"]["highest"] == pytest.approx(1.0)


def test_released_scores_are_relative_to_the_sentence() -> None:
    # the sentence has 18 characters with the blanks around it; all but one get 1e-6, so the mean
    # is about .5 / 18, the share 18, and the score 2 * 18
    model = Transparent(writer(FIRST, SECOND), unsure_of("Oslo."))
    found = run(config(fidelity="released", theta=30.0), model)
    score = found.value.trace["generations"][0]["trigger"]["score"]
    assert score == pytest.approx(36, rel=1e-3)


def test_the_first_sentence_from_passages_is_not_scored() -> None:
    model = Transparent(writer(FIRST, SECOND), unsure_of("Oslo.", "old"))
    assert run(config(), model).value.trace["gate"]["retrieved"] == 1
    later = Transparent(
        writer(FIRST, SECOND, " near. So the answer is Bern."), unsure_of("Oslo.", "far.")
    )
    found = run(config(), later)
    assert found.value.trace["gate"]["retrieved"] == 2 and found.value.text == "Bern"
    assert answers(later.prompts[2]) == " It lies in the old Rome. Paris is"


def test_it_ends_after_max_retrievals() -> None:
    text = " One two. Three four. Five six."
    model = Transparent(lambda prompt, seed: text, unsure_of("Three", "two."))
    found = run(config(max_retrievals=3), model)
    assert found.cost["searches"] == 3 and found.cost["llm_calls"] == 4
    assert found.value.trace["answer"]["junk"] is True and found.value.text == "Five six."


def test_an_empty_text_ends_the_answer() -> None:
    found = run(config(), Transparent(writer("")))
    assert found.value.text == "" and found.value.trace["answer"]["junk"] is True
    assert found.cost.get("llm_scores", 0) == 0


def test_chat_models_get_chat_prompts() -> None:
    chat = config(reader=Reader(prompts="inspecting"))
    said = writer("It lies in Oslo. So the answer is Oslo.", "Rome. So the answer is Rome.")
    model = Transparent(said, unsure_of("Oslo."))
    found = run(chat, model)
    assert found.value.text == "Rome"
    assert "Answer so far: It lies in\nThe rest of the answer:" in model.prompts[1]


@settings(deadline=None, max_examples=20)
@given(st.text(max_size=40), st.text(max_size=40), st.integers(0, 2**31))
def test_it_terminates_on_any_output(first, second, seed) -> None:
    def inside(text, n):
        rng = np.random.default_rng(seed)
        return rng.gamma(1.0, size=len(text)), rng.dirichlet(np.ones(n), len(text)).reshape(-1, n)

    model = Transparent(lambda prompt, _: first if len(prompt) % 2 else second, inside)
    found = run(config(theta=0.01, max_retrievals=2), model)
    assert found.cost["llm_calls"] <= 3 and found.cost.get("searches", 0) <= 2


def test_a_model_without_inspection_is_refused() -> None:
    with pytest.raises(
        InputError, match="needs attentions and hidden states: use the local engine"
    ):
        run(config(), Transparent(writer(FIRST)), question=QUESTION, inside=False)
