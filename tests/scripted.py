"""A language model and an index whose every answer a test writes down beforehand."""

import dataclasses
import functools
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from jaxrag.core.store import Store
from jaxrag.engines.scheduler import Scheduler
from jaxrag.steps.episode import Episode, answer_question
from jaxrag.steps.inspection_tool import InspectionTool
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool, RerankerTool, RetrieverTool, Tools, needs_of
from jaxrag.types import Generation, Passage, Question, Ranking

QUESTION = Question("q1", "Where is it?", ("Rome",))
READER = Reader()


class ScriptedModel:
    """A language model that a test scripts.

    Args:
      said: what it writes. A dict gives the first reply whose key occurs in the prompt; a list its
        replies in turn, the last one again and again; a function gets the prompt and the settings
        of its call, "seed" being the prompt's own. A reply is a text, (text, probabilities of its
        tokens), or (text, probabilities, finish reason).
      scores: log-probabilities of a continuation's tokens, or of its only one: a dict by its text
        without blanks around it, or a function of prompt and continuation. By default each word
        is a token with -1.
      last_turn: whether a chat is shown as its last message, or as all of them.
      tokenizer, max_length: what the model tells of itself.

    Attributes:
      prompts, settings: what was shown for each generation, and the settings of its call.
      scored: shown prompt and continuation of each call for log-probabilities.
    """

    identity = '{"model":"scripted"}'
    gives_logprobs = True

    def __init__(
        self, said="", scores=None, *, last_turn=False, identity=identity, tokenizer=None,
        max_length=100_000,
    ):  # fmt: skip
        self.said, self.scores, self.last_turn = said, scores, last_turn
        self.identity, self.prompts, self.settings, self.scored = identity, [], [], []
        self.tokenizer, self.max_length = tokenizer, max_length

    def generate(self, prompts, *, seed=0, **settings):
        seeds = [seed] * len(prompts) if isinstance(seed, int) else seed
        pairs = zip(prompts, seeds, strict=True)
        return [self._one(self._show(prompt), {**settings, "seed": one}) for prompt, one in pairs]

    def logprob(self, prompts, continuations):
        pairs = [(self._show(p), c) for p, c in zip(prompts, continuations, strict=True)]
        return [self._score(*pair) for pair in pairs]

    def _show(self, prompt):
        if isinstance(prompt, str):
            return prompt
        return "\n".join(message.content for message in prompt[-1 if self.last_turn else 0 :])

    def _one(self, shown, settings):
        reply = self.reply(shown, settings, len(self.prompts))
        self.prompts.append(shown)
        self.settings.append(settings)
        reply = reply if isinstance(reply, tuple) else (reply,)
        text, probabilities, reason = reply + ("", [0.5], "length")[len(reply) :]
        logprobs = tuple(math.log(p) for p in probabilities)
        return Generation(text, tuple(range(len(logprobs))), logprobs, reason, len(shown))

    def reply(self, shown, settings, number):
        """What the ``number``-th prompt is answered with."""
        if callable(self.said):
            return self.said(shown, settings)
        if isinstance(self.said, dict):
            return next(reply for key, reply in self.said.items() if key in shown)
        turns = self.said if isinstance(self.said, list) else [self.said]
        return turns[min(number, len(turns) - 1)]

    def _score(self, shown, continuation):
        self.scored.append((shown, continuation))
        if self.scores is None:
            return np.full(len(continuation.split()), -1.0, np.float32)
        by_text = isinstance(self.scores, dict)
        key = continuation.strip()
        found = self.scores[key] if by_text else self.scores(shown, continuation)
        return np.atleast_1d(np.asarray(found, np.float32))


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


def settings_of(make):
    """Settings of a language model that ``make`` makes."""

    @dataclasses.dataclass(frozen=True)
    class Scripted:
        name: str = "scripted"
        checkpoint: str = str(Path(__file__).parent)  # a directory that is there
        dtype: str = ""

        def load(self, cache):
            return make()

    return Scripted()


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
    tools = tools_of(model, index, needs=needs_of(config), **others)
    return run_step(functools.partial(answer_question, config), tools, question)


def run_episode(step, tools, question=QUESTION, reader=READER):
    """What ``step(episode)`` returns, and the trace of that episode."""

    async def answer(question, tools):
        episode = Episode(question, tools, reader)
        return await step(episode), episode.trace

    return run_step(answer, tools, question).value


def run_step(step, tools, question=QUESTION):
    """The outcome of ``step(question, tools)``."""
    (outcome,) = Scheduler(Store(None)).run([(question.id, lambda: step(question, tools))])
    if outcome.error:
        raise outcome.error
    return outcome
