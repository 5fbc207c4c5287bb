"""For iterative methods: a model that says what a test wrote down in turn, an index of words."""

import re
from types import SimpleNamespace

from jaxrag.core.store import Store
from jaxrag.engines.scheduler import Scheduler
from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import Generation, Passage, Question, Ranking
from tests.steps.scripted import tools_of

CITY = Passage("city", "Strelsau", "Strelsau is the capital of Ruritania. It is old. It is red.")
LAND = Passage("land", "Ruritania", "A kingdom. It became free in 1830. It sells tea. It is big.")
HILL = Passage("hill", "Lilliput", "Its highest hill has 1,204 m.")
WHEN = Question("q1", "When did the country with the capital Strelsau become free?", ("1830",))


class Turns:
    """Says one text after the other; the last one again and again."""

    identity = '{"model":"turns"}'

    def __init__(self, *texts, room=None):
        self.texts, self.prompts, self.settings = list(texts), [], []
        if room is not None:
            self.tokenizer, self.max_length = _Words(), room

    def generate(self, prompts, **settings):
        return [self._one(prompt, settings) for prompt in prompts]

    def _one(self, prompt, settings):
        shown = prompt if isinstance(prompt, str) else prompt[-1].content
        text = self.texts[min(len(self.prompts), len(self.texts) - 1)]
        self.prompts.append(shown)
        self.settings.append(settings)
        return Generation(text, (1, 2), (-0.5, -1.5), "stop", len(shown.split()))

    def logprob(self, prompts, continuations):
        raise AssertionError("nothing is scored here")


class _Words:
    """A tokenizer of words."""

    chat_template = "made up"

    def encode(self, text, **_):
        return re.findall(r"\S+", text)

    def apply_chat_template(self, messages, **_):
        return "\n".join(message["content"] for message in messages)


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
    helpers = {"classifier": LanguageModelTool(classifier)} if classifier else {}
    tools = tools_of(model, index, needs=config.needs, helpers=helpers)
    (outcome,) = Scheduler(Store(None)).run([(question.id, lambda: config.answer(question, tools))])
    if outcome.error:
        raise outcome.error
    return outcome
