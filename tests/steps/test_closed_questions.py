"""Questions of every kind: asked, and scored by their options."""

import numpy as np
import pytest

from jaxrag.data import question_kinds
from jaxrag.steps import kinds, prompts
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import InputError, Passage
from tests.engines.tiny_model import load_local, write_tiny_model
from tests.scripted import ScriptedModel, run_episode, tools_of
from tests.steps.closed_questions import CHOICE, CLAIM, LABELS, OPEN, YES_NO

READER = Reader(prompts="r3")
PASSAGES = [Passage("p", "Roses", "They are red."), Passage("s", "Sea", "It is blue.")]


def logprobs(model, question, reader=READER, passages=PASSAGES):
    scores, _ = run_episode(
        lambda episode: episode.option_logprobs(passages), tools_of(model), question, reader
    )
    return scores


def prompt_of(model, question, reader=READER, passages=PASSAGES):
    """The prompt that `logprobs` scores the options after, and how its passages were cut."""

    async def prompt(episode):
        role = kinds.prompt_role(question)
        fields = kinds.fields(question)
        return episode.prompt(role, passages=passages, limit=reader.answer_tokens, **fields)

    return run_episode(prompt, tools_of(model), question, reader)[0]


def test_a_closed_role_needs_its_fields(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[multiple_choice]\nuser = "{passages} {question}"\n')
    with pytest.raises(InputError, match=r"\[multiple_choice\] user must hold \{choices\}"):
        prompts.load(str(file))
    file.write_text('[context]\nuser = "{passages} {question}"\n')
    with pytest.raises(InputError, match=r"mine\.toml has no \[fact_checking\]"):
        logprobs(ScriptedModel({}), CLAIM, Reader(prompts=str(file)))


def test_options_are_compared_by_their_first_token():
    # summed over its tokens "true" would win by far
    model = ScriptedModel(scores={"true": [-2.0, -0.1], "false": [-1.5, -9.0]})
    assert logprobs(model, CLAIM) == (-2.0, -1.5)
    model = ScriptedModel(scores={"A": [-3.0], "B": [-1.0], "C": [-2.0]})
    assert logprobs(model, CHOICE) == (-3.0, -1.0, -2.0)
    assert len({prompt for prompt, _ in model.scored}) == 1
    within = ScriptedModel(scores={"A": [-3.0], "B": [-1.0], "C": [-2.0]})
    assert logprobs(within, CHOICE, Reader(prompts="small")) == (-3.0, -1.0, -2.0)
    assert [text for _, text in within.scored] == [" A", " B", " C"]  # goes on after "Letter:"
    assert [text for _, text in model.scored] == ["A", "B", "C"]


def test_options_without_distinct_first_tokens_are_refused():
    with pytest.raises(InputError, match="Question o is open"):
        logprobs(ScriptedModel(), OPEN)
    with pytest.raises(InputError, match=r"the same log-probability, -2.*such as a blank"):
        logprobs(ScriptedModel(scores={"true": [-2.0, -1.0], "false": [-2.0, -0.1]}), CLAIM)


def test_option_logprobs_are_of_the_first_token(tmp_path):
    """One token a byte: the options' are those of their first letters in the same prompt."""
    write_tiny_model(tmp_path, max_position_embeddings=1024)
    model = load_local(str(tmp_path))
    found = logprobs(model, CLAIM)
    asked, _ = prompt_of(model, CLAIM)
    alone = model.logprob([asked, asked], ["t", "f"])
    np.testing.assert_allclose(found, [part[0] for part in alone], rtol=1e-5)
    (reply,) = model.generate([asked], max_new_tokens=1)
    assert reply.logprobs[0] >= max(found) - 1e-5  # the most probable byte of all
    with pytest.raises(InputError, match="such as a blank"):
        logprobs(model, CLAIM, Reader(prompts="small"))


def test_closed_prompts_are_cut_like_others(tmp_path):
    write_tiny_model(tmp_path, max_position_embeddings=1024)
    model = load_local(str(tmp_path), max_length=480)
    reader = Reader(prompts="r3", answer_tokens=20, truncate=True)
    long = [Passage("p", "Roses", "They are red. " * 30), *PASSAGES]
    asked, truncated = prompt_of(model, CHOICE, reader, long)
    assert truncated["passages"] == 1 and truncated["of"] == 3
    assert "They are red." in asked and "C: the sky\n\n### Response:\n" in asked
    assert 0 <= LanguageModelTool(model).room(asked, max_new_tokens=20) < len(" They")


def prefers(best):
    """Scores of a model that prefers one option."""
    return lambda prompt, option: -0.1 if option.strip() == best else -3.0


def directly(by, model, question):
    """The reply to a question without passages, and the trace."""
    reader = Reader(prompts="small", closed_tokens=4, by=by)
    return run_episode(lambda episode: episode.answer(), tools_of(model), question, reader)


@pytest.mark.parametrize("question, best, wanted", [(YES_NO, "no", "no"), (CHOICE, "C", "the sky")])
def test_the_most_probable_option_without_passages(question, best, wanted):
    model = ScriptedModel(scores=prefers(best))
    reply, trace = directly("logprob", model, question)
    assert reply.text == wanted
    number = question_kinds.options(question).index(best)
    assert trace["option"] == {
        "said": number,
        "gold": question_kinds.gold_option(question),
        "positive": question is YES_NO,
    }
    assert trace["answer"]["option_logprobs"][number] == pytest.approx(-0.1)
    assert not model.prompts and all("Passage" not in asked for asked, _ in model.scored)


def test_options_calibrated_by_a_content_free_prompt():
    # yes: -2 here and -4 of nothing, so +2; no: -1 here and -0.5 of nothing, so -0.5
    odds = {("yes", False): -2, ("no", False): -1, ("yes", True): -4, ("no", True): -0.5}
    model = ScriptedModel(scores=lambda prompt, word: odds[word.strip(), "N/A" in prompt])
    assert directly("logprob", model, YES_NO)[0].text == "no"
    reply, trace = directly("calibrated", model, YES_NO)
    assert reply.text == "yes" and trace["answer"]["option_logprobs"] == pytest.approx([2, -0.5])
    assert any("Question: N/A" in asked and "is it so" not in asked for asked, _ in model.scored)


@pytest.mark.parametrize(
    "question, text, wanted, said",
    [(YES_NO, "Yes indeed", "yes", 0), (YES_NO, "hm", "hm", None), (CHOICE, "B", "a rose", 1),
     (CHOICE, "nothing", "nothing", None)],
)  # fmt: skip
def test_written_answers_without_passages(question, text, wanted, said):
    reply, trace = directly("text", ScriptedModel(text), question)
    assert reply.text == wanted == trace["answer"]["text"] and trace["option"]["said"] == said


def test_labels_are_compared_by_all_their_tokens():
    # first tokens alone would prefer NOT ENOUGH INFO: -0.5 against -1
    scores = {"SUPPORTS": [-3.0], "REFUTES": [-1.0, -0.5], "NOT ENOUGH INFO": [-0.5, -2.0]}
    model = ScriptedModel(scores=scores)
    assert logprobs(model, LABELS) == (-3.0, -1.5, -2.5)
    assert "The labels are: SUPPORTS, REFUTES, NOT ENOUGH INFO." in model.scored[0][0]
    reply, trace = directly("logprob", ScriptedModel(scores=scores), LABELS)
    assert reply.text == "REFUTES" and trace["task"] == "labels"
    assert trace["option"] == {
        "said": 1,
        "gold": 1,
        "positive": False,
        "labels": ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"],
    }


def test_labels_are_calibrated_by_a_prompt_that_lists_them():
    # SUPPORTS: -1 here, -0.2 of nothing: -0.8. REFUTES: -2 + 3 = 1. NOT ENOUGH INFO: -4 + 4 = 0.
    odds = {"SUPPORTS": (-1, -0.2), "REFUTES": (-2, -3), "NOT ENOUGH INFO": (-4, -4)}
    model = ScriptedModel(scores=lambda prompt, word: odds[word.strip()]["N/A" in prompt])
    reply, trace = directly("calibrated", model, LABELS)
    assert reply.text == "REFUTES"
    assert trace["answer"]["option_logprobs"] == pytest.approx([-0.8, 1, 0])
    content_free = [asked for asked, _ in model.scored if "N/A" in asked]
    assert "Question: N/A\nOne of: SUPPORTS, REFUTES, NOT ENOUGH INFO" in content_free[0]


@pytest.mark.parametrize(
    "text, wanted, said", [("Refutes it", "REFUTES", 1), ("who knows", "who knows", None)]
)
def test_written_labels(text, wanted, said):
    model = ScriptedModel(text)
    reply, trace = directly("text", model, LABELS)
    assert reply.text == wanted and trace["option"]["said"] == said
    assert model.settings[0]["max_new_tokens"] == 15  # of NOT ENOUGH INFO, not closed_tokens


def test_open_questions_have_no_option():
    reply, trace = directly("logprob", ScriptedModel("Rome"), OPEN)
    assert reply.text == "Rome" and trace["task"] == "open" and "option" not in trace
