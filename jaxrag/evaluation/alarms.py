"""Alarms: conditions of questions, such as cut answers, that put the means of a run in doubt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxrag.evaluation.metrics import Record

SHARE = 0.02
"""An alarm is raised if more than this share of a run's questions meet its condition."""


class Alarm(NamedTuple):
    """A condition that a question of a run may meet.

    ``says`` follows the number of questions; ``has`` says whether a line of answers.jsonl meets it,
    False if the run did not record what decides.
    """

    says: str
    way_out: str
    has: Callable[[Record], bool]


def _answer(record: Record) -> Mapping[str, Any]:
    return record.get("trace", {}).get("answer") or {}


def _said(record: Record) -> bool | None:
    """Whether the answer to a closed question names one option; None for others."""
    option = record.get("trace", {}).get("option")
    return None if option is None else option["said"] is not None


def _reasons_on(record: Record) -> bool:
    answer = _answer(record)
    unfinished = bool(answer.get("reasoning_tokens")) and not (answer.get("raw") or "").strip()
    return unfinished or "unfinished reasoning" in record.get("error", "")


def _is_cut(record: Record) -> bool:
    """Whether the answer, not text after it, ends where the tokens did and names no option."""
    answer = _answer(record)
    if answer.get("finish_reason") != "length" or not answer.get("tokens") or _said(record):
        return False
    return (answer.get("raw") or "").rstrip().endswith((answer.get("text") or "").strip())


ALARMS: Mapping[str, Alarm] = {
    "failed": Alarm(
        "failed or were refused, and count in no mean",
        "answers.jsonl has each error. Mend its cause (prompts that are too long: "
        "config.method.reader.truncate=True) and run the same command again",
        lambda record: "error" in record,
    ),
    "without_gold": Alarm(
        "have no gold answer, and count in no mean of accuracy",
        "choose data that have them (config.data)",
        lambda record: not record["gold_answers"],
    ),
    "empty": Alarm(
        "have an empty answer",
        "see trace.answer.raw in answers.jsonl, and choose prompts that suit the model "
        "(config.method.reader.prompts)",
        lambda record: "error" not in record and not record["prediction"].strip(),
    ),
    "cut": Alarm(
        "have an answer cut at the limit of tokens",
        "raise config.method.reader.answer_tokens (for closed questions "
        "config.method.reader.closed_tokens)",
        _is_cut,
    ),
    "unfinished_reasoning": Alarm(
        "have reasoning that did not end, so no answer",
        "raise config.method.reader.answer_tokens, or switch reasoning off "
        "(config.model.template_options)",
        _reasons_on,
    ),
    "truncated": Alarm(
        "had passages cut to fit the prompt",
        "read fewer (config.method.select.k), or raise config.model.max_length",
        lambda record: "truncated" in record.get("trace", {}),
    ),
    "nothing_found": Alarm(
        "had a search that found nothing",
        "see trace.searches in answers.jsonl, and choose another index (config.index)",
        lambda record: any(not s["ids"] for s in record.get("trace", {}).get("searches", ())),
    ),
    "unread": Alarm(
        "have an answer without the form that the prompt asks for",
        "see trace.answer.raw in answers.jsonl, and choose prompts that the model follows "
        "(config.method.reader.prompts), or answer closed questions by config.method.by=logprob",
        lambda record: bool(_answer(record).get("junk")) or _said(record) is False,
    ),
}
"""All alarms by name. A condition that an earlier version did not record is not met."""


def count(records: Sequence[Record]) -> dict[str, int]:
    """The number of questions that meet the condition of each alarm."""
    counts = dict.fromkeys(ALARMS, 0)
    for record in records:
        for name, alarm in ALARMS.items():
            counts[name] += alarm.has(record)
    return counts


def raised(records: Sequence[Record]) -> dict[str, str]:
    """A sentence, with what to change, for each alarm whose share of questions exceeds `SHARE`."""
    total = len(records)
    return {
        name: f"{number:,} of {total:,} questions ({100 * number / total:.0f} %) "
        f"{ALARMS[name].says}: {ALARMS[name].way_out}."
        for name, number in count(records).items()
        if number > SHARE * total
    }
