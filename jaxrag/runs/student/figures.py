"""How well a student writes what its teacher wrote, on pairs held out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Float

from jaxrag.engines.language_model import LanguageModel
from jaxrag.evaluation.significance import intervals
from jaxrag.retrieval.dense.encoder import Encoder
from jaxrag.text.query_lists import parse_queries
from jaxrag.training.student.network import target_logprobs
from jaxrag.training.student.student import Student, TokenPairs, truncate
from jaxrag.training.student.training import TextPair, tokenised
from jaxrag.types import Generation

TABLE = "query_optimizer.jsonl"
"""What the table is called in the directory of a job."""

Task = Literal["queries", "labels"]
"""What targets are: queries for a search engine, or one of a few labels."""

Columns = dict[str, Float[np.ndarray, " q"]]
"""By name, a value of each pair; NaN where it has none."""

_ROWS = 8  # pairs scored at a time


class Written(NamedTuple):
    """What a student wrote for each pair, and how it compares."""

    generations: list[Generation]
    columns: Columns


class Judge:
    """Figures of a student's parameters, on the same pairs each time.

    ``loss``        mean of -log p over the tokens of a pair's target, end token included
    ``exact``       1 where the text written is the target, but for blanks around it
    ``ended``       1 where it ended by itself, within the tokens of the longest target
    of queries:
    ``parsed``      1 where queries could be read from it (`jaxrag.text.query_lists`)
    ``similarity``  of its queries and the teacher's, see `similarity`; 0 where none could be read
    of labels:
    ``accuracy``    1 where the target is the most probable of all labels, their tokens' logs summed

    Args:
      student: network and tokenizer.
      pairs: held out.
      task: what their targets are.
      encoder: of queries; not needed for labels.
      labels: all that there are; not needed for queries.
    """

    def __init__(
        self,
        student: Student,
        pairs: Sequence[TextPair],
        *,
        task: Task,
        encoder: Encoder | None = None,
        labels: Sequence[str] = (),
    ) -> None:
        self._student, self._pairs = student, pairs
        self._labels, self._encoder = tuple(labels), encoder
        self._task: Task = task
        self._tokens = tokenised(pairs, student)
        # what training would cut, an engine refuses
        self._prompts = [truncate(student, one.input) for one in pairs]
        self._score = jax.jit(
            lambda params, pairs: target_logprobs(student.module, params, pairs)[0]
        )

    def __call__(self, params: dict[str, Any], engine: LanguageModel) -> Written:
        """Generations, greedy, and figures; ``engine`` has the same parameters."""
        columns: Columns = {"loss": self._losses(params)}
        made = engine.generate(self._prompts, max_new_tokens=self._student.max_target)
        columns["exact"] = _column(
            one.text.strip() == pair.target.strip()
            for one, pair in zip(made, self._pairs, strict=True)
        )
        columns["ended"] = _column(one.finish_reason == "end" for one in made)
        if self._task == "labels":
            return Written(made, columns | {"accuracy": self._accuracy(engine)})
        return Written(made, columns | self._queries(made))

    def _losses(self, params: dict[str, Any]) -> Float[np.ndarray, " q"]:
        found, count = [], len(self._pairs)
        for start in range(0, count, _ROWS):
            rows = np.minimum(np.arange(start, start + _ROWS), count - 1)  # the last one fills up
            some: TokenPairs = jax.tree.map(lambda array, rows=rows: array[rows], self._tokens)
            logprobs = np.asarray(self._score(params, some), np.float64)
            where = np.arange(logprobs.shape[1]) < some.target_length[:, None]
            found.append(-np.where(where, logprobs, 0.0).sum(axis=1) / some.target_length)
        return np.concatenate(found)[:count]

    def _accuracy(self, engine: LanguageModel) -> Float[np.ndarray, " q"]:
        labels, prompts = self._labels, self._prompts
        asked = [prompt for prompt in prompts for _ in labels]
        found = engine.logprob(asked, list(labels) * len(prompts))
        sums = np.array([part.sum(dtype=np.float64) for part in found]).reshape(-1, len(labels))
        return _column(
            labels[place] == pair.target
            for place, pair in zip(sums.argmax(axis=1), self._pairs, strict=True)
        )

    def _queries(self, made: Sequence[Generation]) -> Columns:
        read = [
            parse_queries(one.text, "", truncated=one.finish_reason == "length") for one in made
        ]
        wanted = [parse_queries(pair.target, "") for pair in self._pairs]
        assert self._encoder is not None
        texts = sorted({text for one in (*read, *wanted) if one.parsed for text in one.texts})
        vectors = dict(zip(texts, self._encoder.embed(texts) if texts else (), strict=True))
        near = [
            similarity(
                np.array([vectors[text] for text in mine.texts]),
                np.array([vectors[text] for text in theirs.texts]),
            )
            if mine.parsed and theirs.parsed
            else 0.0
            for mine, theirs in zip(read, wanted, strict=True)
        ]
        return {"parsed": _column(one.parsed for one in read), "similarity": np.array(near)}


def similarity(mine: Float[np.ndarray, "n d"], theirs: Float[np.ndarray, "m d"]) -> float:
    """How alike two sets of unit vectors are: the mean cosine of each with its nearest.

    The mean over mine of the nearest of theirs, and the other way round, count alike; so both a
    query too many and a query too few cost something.
    """
    cosines = mine @ theirs.T
    return float((cosines.max(axis=1).mean() + cosines.max(axis=0).mean()) / 2)


def _column(values: Any) -> Float[np.ndarray, " q"]:
    return np.array(list(values), np.float64)


def row(name: str, columns: Columns) -> dict[str, Any]:
    """A row of the table: of each figure [mean, low, high, n], the interval over the pairs."""
    found = intervals(columns)
    plain = {
        figure: [None if math.isnan(value) else value for value in one]
        for figure, one in found.items()
    }
    return {"student": name, "pairs": len(columns["loss"]), **plain}
