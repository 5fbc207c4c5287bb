"""What a run has come to so far: counts for the log and the progress line, and errors once each."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jaxrag.engines.compilation import compilation_seconds
from jaxrag.engines.scheduler import QuestionOutcome
from jaxrag.evaluation import metrics

_NEARLY = 0.95  # of the progress: what is expected is an estimate
_log = logging.getLogger("jaxrag")


class Failures:
    """Reports each error once, with the first question that it stopped, and counts the others."""

    def __init__(self) -> None:
        self._questions: dict[str, list[str]] = {}

    def report(self, batch: Sequence[QuestionOutcome]) -> None:
        """Logs the errors that are new among the outcomes."""
        for ended in batch:
            if ended.error is None:
                continue
            text, first = str(ended.error), {"question_id": ended.id.id}
            if isinstance(ended.error, AttributeError | LookupError | NameError | TypeError):
                step = traceback.extract_tb(ended.error.__traceback__)[-1]
                text = f"{step.filename}, line {step.lineno}: {type(ended.error).__name__}: {text}"
            if text not in self._questions:
                _log.warning("question %s failed: %s", ended.id.id, text, extra={"fields": first})
            self._questions.setdefault(text, []).append(ended.id.id)

    def end(self) -> None:
        """Logs how often the repeated errors came."""
        for first, *others in self._questions.values():
            if others:
                fields = {"question_id": first, "others": len(others)}
                message = "question %s and %d others have the same error"
                _log.warning(message, first, len(others), extra={"fields": fields})


class Tally:
    """Sums over the questions that this process has answered, for the log and the progress line."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._compiled = compilation_seconds()

    def request(self, name: str, size: int) -> None:
        """Counts requests answered by an engine; ``name`` is "generate", "search" and so on."""
        self._requests[name] += size

    def share(self, expected: float) -> float:
        """The share of the expected generations and searches that are answered; 0 if unknown."""
        answered = self._requests["generate"] + self._requests["search"]
        return min(answered / expected, _NEARLY) if expected else 0.0

    def add(self, lines: Iterable[Mapping[str, Any]], timings: Iterable[Mapping[str, Any]]) -> None:
        """Adds lines of answers.jsonl and timings.jsonl."""
        for line in lines:
            self._counts["questions"] += 1
            if "error" in line:
                self._counts["errors"] += 1
                continue
            self._counts["retrieved"] += int(metrics.gate(line)["trigger"])
            self._counts["truncated"] += int("truncated" in line["trace"])
            if any(not search["ids"] for search in line["trace"].get("searches", ())):
                self._counts["empty_searches"] += 1
            self._counts.update(line["cost"])
        for timing in timings:
            self._counts["store_hits"] += timing["store_hits"]

    def fields(self) -> dict[str, int]:
        """The counts by name."""
        return dict(sorted(self._counts.items()))

    def note(self) -> str:
        """A short summary; until the first question ends, of the requests answered."""
        counts, seconds = self._counts, compilation_seconds() - self._compiled
        compiled = [f"{seconds:.0f} s of compiling"] * (seconds >= 1)
        if not counts["questions"]:
            requests = [f"{name} {_short(n)}" for name, n in sorted(self._requests.items())]
            return "requests answered: " + ", ".join([*requests, *compiled])
        answered = counts["questions"] - counts["errors"]
        parts = [f"retrieves {100 * counts['retrieved'] / max(answered, 1):.0f} %"]
        parts += [f"{_short(counts['llm_calls'])} LLM calls"]
        parts += [f"{_short(counts['prompt_tokens'] + counts['new_tokens'])} tokens"]
        parts += [f"{_short(counts['store_hits'])} from the store"]
        if counts["truncated"]:
            parts.append(f"{counts['truncated']} with passages cut")
        if counts["errors"]:
            parts.append(f"{counts['errors']} errors")
        return ", ".join([*parts, *compiled])


def _short(count: int) -> str:
    """A count with three significant digits, such as 12.3k."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            return f"{count / limit:.3g}{letter}"
    return str(count)
