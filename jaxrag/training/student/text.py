"""Texts as a student's tokens, cut to its lengths."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from jaxrag.training.students_kinds import Pairs, Student
from jaxrag.types import InputError

_log = logging.getLogger("jaxrag")


def source_tokens(student: Student, text: str) -> list[int]:
    """All tokens of a source, as the engine reads a prompt that is plain text."""
    return student.tokenizer.encode(text)


def within(student: Student, text: str) -> str:
    """The text, or where it has more than ``max_source`` tokens, its beginning, cut at a token."""
    size, limit = len(text), student.max_source
    while size and len(tokens := source_tokens(student, text[:size])) > limit:
        ends = student.tokenizer(text[:size], return_offsets_mapping=True)["offset_mapping"]
        places = [end for _, end in ends if 0 < end < size]  # pyright: ignore
        size = places[max(len(places) - (len(tokens) - limit), 0)] if places else 0
    return text[:size]


def encode(student: Student, inputs: Sequence[str], targets: Sequence[str]) -> Pairs:
    """Sources and targets as tokens [b max_source] and [b max_target].

    An input is cut as by `within`; a target that is too long loses its end and its end token, so
    that a student does not learn to stop there. How many were cut is logged.

    Raises:
      InputError: an input or a target is empty, or is cut to nothing.
    """
    fitted = [within(student, text) for text in inputs]
    sources = [source_tokens(student, text) for text in fitted]
    wanted = [student.tokenizer.encode(text, add_special_tokens=False) for text in targets]
    for name, texts, some in (("input", fitted, sources), ("target", targets, wanted)):
        empty = [i for i, (t, part) in enumerate(zip(texts, some, strict=True)) if not (t and part)]
        if empty:
            raise InputError(
                f"{len(empty)} of {len(some)} pairs have an empty {name}, the first is number "
                f"{empty[0]}: leave them out, or raise max_source where it leaves no room."
            )
    whole = [[*tokens, student.end] for tokens in wanted]
    cut = sum(map(lambda a, b: a != b, fitted, inputs))
    short = sum(len(tokens) > student.max_target for tokens in whole)
    if cut or short:
        _log.warning(
            "of %d pairs %d sources are cut to %d tokens and %d targets to %d",
            len(whole), cut, student.max_source, short, student.max_target,
        )  # fmt: skip
    return Pairs(*_padded(sources, student.max_source), *_padded(whole, student.max_target))


def _padded(rows: Sequence[Sequence[int]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows cut and filled up with zeros, and their lengths."""
    tokens, lengths = np.zeros((len(rows), width), np.int32), np.zeros(len(rows), np.int32)
    for i, row in enumerate(rows):
        lengths[i] = length = min(len(row), width)
        tokens[i, :length] = row[:length]
    return tokens, lengths
