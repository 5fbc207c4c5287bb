"""Several samples of a prompt in one call: those of a call per seed, from a prompt read once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jaxrag.core.store import Store
from jaxrag.engines.local import engine as local
from jaxrag.engines.local.engine import LocalModel
from jaxrag.engines.scheduler import Scheduler, gather
from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import Generation
from tests.engines.local.decoding_rows import rows_of_decoding
from tests.engines.tiny_model import CHATS, load_local
from tests.scripted import ScriptedModel

SETTINGS: dict[str, Any] = {"max_new_tokens": 20, "temperature": 1.5, "stop": tuple("}#M|I")}


def by_seed(model: LocalModel, seeds: Sequence[int]) -> dict[int, list[Generation]]:
    """What each of three prompts is answered with each seed, a call a seed."""
    return {seed: model.generate(CHATS[:3], seed=seed, **SETTINGS) for seed in seeds}


def test_a_call_with_many_seeds_equals_a_call_per_seed(model: LocalModel, read: list[int]) -> None:
    """Of more texts than there are rows, too; 2^32 + 1 is 1 to the generator of numbers."""
    seeds = [*range(15), (1 << 32) + 1]
    alone = by_seed(model, seeds)
    del read[:]
    asked = [(prompt, seed) for seed in seeds for prompt in range(3)]
    prompts, each = [CHATS[i] for i, _ in asked], [seed for _, seed in asked]
    found = model.generate(prompts, seed=each, **SETTINGS)
    assert read == [3]
    for (prompt, seed), one in zip(asked, found, strict=True):
        assert one == alone[seed][prompt]
    assert alone[seeds[-1]] == alone[1]
    assert len({one.tokens for one in found}) > 40


@pytest.mark.usefixtures("unprobed", "fewer_rows_at_once")
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param((1, 1, 1), marks=pytest.mark.slow),
        (2, 2, 2),
        pytest.param((3, 6, 6), marks=pytest.mark.slow),
        (2, 8, 2),
    ],
)
def test_texts_do_not_depend_on_the_number_of_rows(model, directory, rows, monkeypatch) -> None:
    """A prompt whose texts need more rows than there are, all of them or those that are free;
    also where the last ones go on in fewer."""
    monkeypatch.setattr(local, "tail_rows", lambda *_: rows[2])
    small = load_local(directory, prefill_rows=rows[0], rows=rows[1])
    used = rows_of_decoding(monkeypatch)
    alone = by_seed(model, range(5))
    del used[:]
    prompts = [CHATS[0]] * 5 + [CHATS[1]] + [CHATS[2]] * 4
    seeds = [2, 4, 0, 1, 3, 2, 4, 3, 2, 1]  # two are long, and not in the first rows
    found = small.generate(prompts, seed=seeds, **SETTINGS)
    wanted = [alone[seed][CHATS.index(p)] for p, seed in zip(prompts, seeds, strict=True)]
    assert [one.tokens for one in found] == [one.tokens for one in wanted]
    assert set(used) == set(rows[1:])


def test_prompts_have_independent_random_numbers(model: LocalModel) -> None:
    """So hot that all tokens are equally likely: with one seed, the prompt alone decides."""
    texts = model.generate(CHATS[:3], seed=4, max_new_tokens=8, temperature=1e9)
    assert len({one.tokens for one in texts}) == 3


def test_greedy_samples_of_a_prompt_are_equal(model: LocalModel, read: list[int]) -> None:
    found = model.generate([CHATS[0]] * 3, max_new_tokens=8)
    assert read == [1] and found[0] == found[1] == found[2]


def test_samples_of_a_question_share_one_call(tmp_path: Path) -> None:
    model = ScriptedModel(lambda prompt, settings: f"{prompt} {settings['seed']}")
    calls, generate = [], model.generate
    model.generate = lambda prompts, **settings: (
        calls.append((prompts, settings["seed"])) or generate(prompts, **settings)
    )
    llm = LanguageModelTool(model)

    async def ask(prompt: str) -> list[str]:
        asked = [llm.generate(prompt, seed=seed, **SETTINGS) for seed in (3, 1, 2)]
        asked.append(llm.generate(prompt, max_new_tokens=8, seed=7))  # greedily
        return [one.text for one in await gather(*asked)]

    def run(store: Store) -> dict[str, list[str]]:
        started = [(name, lambda name=name: ask(name)) for name in ("a", "b")]
        return {one.id: one.value for one in Scheduler(store).run(started)}

    store = Store(tmp_path / "store.sqlite")
    wanted = {name: [f"{name} {seed}" for seed in (3, 1, 2, 7)] for name in ("a", "b")}
    assert run(store) == wanted
    assert calls == [(["a"] * 3 + ["b"] * 3, [3, 1, 2] * 2), (["a", "b"], [7, 7])]
    assert run(store) == wanted and len(calls) == 2  # all from the store
    store.close()
