"""A language model and an index whose every answer a test writes down beforehand."""

import math
from types import SimpleNamespace

import numpy as np

from jaxrag.core.store import Store
from jaxrag.engines.scheduler import Scheduler
from jaxrag.steps.inspection_tool import InspectionTool
from jaxrag.steps.tools import LanguageModelTool, RerankerTool, RetrieverTool, Tools
from jaxrag.types import Generation, Passage, Question, Ranking

QUESTION = Question("q1", "Where is it?", ("Rome",))


class ScriptedModel:
    """Gives the first script whose key occurs in the prompt: a text, or (text, probabilities)."""

    identity = '{"model":"scripted"}'

    def __init__(self, script, identity=identity):
        self.script, self.identity, self.prompts = script, identity, []

    def generate(self, prompts, *, max_new_tokens, temperature=0.0, stop=(), seed=0):
        return [self._one(prompt) for prompt in prompts]

    def _one(self, prompt):
        chat = isinstance(prompt, tuple)
        shown = "\n".join(message.content for message in prompt) if chat else prompt
        self.prompts.append(shown)
        reply = next(reply for key, reply in self.script.items() if key in shown)
        text, probabilities = reply if isinstance(reply, tuple) else (reply, [0.5])
        logprobs = tuple(math.log(p) for p in probabilities)
        return Generation(text, tuple(range(len(logprobs))), logprobs, "length", len(shown))

    def logprob(self, prompts, continuations):
        return [np.full(len(c.split()), -1.0, np.float32) for c in continuations]


class ScriptedIndex:
    """Passages on the unit circle: each has an angle in degrees, and so has each query's text."""

    identity = '{"index":"scripted"}'

    def __init__(self, passages, queries):
        self.encoder = SimpleNamespace(identity='{"encoder":"scripted"}')
        self.angles, self.queries, self.searched = list(passages.values()), queries, []
        rows = [Passage(name, f"Title {name}", f"text of {name}") for name in passages]
        self.passages = SimpleNamespace(get=lambda wanted: [rows[row] for row in wanted])

    def embed(self, texts):
        found = [next(a for key, a in self.queries.items() if key in text) for text in texts]
        return np.stack([self._unit(angle) for angle in found])

    def search(self, vectors, k):
        scores = np.asarray(vectors, np.float64) @ self.vectors(range(len(self.angles))).T
        self.searched += [k] * len(vectors)
        return [self._best(line, k) for line in scores]

    def _best(self, scores, k):
        order = np.argsort(-scores, kind="stable")[:k]
        return Ranking(tuple(map(int, order)), tuple(map(float, scores[order])))

    def vectors(self, rows):
        return np.stack([self._unit(self.angles[row]) for row in rows])

    @staticmethod
    def _unit(angle):
        radians = math.radians(angle)
        return np.array([math.cos(radians), math.sin(radians)], np.float32)


class ScriptedReranker:
    identity = '{"reranker":"scripted"}'

    def __init__(self, score):
        self.one = score

    def score(self, queries, passages):
        return np.array([self.one(q, p) for q, p in zip(queries, passages, strict=True)])


def tools_of(model, index=None, *, needs=None, reranker=None, helpers=None, inside=None):
    """Tools of what is given; ``helpers`` are by the field that ``needs`` names."""
    given = {"retriever": index and RetrieverTool(index)}
    given["reranker"] = reranker and RerankerTool(reranker)
    given["inspection"] = inside and InspectionTool(inside)
    found = {needs.helpers[field]: tool for field, tool in (helpers or {}).items()}
    given = {name: tool for name, tool in given.items() if tool is not None}
    return Tools(llm=LanguageModelTool(model), helpers=found, **given)


def run(config, model, index=None, *, question=QUESTION, **others):
    """The outcome of one question."""
    tools = tools_of(model, index, needs=config.needs, **others)
    return run_step(config.answer, tools, question)


def run_step(step, tools, question=QUESTION):
    """The outcome of ``step(question, tools)``."""
    (outcome,) = Scheduler(Store(None)).run([(question.id, lambda: step(question, tools))])
    if outcome.error:
        raise outcome.error
    return outcome
