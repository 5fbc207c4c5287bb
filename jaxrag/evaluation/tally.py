"""What a run has come to so far: counts, for the progress line and the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from jaxrag.evaluation import metrics


class Tally:
    """Sums over the questions that this process has answered."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()

    def request(self, name: str, size: int) -> None:
        """Counts requests that an engine has answered: "generate", "search" and so on."""
        self._requests[name] += size

    def add(self, lines: Iterable[Mapping[str, Any]], timings: Iterable[Mapping[str, Any]]) -> None:
        """Counts lines of answers.jsonl and timings.jsonl."""
        for line in lines:
            self._counts["questions"] += 1
            if "error" in line:
                self._counts["errors"] += 1
                continue
            self._counts["retrieved"] += int(metrics.gate(line)["trigger"])
            self._counts["truncated"] += int("truncated" in line["trace"])
            self._counts.update(line["cost"])
        for timing in timings:
            self._counts["store_hits"] += timing["store_hits"]

    def fields(self) -> dict[str, int]:
        """The counts by name."""
        return dict(sorted(self._counts.items()))

    def note(self) -> str:
        """The counts that matter, in one short text; before a question ends, what was asked."""
        counts = self._counts
        if not counts["questions"]:
            asked = sorted(self._requests.items())
            return "requests answered: " + ", ".join(f"{name} {_short(n)}" for name, n in asked)
        answered = counts["questions"] - counts["errors"]
        parts = [f"retrieves {100 * counts['retrieved'] / max(answered, 1):.0f} %"]
        parts += [f"{_short(counts['llm_calls'])} LLM calls"]
        parts += [f"{_short(counts['prompt_tokens'] + counts['new_tokens'])} tokens"]
        parts += [f"{_short(counts['store_hits'])} from the store"]
        if counts["truncated"]:
            parts.append(f"{counts['truncated']} with passages cut")
        if counts["errors"]:
            parts.append(f"{counts['errors']} errors")
        return ", ".join(parts)


def _short(count: int) -> str:
    """A count in at most four characters and a letter."""
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if count >= limit:
            return f"{count / limit:.3g}{letter}"
    return str(count)
