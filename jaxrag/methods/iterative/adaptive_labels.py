"""Training data of Adaptive-RAG's classifier: which of the three strategies answer a question.

Jeong et al. (2024), section 3.2: a question's label is the simplest strategy that answers it
rightly; if none does, the bias of its data set decides. The labels are in the trace of the method
`Config`, whose answer is that of IRCoT's loop. From these the job `MakeComplexityPairs` makes
pairs.jsonl, a line a question: ``question_id``, ``part`` ("train" or "held_out", drawn by the id),
``input`` and ``target``, what the classifier is given and is to write, and ``label_from``: "silver"
where a strategy answered rightly, "bias" where the data set decided; complexity.json counts them. A
training needs questions of one hop and of more: join the files of several data sets.

Source: docs/methods, "Adaptive-RAG".
"""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

from rich.table import Table

from jaxrag.core.checks import check_choices, check_share
from jaxrag.core.durable_files import write_text
from jaxrag.core.hashing import in_share
from jaxrag.engines.scheduler import gather
from jaxrag.evaluation.records import RunRecords
from jaxrag.methods.iterative.adaptive_rag import Strategies, Strategy, classifier_template
from jaxrag.runs.table_job import TableJob
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reply
from jaxrag.text.answers import contains, exact_match
from jaxrag.types import InputError

COUNTS = "complexity.json"

Right = Literal["exact_match", "contains"]
Bias = Literal["single", "multi", "drop"]

_RIGHT = {"exact_match": exact_match, "contains": contains}


@dataclasses.dataclass(frozen=True)
class Config(Strategies):
    """The three strategies, and when their answers are right.

    Attributes:
      right: whether an answer is right if it equals a gold answer, or if it contains one.
      bias: the label if no strategy is right: "single" for single-hop data sets, "multi" for
        multi-hop ones; "drop" leaves such questions out.
      held_out: share of the questions, drawn by their ids, that is held out of training.
    """

    name = "adaptive_labels"

    right: Right = "exact_match"
    bias: Bias = "single"
    held_out: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, right=Right, bias=Bias)
        check_share(held_out=self.held_out)

    async def answer(self, episode: Episode) -> Reply:
        """Answers by all three strategies; the trace is that of the last, with all searches.

        ``trace["strategies"]`` has each answer and whether it is right; ``trace["label"]`` the
        simplest right strategy ("silver") and the one to train on ("strategy"), or None. InputError
        if the question has no gold answer.
        """
        question, names = episode.question, get_args(Strategy)
        if not question.answers:
            raise InputError(
                f"Question {question.id} has no gold answer, so no strategy can be found right."
            )
        parts = [episode.apart() for _ in names]
        replies = await gather(*map(self.answer_by, names, parts))
        right = [int(_RIGHT[self.right](reply.text, question.answers)) for reply in replies]
        silver = next((name for name, ok in zip(names, right, strict=True) if ok), None)
        fallback = None if self.bias == "drop" else self.bias
        searches = [search for part in parts for search in part.trace.get("searches", ())]
        episode.trace.update({**parts[-1].trace, "searches": searches})
        episode.concluded = replies[-1]  # its record is that of the last strategy, as it stands
        episode.note(
            strategies={
                name: {"text": reply.text, "right": ok, "raw": reply.raw}
                for name, reply, ok in zip(names, replies, right, strict=True)
            },
            label={"silver": silver, "strategy": silver or fallback},
        )
        return replies[-1]


@dataclasses.dataclass(frozen=True)
class MakeComplexityPairs(TableJob):
    """Writes the pairs of each question's prompt and label, pairs.jsonl and complexity.json."""

    file = "pairs.jsonl"
    method = Config

    def lines(self, records: RunRecords, workdir: Path) -> list[dict[str, Any]]:
        """The pairs of the questions that have a label; their counts go into complexity.json.
        InputError if no question is left to train on.
        """
        method = self.run.method
        assert isinstance(method, Config)  # __post_init__ refuses any other
        pairs = (pair_line(record, method) for record in records.records)
        lines = [line for line in pairs if line is not None]
        if not any(line["part"] == "train" for line in lines):
            raise InputError(
                f"{self.run.name}: no question is left to train on; label more questions, or set "
                "run.method.bias to another than drop."
            )
        counts = {
            field: dict(sorted(collections.Counter(line[field] for line in lines).items()))
            for field in ("part", "target", "label_from")
        }
        write_text(workdir / COUNTS, json.dumps(counts, indent=2) + "\n")
        return lines

    def summary(self, lines: Sequence[Mapping[str, Any]]) -> Table:
        """Number of pairs by target: in all, to train on, and labelled by a right answer."""
        table = Table("target", "questions", "to train on", "silver")
        for target in sorted({line["target"] for line in lines}):
            some = [line for line in lines if line["target"] == target]
            trained = sum(line["part"] == "train" for line in some)
            silver = sum(line["label_from"] == "silver" for line in some)
            table.add_row(target, *map(str, (len(some), trained, silver)))
        return table


def pair_line(record: Mapping[str, Any], method: Config) -> dict[str, Any] | None:
    """A line of pairs.jsonl: question as input, strategy as target; None if none is labelled."""
    template = classifier_template(method.reader.prompts)
    label = record["trace"]["label"]
    if label["strategy"] is None:
        return None
    place = get_args(Strategy).index(label["strategy"])
    name = record["question_id"]
    held_out = in_share(f"0 {name}", method.held_out)
    return {
        "question_id": name,
        "question": record["question"],
        "part": "held_out" if held_out else "train",
        "input": template.prompt(question=record["question"]),
        "target": template.words[place],
        "label_from": "silver" if label["silver"] else "bias",
    }
