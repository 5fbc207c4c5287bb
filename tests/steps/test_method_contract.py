"""What a method of one's own may do wrong: one error of one question, or of its settings."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from jaxrag.methods import dtr
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.episode import Episode, Pool
from jaxrag.steps.reader import NO_TEXT, Reader, Reply
from jaxrag.steps.tools import Needs, needs_of
from jaxrag.types import InputError
from tests.scripted import ScriptedIndex, ScriptedModel, run

INDEX = ({"a": 10, "b": 20, "c": 30}, {"Where": 0, "second": 25})
OTHER = Reply("other", "other", 0.0, NO_TEXT)


@dataclasses.dataclass(frozen=True)
class Own:
    """Does what a test says."""

    does: Any
    reader: Reader = Reader(prompts="small")

    name = "own"
    needs = Needs(search=True)

    async def answer(self, episode: Episode) -> Any:
        return await self.does(episode)


def ended(does: Any) -> Any:
    model = ScriptedModel(["Rome"])
    return run(Own(does), model, ScriptedIndex(*INDEX))


def test_what_is_returned_is_what_is_recorded() -> None:
    async def another(episode: Episode) -> Reply:
        first = await episode.answer()
        episode.conclude(OTHER)
        return first

    async def unconcluded(episode: Episode) -> Reply:
        await episode.answer()
        return OTHER

    for does, wanted in ((another, "Rome"), (unconcluded, "other")):
        found = ended(does).value
        assert (found.text, found.trace["answer"]["text"]) == (wanted, wanted)


@pytest.mark.parametrize(
    ("does", "message"),
    [
        (lambda episode: episode.note(size=np.float32(1)), r"trace\['size'\] is not plain JSON"),
        (lambda episode: episode.note(size=float("nan")), r"trace\['size'\] is not plain JSON"),
        (lambda episode: episode.decided("g", "no"), "gate g decided 'no': give True or False"),
        (lambda episode: episode.decided("g", None), "gate g decided None"),
        (
            lambda episode: [episode.decided(name, True) for name in ("first", "second")],
            "gates first and second decide about one question",
        ),
    ],
)
def test_what_cannot_be_recorded_is_an_error_of_its_question(does: Any, message: str) -> None:
    async def method(episode: Episode) -> Reply:
        does(episode)
        return await episode.answer()

    with pytest.raises(InputError, match=message):
        ended(method)


@pytest.mark.parametrize("value", [None, "Rome"])
def test_a_method_without_a_reply_is_an_error(value: Any) -> None:
    async def method(episode: Episode) -> Any:
        return value

    with pytest.raises(InputError, match=r"return what episode\.answer or \.finish gives"):
        ended(method)


def test_a_decision_of_numpy_is_plain() -> None:
    async def method(episode: Episode) -> Reply:
        assert episode.decided("g", np.float32(2) > 1) is True
        return await episode.answer()

    assert ended(method).value.trace["gate"] == {"name": "g", "retrieve": True}


def test_a_search_that_fails_leaves_no_record() -> None:
    async def method(episode: Episode) -> Reply:
        with pytest.raises(ValueError, match="out of service"):
            await episode.search("first", 1)
        return await episode.answer(await episode.search("second", 1))

    class Failing(ScriptedIndex):
        def embed(self, texts: Any) -> Any:
            if "first" in texts:
                raise ValueError("out of service")
            return super().embed(texts)

    model = ScriptedModel(["Rome"])
    found = run(Own(method), model, Failing(*INDEX))
    assert [search["query"] for search in found.value.trace["searches"]] == ["second"]


def test_gates_return_a_decision() -> None:
    class Forgetful:
        async def __call__(self, episode: Episode) -> Any:
            episode.decided("forgetful", True)

    config: Any = dtr.Config(Forgetful(), OnePath(n=2), reader=Reader(prompts="small"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="gate Forgetful returned None: return what episode"):
        run(config, ScriptedModel(["Rome"]), ScriptedIndex(*INDEX))
    with pytest.raises(InputError, match="candidates is None, which never retrieves"):
        dtr.Config(candidates=None)


def test_needs_in_tuples_are_refused() -> None:
    @dataclasses.dataclass(frozen=True)
    class Several:
        gates: tuple[Any, ...] = (UncertaintyGate(),)

    with pytest.raises(InputError, match="gates is a tuple with UncertaintyGate"):
        needs_of(Several())


def test_open_answers_need_no_role_of_the_prompts() -> None:
    async def method(episode: Episode) -> Reply:
        return episode.finish("Rome", read=Pool())

    assert ended(method).value.text == "Rome"
