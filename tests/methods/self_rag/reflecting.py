"""A scripted model that judges by reflection tokens, and what Self-RAG makes of it."""

import math
import re
from typing import Any

from jaxrag.methods.self_rag import reflection
from jaxrag.methods.self_rag.self_rag import Config
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.types import Question
from tests.scripted import QUESTION, ScriptedIndex, ScriptedModel, run
from tests.words import word_tokenizer

ANGLES = {"a": 0, "b": 20, "c": 40, "d": 60, "e": 80}
QUERIES = {"Oslo": 80, "": 35}
CHECKPOINT = Reader(prompts="self_rag_checkpoint", answer_tokens=9, closed_tokens=50)
PROMPTED = Reader(prompts="self_rag_small")
TWO = {"candidates": OnePath(n=2), "select": Top(k=2)}
OPENING = "### Instruction:\nWhere is it?\n\n### Response:\n"


TOKENIZER = word_tokenizer("|".join(map(re.escape, reflection.TOKENS)) + "|.|\n", chat=False)
"""Reflection tokens whole, anything else letter by letter."""


class Reflecting(ScriptedModel):
    """Says and judges what a test writes down: the first entry whose key is in the prompt.

    ``said`` gives (text, probabilities, reason), ``judged`` probabilities of words by their text.
    """

    def __init__(self, said: dict[str, Any], judged: dict[str, dict[str, float]]) -> None:
        super().__init__(
            said, lambda p, w: math.log(self.probability(p, w.strip())), tokenizer=TOKENIZER
        )
        self.judged = judged

    def probability(self, prompt: str, word: str) -> float:
        for key, words in self.judged.items():
            if key in prompt and word in words:
                return words[word]
        return 0.125


def answered(model: Any, question: Question = QUESTION, **settings: Any) -> Any:
    config = Config(**{"reader": CHECKPOINT, **TWO, **settings})
    return run(config, model, ScriptedIndex(ANGLES, QUERIES), question=question)


def needs(probability: float, other: float = 0.25) -> dict[str, float]:
    return {"[Retrieval]": probability, "[No Retrieval]": other}


GOOD = {"[Relevant]": 0.75, "[Irrelevant]": 0.25, "[Fully supported]": 0.5, "[Utility:5]": 0.5}
BAD = {"[Relevant]": 0.25, "[Irrelevant]": 0.75, "[No support / Contradictory]": 0.75}

LONG = {"form": "long", "retrieve": "always"}

JUDGED = {
    "Look it up?": {"Yes": 0.75, "No": 0.25},
    "The passage is": {"relevant": 0.5, "irrelevant": 0.5},
    "Supported:": {"fully": 0.25, "partially": 0.5, "not": 0.25},
    "Grade:": {"1": 0.1, "2": 0.1, "3": 0.1, "4": 0.1, "5": 0.6},
}


class Prompted(Reflecting):
    """The same for prompts with demonstrations: only what stands after them counts."""

    def reply(self, shown: str, settings: Any, number: int) -> Any:
        return super().reply(shown.rpartition("\n\n")[2], settings, number)

    def probability(self, prompt: str, word: str) -> float:
        key = next(key for key in self.judged if prompt.endswith(key))
        scores = self.judged[key]
        shown = prompt.rpartition("\n\n")[2]
        return 0.9 if word == "relevant" and "text of b" in shown else scores[word]
