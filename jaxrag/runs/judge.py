"""A language model judges whether the answers of finished runs are correct."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from jaxrag.core.checks import check_limits
from jaxrag.core.durable_files import write_text
from jaxrag.core.file_states import one_start
from jaxrag.core.progress import progress
from jaxrag.core.store import CACHE, Store, store_path
from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.local.engine import use_compile_cache
from jaxrag.engines.scheduler import QuestionOutcome, Scheduler
from jaxrag.evaluation.judgements import FILE
from jaxrag.evaluation.records import read_run
from jaxrag.runs.loading import check_model, load_model
from jaxrag.runs.needs import Requiring
from jaxrag.steps import prompts
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool, Tools
from jaxrag.text.sentences import first_word
from jaxrag.types import InputError, Question

ROLE = "correctness"


@dataclasses.dataclass(frozen=True)
class Judge:
    """Settings of a judge.

    Attributes:
      model: the language model that judges.
      prompts: set with the role `ROLE`, whose words stand for a correct and an incorrect answer.
      tokens: most new tokens of a reply.
      live, cache, store: as in `jaxrag.runs.settings.RunSettings`.
    """

    model: ModelSettings
    prompts: str = "judge"
    tokens: int = 8
    live: int = 4096
    cache: str = CACHE
    store: str = ""

    def __post_init__(self) -> None:
        check_limits(tokens=self.tokens, live=self.live)

    @one_start()
    def judge(self, run: Path) -> int:
        """Judges all answers of a run that have gold answers, into its `FILE`; counts the errors.

        Replies come from the store where they are known, so the same call goes on after an
        interruption. An empty answer is incorrect, without a call. InputError if it is no run, has
        no such answer, or the model or the prompts do not fit.
        """
        meaning = "for a correct and an incorrect answer"
        template = prompts.load(self.prompts).role_with_words(ROLE, 2, meaning)
        lines = [line for line in read_run(run).records if line.get("gold_answers")]
        answers = {line["question_id"]: line for line in lines if "error" not in line}
        if not answers:
            raise InputError(f"{run} has no answer to a question with gold answers: run it first.")
        tools = Tools(LanguageModelTool(self._load()))
        judged = {ident: line for ident, line in answers.items() if line["prediction"].strip()}
        results = {
            outcome.id: _judgement(outcome, template.words)
            for outcome in self._replies(judged, tools, f"judging {run}")
        }
        record = {
            "judge": self.model.name,
            "language_model": json.loads(tools.llm.identity),
            "prompts": self.prompts,
            "prompt": dataclasses.asdict(template),
            "judgements": {
                ident: {"prediction": line["prediction"], **results.get(ident, {"correct": False})}
                for ident, line in answers.items()
            },
        }
        write_text(run / FILE, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
        return sum("error" in result for result in results.values())

    def _replies(
        self, answers: Mapping[str, Mapping[str, Any]], tools: Tools, label: str
    ) -> Iterator[QuestionOutcome]:
        """The model's reply about each answer, by the question's id."""
        store = Store(store_path(self.store, self.cache))
        try:
            with progress(len(answers), label) as advance:
                for outcome in Scheduler(store, live=self.live).run(
                    (ident, functools.partial(self._reply, line, tools))
                    for ident, line in answers.items()
                ):
                    advance(1)
                    yield outcome
        finally:
            store.close()

    def _load(self) -> Any:
        cache = Path(self.cache)
        if isinstance(self.model, Requiring):
            self.model.require()
        check_model(self.model, cache)
        use_compile_cache(cache / "compiled")
        return load_model(self.model, cache)

    async def _reply(self, line: Mapping[str, Any], tools: Tools) -> str:
        reader = Reader(prompts=self.prompts, answer_tokens=self.tokens)
        question = Question(line["question_id"], line["question"], ())
        gold = "; ".join(map(str, line["gold_answers"]))
        episode = Episode(question, tools, reader)
        reply = await episode.ask(ROLE, gold_answers=gold, answer=line["prediction"])
        return reply.text


def _judgement(outcome: QuestionOutcome, words: tuple[str, ...]) -> dict[str, Any]:
    """Whether the reply begins with the word for a correct answer; None if with neither."""
    if outcome.error is not None:
        return {"correct": None, "error": f"{type(outcome.error).__name__}: {outcome.error}"}
    verdict = first_word(outcome.value.lower())
    correct = {word.strip().lower(): word == words[0] for word in words}.get(verdict)
    return {"correct": correct, "reply": outcome.value}
