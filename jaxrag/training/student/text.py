"""Texts as token ids of a student, cut to its maximum lengths."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from jaxrag.training.student.kinds import Student, TokenPairs
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")


def source_tokens(student: Student, text: str) -> list[int]:
    """All tokens of a source, tokenised as the engine tokenises a plain-text prompt."""
    return student.tokenizer.encode(text)


def truncate(student: Student, text: str) -> str:
    """The text, cut at a token boundary to at most ``max_source`` tokens."""
    size, limit = len(text), student.max_source
    while size and len(tokens := source_tokens(student, text[:size])) > limit:
        ends = student.tokenizer(text[:size], return_offsets_mapping=True)["offset_mapping"]
        cuts = [end for _, end in ends if 0 < end < size]  # pyright: ignore
        size = cuts[max(len(cuts) - (len(tokens) - limit), 0)] if cuts else 0
    return text[:size]


def encode(student: Student, inputs: Sequence[str], targets: Sequence[str]) -> TokenPairs:
    """Sources and targets as token ids [b max_source] and [b max_target].

    Inputs are cut by `truncate`. A target that is too long is cut and gets no end token, so that a
    student does not learn to stop there. The log says how many were cut.

    Raises:
      InputError: an input or a target is empty, or empty after the cut.
    """
    shortened = [truncate(student, text) for text in inputs]
    sources = [source_tokens(student, text) for text in shortened]
    wanted = [student.tokenizer.encode(text, add_special_tokens=False) for text in targets]
    for name, texts, some in (("input", shortened, sources), ("target", targets, wanted)):
        empty = [i for i, (t, part) in enumerate(zip(texts, some, strict=True)) if not (t and part)]
        if empty:
            raise InputError(
                f"{len(empty)} of {len(some)} pairs have an empty {name}, the first is number "
                f"{empty[0]}: remove them, or raise max_source if it leaves no room."
            )
    whole = [[*tokens, student.end] for tokens in wanted]
    cut = sum(map(lambda a, b: a != b, shortened, inputs))
    short = sum(len(tokens) > student.max_target for tokens in whole)
    if cut or short:
        _log.warning(
            "of %d pairs %d sources are cut to %d tokens and %d targets to %d",
            len(whole), cut, student.max_source, short, student.max_target,
        )  # fmt: skip
    return TokenPairs(*_padded(sources, student.max_source), *_padded(whole, student.max_target))


def _padded(rows: Sequence[Sequence[int]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows cut to ``width`` and padded with zeros, and their lengths."""
    tokens, lengths = np.zeros((len(rows), width), np.int32), np.zeros(len(rows), np.int32)
    for i, row in enumerate(rows):
        lengths[i] = length = min(len(row), width)
        tokens[i, :length] = row[:length]
    return tokens, lengths
