"""What iterative methods share: sentences, limits, and what a loop concludes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrag.steps import loops
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader, Reply
from jaxrag.text.sentences import sentences, word_key
from jaxrag.types import Generation, Question
from tests.scripted import ScriptedModel, tools_of

READER = Reader(prompts="iterative_small")


@pytest.mark.parametrize(
    "text, found",
    [
        ("", []),
        (" \n ", []),
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("J. K. Rowling wrote it. It sold.", ["J. K. Rowling wrote it.", "It sold."]),
        ("It is St. Petersburg. Yes.", ["It is St. Petersburg.", "Yes."]),
        ("So the answer is no. It is.", ["So the answer is no.", "It is."]),
        ("It is No. 5 of them. Yes", ["It is No. 5 of them.", "Yes"]),
        ("It has 1.5 m. and more", ["It has 1.5 m. and more"]),
        ('He said "Go." Then he went', ['He said "Go."', "Then he went"]),
        ("A line\nanother  line. End", ["A line", "another line.", "End"]),
        ("Really?! Yes...", ["Really?!", "Yes..."]),
    ],
)
def test_sentences_by_hand(text, found):
    assert sentences(text) == found


@given(st.text(alphabet="ab A.!?\n\"')\x85\u2028\t0", max_size=60) | st.text(max_size=60))
def test_sentences_cover_the_whole_text(text):
    found = sentences(text)
    assert " ".join(found) == " ".join(text.split())
    assert all(one and one == one.strip() for one in found)


def test_word_keys_ignore_case_blanks_and_punctuation():
    assert word_key(" The  Café, \n(old)! ") == "the café old" == word_key("the CAFÉ old")
    assert word_key("?!") == ""


def reply(text, logprobs):
    generation = Generation(f" {text} more", tuple(range(len(logprobs))), logprobs, "stop", 3)
    return Reply(text, generation.text, 0.0, generation)


def stated(question, said):
    """The answer that a reasoning states, and the trace."""
    episode = Episode(question, tools_of(ScriptedModel()), READER)
    return loops.answer_stated(episode, said), episode.trace


def test_the_last_stated_answer_is_taken():
    said = [reply("The answer is Rome.", (-1.0, -3.0)), reply("So the answer is: Oslo.", (-2.0,))]
    answer, trace = stated(Question("q", "?", ("Oslo",)), said)
    assert answer.text == "Oslo" and trace["answer"]["junk"] is False and trace["task"] == "open"
    # u is over all tokens of both: (1 + 3 + 2) / 3
    assert answer.u == pytest.approx(2.0) and trace["answer"]["tokens"] == 3
    assert answer.generation.prompt_tokens == 6 and "option" not in trace


def test_without_a_stated_answer_the_last_sentence_is_junk():
    said = [reply("It is old.", (-1.0,)), reply("It is Rome.", (-1.0,))]
    answer, trace = stated(Question("q", "?", ()), said)
    assert answer.text == "It is Rome." and trace["answer"]["junk"] is True
    nothing, trace = stated(Question("q", "?", ()), [])
    assert nothing.text == "" and trace["answer"]["u"] is None and trace["answer"]["junk"] is True


def test_closed_questions_conclude_with_an_option():
    choice = Question("q", "Which?", ("tea",), ("gold", "tea"))
    answer, trace = stated(choice, [reply("So the answer is: B.", (-1.0,))])
    assert answer.text == "tea"
    assert trace["option"] == {"said": 1, "gold": 1, "positive": False}
    assert loops.with_choices(choice) == "Which?\nA: gold\nB: tea"
    verdict = Question("q", "is it", ("no",), task="yes_no")
    assert loops.with_choices(verdict) == "is it"
    answer, _ = stated(verdict, [reply("So the answer is: No, it is not.", (-1.0,))])
    assert answer.text == "no"
