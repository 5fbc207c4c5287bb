"""A model whose every text and inside a test writes down, a token a character."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxrag.engines.local.inspection import Inspection
from tests import scripted
from tests.scripted import QUESTION, ScriptedIndex, ScriptedModel

ANGLES = {"a": 0, "b": 20, "c": 40, "d": 60, "e": 80}
QUERIES = {"Oslo": 80, "Italy": 0, "Where": 40, "": 60}


def nothing(text: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Sure of everything, and attending to all alike."""
    return np.zeros(len(text)), np.full((len(text), n), 1 / n)


class Transparent(ScriptedModel):
    """Says what ``write`` says to a prompt and a seed; ``inside`` gives entropies and attention.

    ``spread`` gives the hidden state at the end of a text that follows a prompt; ``surely`` the
    probabilities of its tokens.
    """

    def __init__(
        self,
        write: Callable[[str, int], str],
        inside: Callable[[str, int], tuple[np.ndarray, np.ndarray]] = nothing,
        spread: Callable[[str, str], Sequence[float]] = lambda prompt, text: [
            float(len(text)),
            0.0,
        ],
        surely: Callable[[str], Sequence[float]] = lambda text: [0.99] * len(text),
    ) -> None:
        super().__init__(self.write_one, last_turn=True)
        self.write, self.inside, self.spread, self.surely = write, inside, spread, surely
        self.looked: list[tuple[str, str]] = []
        self.parts: set[str] = set()

    def write_one(self, shown: str, settings: dict[str, Any]) -> tuple[str, list[float], str]:
        text = self.write(shown, settings["seed"])
        return text, [0.5] * len(text), "stop"

    def inspect(self, prompts, continuations, *, layer=None, part="residual", ended=False):
        pairs = list(zip(prompts, continuations, strict=True))
        self.parts |= {part} if ended else set()
        return [self._seen(prompt, text, ended) for prompt, text in pairs]

    def _seen(self, prompt, text, ended):
        shown = prompt if isinstance(prompt, str) else "\n".join(m.content for m in prompt)
        if not ended:
            self.looked.append((shown, text))
        n = len(shown) + len(text)
        entropies, attention = self.inside(text, n)
        spans = np.arange(n)[:, None] + np.array([0, 1])
        logprobs = np.log(np.asarray(self.surely(text)))
        arrays = (entropies, logprobs, attention, np.asarray(self.spread(shown, text)))
        return Inspection(shown + text, spans, *(a.astype(np.float32) for a in arrays))


def run(config, model, *, question=QUESTION, inside=True):
    """The outcome of one question over `ANGLES`."""
    index = ScriptedIndex(ANGLES, QUERIES)
    return scripted.run(config, model, index, question=question, inside=model if inside else None)
