"""Where gold passages lie between a question and the pseudo-context that a model writes for it.

PAIRS' and DTR's analyses of retrieval, and the angles that the dynamic weight of PAIRS was fitted
on (equations 6 and 8).

Source: docs/methods, "PAIRS: analyses".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from rich.table import Table

from jaxrag.core import jsonl
from jaxrag.core.checks import check_limits
from jaxrag.core.progress import progress
from jaxrag.evaluation.records import RunRecords
from jaxrag.functional import ais
from jaxrag.retrieval.retriever import Retriever, TextRetriever
from jaxrag.runs.parts import open_index
from jaxrag.runs.table_job import TableJob
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import NO_ANSWER, Reader, Reply
from jaxrag.steps.tools import Needs
from jaxrag.types import InputError

POINTS = "points.jsonl"
"""File of the positions around the question."""

CLOUDS = ("query", "context", "gold")
"""Passages found by the question, those found by the pseudo-context, and gold passages."""

_TOGETHER = 32  # questions embedded and searched for at a time

_angles = jax.jit(jax.vmap(jax.vmap(ais.angle, (None, 0)), (0, 0)))


@dataclasses.dataclass(frozen=True)
class Config:
    """A method whose answer is the pseudo-context of a question; it retrieves nothing itself."""

    name = "pseudo_context"
    needs = Needs(search=True, vectors=True)

    reader: Reader = Reader(prompts="pairs")

    async def answer(self, episode: Episode) -> Reply:
        """Writes the pseudo-context."""
        return NO_ANSWER._replace(text=await episode.pseudo_context())


class _Embedded(NamedTuple):
    """A question with gold passages, and its vectors."""

    record: Mapping[str, Any]
    gold: tuple[int, ...]
    query: Float[np.ndarray, " d"]
    context: Float[np.ndarray, " d"]


@dataclasses.dataclass(frozen=True)
class GoldGeometry(TableJob):
    """Writes pseudo-contexts and measures where the gold passages of their questions lie.

    A line of geometry.jsonl: ``question_id``; ``theta0``, the angle of question and pseudo-context;
    ``gold``, for each gold passage its ``id``, ``theta1`` and ``theta2``, the angles to question
    and pseudo-context, in radians, and its ``rank`` from 0 in the search by the question, null
    beyond ``depth``. Questions without gold passages in the corpus are left out.

    A line of points.jsonl: a passage of the first ``samples`` questions: its ``cloud``, and ``x``
    and ``y``, the vector from the question to the passage on the first two principal components of
    all these vectors, with the question at the origin, and the vector's length ``r``.

    Attributes:
      depth: of the search for ranks.
      samples: number of questions whose passages are placed.
      n: passages of each path that are placed.
    """

    file = "geometry.jsonl"
    method = Config
    measures = True

    depth: int = 20
    samples: int = 200
    n: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        check_limits(depth=self.depth, samples=self.samples, n=self.n)

    def lines(self, records: RunRecords, workdir: Path) -> list[dict[str, Any]]:
        """Angles and ranks of each question; writes points.jsonl."""
        index = open_index(self.run, Path(self.run.cache))
        if isinstance(index, TextRetriever):
            raise InputError(f"{index} has no vectors: choose an index with an encoder.")
        lines: list[dict[str, Any]] = []
        points: list[tuple[str, str, Float[np.ndarray, " d"]]] = []
        for some in _embedded(records, index):
            rankings = index.search(np.stack([one.query for one in some]), max(self.depth, self.n))
            missing = max(self.samples - len(lines), 0)
            for one, ranking in zip(some, rankings, strict=True):
                lines.append(_line(one, ranking.ids[: self.depth], index))
            if placed := some[:missing]:
                contexts = index.search(np.stack([one.context for one in placed]), self.n)
                for one, by_q, by_p in zip(placed, rankings, contexts, strict=False):
                    clouds = (by_q.ids[: self.n], by_p.ids, one.gold)
                    for cloud, rows in zip(CLOUDS, clouds, strict=True):
                        moved = index.vectors(rows) - one.query
                        points += [(one.record["question_id"], cloud, vector) for vector in moved]
        if not lines:
            raise InputError(f"No question of {self.run.data} has known gold passages.")
        jsonl.write(workdir / POINTS, _placed(points))
        return lines

    def summary(self, lines: Sequence[Mapping[str, Any]]) -> Table:
        """The fit of alpha on theta0, and medians."""
        slope, intercept = ais.fit_alpha(*map(jnp.asarray, weights(lines)))
        gold = [one for line in lines for one in line["gold"]]
        ranks = np.array([np.nan if one["rank"] is None else one["rank"] for one in gold])
        table = Table("questions", "alpha", "median cosine to gold", f"gold in first {self.depth}")
        cosine = np.median(np.cos([one["theta1"] for one in gold]))
        table.add_row(
            f"{len(lines):,}",
            f"{slope:.3f} theta0 + {intercept:.3f}",
            f"{cosine:.3f}",
            f"{100 * np.mean(np.isfinite(ranks)):.1f} %",
        )
        return table


def weights(
    lines: Sequence[Mapping[str, Any]],
) -> tuple[Float[np.ndarray, " q"], Float[np.ndarray, " q"]]:
    """theta0 and alpha (PAIRS eq 6) of each question of geometry.jsonl.

    Of several gold passages the mean angles count (the paper does not say).
    """
    theta0 = np.array([line["theta0"] for line in lines])
    theta1 = np.array([np.mean([passage["theta1"] for passage in line["gold"]]) for line in lines])
    theta2 = np.array([np.mean([passage["theta2"] for passage in line["gold"]]) for line in lines])
    return theta0, np.asarray(ais.best_weight(jnp.asarray(theta1), jnp.asarray(theta2)))


def _embedded(records: RunRecords, index: Retriever) -> Iterator[list[_Embedded]]:
    """The questions with gold passages, with their vectors, some at a time."""
    judged = [record for record in records.records if record.get("gold_passages")]
    gold = (tuple(index.passages.rows_of(record["gold_passages"]).values()) for record in judged)
    pairs = [(record, rows) for record, rows in zip(judged, gold, strict=True) if rows]
    with progress(len(pairs), "embedding questions and pseudo-contexts") as advance:
        for start in range(0, len(pairs), _TOGETHER):
            some, rows = zip(*pairs[start : start + _TOGETHER], strict=True)
            texts = [record["question"] for record in some]
            texts += [record["prediction"] for record in some]
            vectors = index.embed(texts)
            yield [
                _Embedded(*one)
                for one in zip(some, rows, vectors[: len(some)], vectors[len(some) :], strict=True)
            ]
            advance(len(some))


def _line(one: _Embedded, ranking: Sequence[int], index: Retriever) -> dict[str, Any]:
    ends = np.stack([one.query, one.context])
    passages = np.concatenate([index.vectors(one.gold), one.context[None]])
    width = -(-len(passages) // 4) * 4  # few programs
    padded = np.pad(passages, ((0, width - len(passages)), (0, 0)))
    theta1, theta2 = np.asarray(_angles(ends, np.stack([padded, padded]))).tolist()
    ids = [passage.id for passage in index.passages.get(one.gold)]
    rank = {row: place for place, row in enumerate(ranking)}
    return {
        "question_id": one.record["question_id"],
        "theta0": theta1[len(one.gold)],
        "gold": [
            {"id": name, "theta1": theta1[i], "theta2": theta2[i], "rank": rank.get(one.gold[i])}
            for i, name in enumerate(ids)
        ],
    }


def _placed(points: Sequence[tuple[str, str, Float[np.ndarray, " d"]]]) -> list[dict[str, Any]]:
    """The points on the two principal components of all of them."""
    vectors = np.stack([vector for _, _, vector in points]).astype(np.float64)
    centred = vectors - vectors.mean(axis=0)
    _, components = np.linalg.eigh(centred.T @ centred)
    first = components[:, ::-1][:, :2]
    first = first * np.sign(first[np.abs(first).argmax(axis=0), [0, 1]])  # a sign to keep
    places, lengths = vectors @ first, np.linalg.norm(vectors, axis=1)
    return [
        {"question_id": name, "cloud": cloud, "x": x, "y": y, "r": r}
        for (name, cloud, _), (x, y), r in zip(
            points, places.tolist(), lengths.tolist(), strict=True
        )
    ]
