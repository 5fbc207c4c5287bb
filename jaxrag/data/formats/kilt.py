"""KILT's JSONL: ``id``, ``input`` and ``output``, a list of answers with their provenance.

Source: Petroni et al., KILT, NAACL 2021, https://github.com/facebookresearch/KILT.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from jaxrag.core.jsonl_input import read_input, well_named
from jaxrag.data.dataset import GoldPassage, SetRow
from jaxrag.types import Question

PAGES = "kilt_wikipedia"
"""Name of the corpus of KILT's gold passages: pages of its Wikipedia, by ``wikipedia_id``."""


def read_kilt(path: Path) -> Iterator[SetRow]:
    """The questions of a file, in order, with all answers of all outputs.

    Gold passages are the pages of the outputs' provenance, of the corpus `PAGES`.

    Raises:
      InputError: a line is not such an object, or has no answer, as in KILT's test files.
    """
    for line in read_input(path):
        outputs = [*well_named(line.records("output"), "answer")]
        answers = [output.string("answer", optional=True) for output in outputs]
        kept = [answer for answer in answers if answer.strip()]
        if not kept:
            raise line.error("output", "has no 'answer'; KILT's test files are published without")
        kept = line._replace(fields={"output": kept}).answers("output")
        question = Question(line.identifier("id"), line.string("input"), kept)
        sources = [one for out in outputs for one in out.records("provenance", optional=True)]
        pages = (GoldPassage(one.identifier("wikipedia_id"), PAGES) for one in sources)
        yield SetRow(question, tuple(dict.fromkeys(pages)))
