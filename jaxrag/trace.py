"""The trace of an answer: what a method did to find it, as plain JSON.

`jaxrag.steps.episode.Episode` writes these keys for every method, in one form; a method adds its
own with `Episode.note`. A key is missing where nothing of the kind happened. Traces in
answers.jsonl have this form, those of older runs included.
"""

from __future__ import annotations

from typing import Any, TypedDict


class Truncated(TypedDict):
    """Passages that were cut to fit into the prompt.

    ``passages`` of ``of`` were shown (the last of them may be cut), and the prompt was shortened by
    ``tokens_cut`` tokens.
    """

    passages: int
    of: int
    tokens_cut: int


class ReplyRecord(TypedDict, total=False):
    """A text of the language model.

    ``text`` is the answer parsed from ``raw``; ``u`` its mean negative log-likelihood in nats, None
    where it is infinite (an empty answer, or one whose tokens the method does not give). Of an
    option chosen by probability it is minus its log-probability ("calibrated": less that after the
    empty prompt, so it may be negative). ``tokens`` leave out the ``reasoning_tokens`` before the
    answer. ``junk`` marks a text that states no answer in the form that the prompt asks for.
    ``logprobs`` are those of the direct answer's tokens, ``option_logprobs`` those of the options
    of a closed question.
    """

    text: str
    raw: str
    u: float | None
    tokens: int
    reasoning_tokens: int
    finish_reason: str
    junk: bool
    logprobs: list[float]
    option_logprobs: list[float]
    truncated: Truncated


class GateRecord(TypedDict):
    """A decision whether to retrieve, and by which gate; further keys are the gate's own."""

    name: str
    retrieve: bool


class SearchRecord(TypedDict, total=False):
    """A search: its ``path`` (such as "q", by the question), its query, and what it found.

    ``ids`` are of passages, best first; ``scores`` are the index's.
    """

    path: str
    query: str
    ids: list[str]
    scores: list[float]


class SelectedRecord(TypedDict, total=False):
    """The passages that were read, in that order.

    ``candidates`` has all passages that a selector chose from, with their "id", "score" and what
    else it computed; ``scores`` are those of the selected ones; ``logprob`` is that of a random
    selection.
    """

    ids: list[str]
    scores: list[float]
    candidates: list[dict[str, Any]]
    logprob: float


class OptionRecord(TypedDict, total=False):
    """Indices of the predicted and the gold option of a closed question; None if there is none.

    ``positive`` is whether the first option is a positive class, as yes and true are; ``labels``
    are the names of the classes of a question with labels.
    """

    said: int | None
    gold: int | None
    positive: bool
    labels: list[str]


class Trace(TypedDict, total=False):
    """What a method did for a question.

    ``task`` is the kind of question (`jaxrag.data.question_kinds`), ``direct`` the answer from the
    model's own knowledge, ``pseudo_context`` a text that the model wrote to search by, ``answer``
    the answer that counts.
    """

    task: str
    direct: ReplyRecord
    pseudo_context: str
    gate: GateRecord
    searches: list[SearchRecord]
    selected: SelectedRecord
    truncated: Truncated
    answer: ReplyRecord
    option: OptionRecord
