"""Rewards from which ARS-RAG's bandit is trained: of the answers from K rewrites, for all K.

The reward of arm k is that of the answer from the first k rewrites. The method `Config` gives these
answers, the job `MakeRewards` writes the table that `jaxrag.methods.ars.bandit.reward_table` reads.

Source: docs/methods, "ARS-RAG: rewards".
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from jaxrag.core.durable_files import atomic_write, write_text
from jaxrag.core.hashing import canonical, digest
from jaxrag.data.draw import Draw
from jaxrag.engines.scheduler import gather
from jaxrag.evaluation.metrics import accuracy
from jaxrag.evaluation.records import RunRecords
from jaxrag.evaluation.significance import intervals
from jaxrag.methods.ars.bandit.reward_table import CONFIG, CONTEXTS, REWARDS, ids_hash
from jaxrag.methods.ars.helpers import rewards_source
from jaxrag.methods.ars.rewrites import Rewriter, rewrite
from jaxrag.methods.ars.strategies import Ranked, RewriteOrder
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.retriever import QueryEncoder, TextRetriever
from jaxrag.runs.loading import load_model
from jaxrag.runs.parts import open_index
from jaxrag.runs.table_job import TableJob
from jaxrag.steps.candidates import Search
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import Needs
from jaxrag.types import InputError


@dataclasses.dataclass(frozen=True)
class Config:
    """The fields of `jaxrag.methods.ars.ars.Config` without ``count``: every K is tried.

    Attributes:
      context: encoder of the questions' embeddings that the bandit chooses by; None is the index's.
    """

    name = "ars_rewards"
    needs = Needs(search=True)

    rewriter: Rewriter = Rewriter()
    order: RewriteOrder = Ranked()
    search: Search = Search()
    reader: Reader = Reader(prompts="ars", closed_tokens=20)
    context: BiEncoder | None = None

    async def answer(self, episode: Episode) -> Reply:
        """Answers from the passages of the first rewrite, of the first two, ..., of all.

        Returns the answer from all rewrites; the trace holds every answer under "answers", and the
        ids of its passages under "read".
        """
        written = await rewrite(episode, self.rewriter)
        ordered = await self.order(episode, written.texts, self.search)
        episode.note(kept={"numbers": list(ordered.numbers), "scores": list(ordered.scores)})
        texts = [written.texts[number] for number in ordered.numbers]
        rankings = await self.search.each(episode, texts)
        pools = [self.search.merged(rankings[:k]) for k in range(1, len(texts) + 1)]
        replies = await gather(*(episode.read(pool) for pool in pools))
        episode.note(
            answers=[reply.text for reply in replies], read=[episode.ids(pool) for pool in pools]
        )
        return episode.conclude(replies[-1], read=pools[-1])


@dataclasses.dataclass(frozen=True)
class MakeRewards(TableJob):
    """Writes a reward table of drawn questions, some to train on and some to test on."""

    file = REWARDS
    method = Config

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.run.data, Draw):
            raise InputError(
                "A reward table has questions to train on and questions to test: give run.data as "
                "a jaxrag.data.draw.Draw."
            )

    def lines(self, records: RunRecords, workdir: Path) -> list[dict[str, Any]]:
        """The rewards of each question; contexts.npy and config.json are written beside them.

        InputError where the index has no encoder, or a question no gold answer.
        """
        cache, config, data = Path(self.run.cache), records.config, self.run.data
        method, encoder = self.run.method, self._encoder(cache)
        assert isinstance(data, Draw) and isinstance(method, Config)  # others are refused
        lines = [reward_line(record, data.part_of(at)) for at, record in enumerate(records.records)]
        contexts = encoder.embed([line["question"] for line in lines])
        with atomic_write(workdir / CONTEXTS) as stream:
            np.save(stream, np.asarray(contexts, np.float32), allow_pickle=False)
        table = {
            "table": {
                "kind": "rewards",
                "arms": len(lines[0]["base"]),
                "questions": len(lines),
                "ids": ids_hash(line["question_id"] for line in lines),
                "run": digest(canonical(config)),
            },
            "encoder": json.loads(encoder.identity),
            "source": rewards_source(
                method, load_model(self.run.model, cache), lambda model: load_model(model, cache)
            ),
            "dataset": config["dataset"],
            "method": config["method"],
        }
        write_text(workdir / CONFIG, json.dumps({"config": table}, indent=2) + "\n")
        return lines

    def _encoder(self, cache: Path) -> QueryEncoder:
        """The encoder of the questions that the bandit chooses by."""
        assert isinstance(self.run.method, Config)
        if self.run.method.context is not None:
            return self.run.method.context.load()
        retriever = open_index(self.run, cache)
        if isinstance(retriever, TextRetriever):
            raise InputError(
                "The bandit chooses by the question's vector, and the run's index has no encoder: "
                "choose an index with one, such as Exact, or set run.method.context=BiEncoder."
            )
        return retriever.encoder

    def summary(self, lines: Sequence[Mapping[str, Any]]) -> Table:
        """Scores and base reward of each K on the test questions (all, if there are none)."""
        test = [line for line in lines if line["part"] == "test"] or lines
        name = "exact match" if test[0]["task"] == "open" else "accuracy"
        table = Table(
            "rewrites", f"{name} %", "F1 %", "reward", title=f"{len(test)} test questions"
        )
        columns = {n: np.array([line[n] for line in test]) for n in ("correct", "f1", "base")}
        for k in range(columns["base"].shape[1]):
            means = intervals({name: values[:, k] for name, values in columns.items()})
            scores = (
                f"{100 * score.mean:.1f} [{100 * score.low:.1f}, {100 * score.high:.1f}]"
                for score in (means["correct"], means["f1"])
            )
            table.add_row(str(k + 1), *scores, f"{means['base'].mean:.3f}")
        table.add_row("best of each", "", "", f"{columns['base'].max(1).mean():.3f}")
        return table


def reward_line(record: Mapping[str, Any], part: str) -> dict[str, Any]:
    """The line of rewards.jsonl that a question's record gives; entry k - 1 is of k rewrites.

    The base reward is 1 for a correct answer and 0 otherwise; of an open question 1 for an exact
    match, otherwise token F1. InputError where the question has no gold answer.
    """
    texts, task = record["trace"]["answers"], record["trace"].get("task", "open")
    scored = [accuracy(text, record["gold_answers"]) for text in texts]
    if not scored[0]:
        raise InputError(f"Question {record['question_id']} has no gold answer, so no reward.")
    columns = {name: [row[name] for row in scored] for name in ("exact_match", "f1", "contains")}
    if task == "multiple_choice":  # 1.5 and 15 are equal without punctuation
        gold = {answer.strip().lower() for answer in record["gold_answers"]}
        columns["exact_match"] = [float(text.strip().lower() in gold) for text in texts]
    correct = columns["contains" if task == "fact_checking" else "exact_match"]
    return {
        "question_id": record["question_id"],
        "question": record["question"],
        "part": part,
        "task": task,
        "predictions": texts,
        "exact_match": columns["exact_match"],
        "f1": columns["f1"],
        "correct": correct,
        "base": [max(r["exact_match"], r["f1"]) for r in scored] if task == "open" else correct,
    }
