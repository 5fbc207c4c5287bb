"""For iterative methods: a model that says what a test wrote down in turn, an index of words."""

import math
import re
from types import SimpleNamespace

from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import Passage, Question, Ranking
from tests import scripted
from tests.scripted import ScriptedModel
from tests.words import word_tokenizer

CITY = Passage("city", "Strelsau", "Strelsau is the capital of Ruritania. It is old. It is red.")
LAND = Passage("land", "Ruritania", "A kingdom. It became free in 1830. It sells tea. It is big.")
HILL = Passage("hill", "Lilliput", "Its highest hill has 1,204 m.")
WHEN = Question("q1", "When did the country with the capital Strelsau become free?", ("1830",))


class Turns(ScriptedModel):
    """Says one text after the other; the last one again and again."""

    def __init__(self, *texts, room=None):
        tokens = [math.exp(-0.5), math.exp(-1.5)]
        tokenizer = None if room is None else word_tokenizer()
        super().__init__(
            [(text, tokens, "stop") for text in texts],
            last_turn=True,
            tokenizer=tokenizer,
            max_length=room,
        )


class WordIndex:
    """Ranks passages by the query's words that they hold; those that hold none are not found."""

    identity = '{"index":"turns"}'

    def __init__(self, *rows):
        self.rows = rows or (CITY, LAND, HILL)
        self.passages = SimpleNamespace(get=lambda wanted: [self.rows[row] for row in wanted])
        self.asked = []

    def search_texts(self, texts, k):
        self.asked += [(text, k) for text in texts]
        return [self._one({*re.findall(r"\w+", text.lower())}, k) for text in texts]

    def _one(self, words, k):
        held = [re.findall(r"\w+", f"{row.title} {row.text}".lower()) for row in self.rows]
        scores = [len(words & {*one}) for one in held]
        order = sorted(range(len(scores)), key=lambda i: -scores[i])
        found = [i for i in order if scores[i]][:k]
        return Ranking(tuple(found), tuple(float(scores[i]) for i in found))


def run(config, model, index=None, question=WHEN, *, classifier=None):
    """The outcome of one question."""
    helpers = {"complexity.classifier": LanguageModelTool(classifier)} if classifier else {}
    return scripted.run(config, model, index, question=question, helpers=helpers)
