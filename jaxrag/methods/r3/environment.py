"""R3's environment: a frozen language model that reads a question and one passage.

Its generations decide which passages of a question's pools help; its probabilities label passages
during training. All requests go through the scheduler and the store, so that no result is computed
twice with the same model.

Source: docs/methods, "R3: pools and thresholds" and "R3: labels and draws".
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.core.durable_files import atomic_write
from jaxrag.core.progress import progress
from jaxrag.core.store import Store
from jaxrag.data import question_kinds
from jaxrag.engines.scheduler import Scheduler, gather
from jaxrag.methods.r3 import labels as r3_labels
from jaxrag.methods.r3.labels import POSITIVE, LabelledPool, Rules, make_pool
from jaxrag.models.processes import is_first, shared
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.steps import kinds, prompts
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import Tools
from jaxrag.types import InputError, Passage, Question


async def passes(episode: Episode, passage: Passage) -> bool:
    """Whether the answer y that is written from the passage contains a gold answer: S(y) = 1."""
    question, layout = episode.question, prompts.load(episode.reader.prompts)
    role, fields = kinds.shown_by(question, layout, directly=False)
    limit = 0
    if question_kinds.role_of(question) != "context":
        limit = kinds.answer_limit(question, episode.reader.closed_tokens)
    reply = await episode.ask(role, passages=[passage], limit=limit, **fields)
    return kinds.is_right(reply.text, question, layout.role(role))


async def answer_logprobs(episode: Episode, passage: Passage) -> tuple[float, ...]:
    """log P(y|q,d) of each possible answer y.

    The answers of an open question are its gold answers, each with the sum over its tokens, without
    length normalisation; the answers to a closed one are its options, by first token.
    """
    question = episode.question
    if question_kinds.options(question):
        return await episode.option_logprobs([passage])
    limit, fields = episode.reader.answer_tokens, kinds.fields(question)
    prompt, _ = episode.prompt("context", passages=[passage], limit=limit, **fields)
    answers = [prompts.continuation(prompt, answer) for answer in question.answers]
    return await episode.logprobs(prompt, answers)


@dataclasses.dataclass(frozen=True)
class Environment:
    """The frozen language model and its prompts.

    Attributes:
      tools: only ``tools.llm``, the model, is used.
      reader: prompts and lengths; it reads one passage at a time.
      live: most questions in progress at once.
    """

    tools: Tools
    reader: Reader
    live: int = 4096

    async def passes(self, question: Question, passage: Passage) -> bool:
        """Whether the answer from the passage contains a gold answer, see `passes`."""
        return await passes(Episode(question, self.tools, self.reader), passage)

    async def logprobs(self, question: Question, passage: Passage) -> tuple[float, ...]:
        """log P(y|q,d) of each possible answer y, see `answer_logprobs`."""
        return await answer_logprobs(Episode(question, self.tools, self.reader), passage)

    def run(
        self,
        store: Store,
        tasks: Iterable[tuple[Any, Callable[[], Coroutine[Any, Any, Any]]]],
        on_batch: Callable[[str, int], None] = lambda name, size: None,
    ) -> Iterable[tuple[Any, Any]]:
        """Runs coroutines in the scheduler; pairs of id and value in the order of completion.
        InputError if a question failed; the message names its id.
        """
        for outcome in Scheduler(store, live=self.live, on_batch=on_batch).run(tasks):
            if outcome.error is not None:
                raise InputError(f"Question {outcome.id}: {outcome.error}") from outcome.error
            yield outcome.id, outcome.value


class PooledQuestion(NamedTuple):
    """A training question with its pools."""

    question: Question
    pool: LabelledPool


def label(question: Question, logprobs: Sequence[float], pool: LabelledPool, rules: Rules) -> int:
    """Label of a passage: by thresholds, or for a closed question by its options."""
    if question_kinds.options(question):
        return r3_labels.label_choice(logprobs, question_kinds.gold_option(question))
    return r3_labels.label(logprobs, pool, rules)


def gold_logprob(question: Question, logprobs: Sequence[float]) -> float:
    """log P of the gold answer: the most probable alias, or the gold option of a closed one."""
    if question_kinds.options(question):
        return logprobs[question_kinds.gold_option(question)]
    return max(logprobs)


def make_pools(
    questions: Sequence[Question],
    found: Mapping[str, Sequence[int]],
    passages: Passages,
    environment: Environment,
    store: Store,
    path: Path,
) -> list[PooledQuestion]:
    """R3's offline stage: scores and answers from every question's passages, and makes its pools.

    A passage is in the pool of positives if the answer from it holds a gold answer, or to a closed
    question if the gold option is the most probable one given it; then nothing is generated.

    ``path`` gets a JSON line a question, in their order: "passages" (rows, most relevant first),
    "passes", "logprobs" of each answer, and "log_tau_plus" and "log_tau_minus", or why the question
    is "left_out".

    ``found`` has the passages of each question by its id, most relevant first. Of several processes
    each generates and scores for its share of the questions. InputError if all questions were
    excluded (reasons are counted), or `Environment.run` failed.
    """

    async def both(question: Question) -> tuple[list[bool], list[tuple[float, ...]]]:
        texts = passages.get(found[question.id])
        logprobs = await gather(*(environment.logprobs(question, text) for text in texts))
        if question_kinds.options(question):
            gold = question_kinds.gold_option(question)
            return [r3_labels.label_choice(row, gold) == POSITIVE for row in logprobs], logprobs
        verdicts = await gather(*(environment.passes(question, text) for text in texts))
        return verdicts, logprobs

    def ask(some: Sequence[Question]) -> list[Any]:
        results: dict[str, Any] = {}
        replies = Counter[str]()
        tasks = ((question.id, partial(both, question)) for question in some)
        with progress(len(some), "pools of passages") as advance:

            def on_batch(name: str, size: int) -> None:  # most questions end only with the last
                replies[name] += size
                advance(0, ", ".join(f"{kind} {n:,}" for kind, n in sorted(replies.items())))

            for name, value in environment.run(store, tasks, on_batch):
                results[name] = value
                advance(1)
        return [results[question.id] for question in some]

    for question in questions:
        if not question.answers:
            raise InputError(f"Question {question.id} has no gold answer; R3 cannot train on it.")
        if question_kinds.options(question):
            question_kinds.gold_option(question)
    lines, prepared = [], []
    for question, (verdicts, logprobs) in zip(questions, shared(questions, ask), strict=True):
        rows = list(found[question.id])
        values = logprobs  # of a closed question's, the thresholds are of the gold option
        if question_kinds.options(question):
            gold = question_kinds.gold_option(question)
            values = [[row[gold]] for row in logprobs]
        pool = make_pool(rows, verdicts, values)
        line = {"question_id": question.id, "passages": rows, "passes": verdicts}
        line["logprobs"] = [[round(value, 6) for value in row] for row in logprobs]
        if isinstance(pool, LabelledPool):
            prepared.append(PooledQuestion(question, pool))
            line |= {"log_tau_plus": pool.above, "log_tau_minus": pool.below}
        else:
            line["left_out"] = pool
        lines.append(line)
    if is_first():
        with atomic_write(path) as stream:
            texts = (json.dumps(line, ensure_ascii=False).encode() for line in lines)
            stream.writelines(text + b"\n" for text in texts)
    if not prepared:
        reasons = Counter(line["left_out"] for line in lines)
        listed = "; ".join(f"{reason}: {count}" for reason, count in reasons.most_common())
        raise InputError(
            f"No question is left to train on ({listed}): see {path}. Use a stronger language "
            "model, better prompts, or deeper pools."
        )
    return prepared
