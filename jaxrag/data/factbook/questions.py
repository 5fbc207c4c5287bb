"""Questions about facts of the World Factbook, from templates.

Single-hop questions ask for a fact of a country (kind "capital") or, if the fact identifies the
country, for the country ("country_by_capital"). Two-hop questions ask for a fact of a country that
is described instead of named: by another fact that only it has ("two_hop_by_capital"), or by its
relation to a named country ("two_hop_via_only_neighbour").

Left out and counted: answers of more than five words, answers that occur in the question, and
descriptions that fit several countries. Fields without a single short answer give no fact (see
``answers.py``). The kinds of facts and the templates are in ``kinds.toml``.
"""

from __future__ import annotations

import collections
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxrag.core.hashing import digest_bytes
from jaxrag.data.factbook import answers
from jaxrag.data.factbook.answers import Answers, unmarked, with_variants
from jaxrag.data.factbook.articles import Article, Place
from jaxrag.text.answers import normalize

# Exact match on longer answers measures copying.
_MAX_ANSWER_WORDS = 5

# Kinds of facts that second hops ask for; a hash picks a few of them for each description.
_SECOND_HOPS = (
    "capital",
    "highest_point",
    "lowest_point",
    "longest_border",
    "official_language",
    "largest_city",
    "independence_date",
    "independence_from",
    "national_holiday",
    "national_anthem",
    "national_symbol",
    "currency",
    "top_export",
    "top_buyer",
    "internet_code",
    "aircraft_prefix",
)
_PER_DESCRIPTION = 2

# Half of the world's trade is with a handful of countries.
_PER_RELATED_FACT = 3

_THE = re.compile(
    r"(?:.*(?:Islands|Territory|Lands|Republic|Emirates|Kingdom|States|Refuges|Strip|Bank)"
    r"|(?:Democratic |Federated |)(?:Republic|States) of .*|Isle of .*|Holy See"
    r"|Bahamas|Comoros|Gambia|Maldives|Netherlands|Philippines)$"
)


class Kind(NamedTuple):
    """A kind of fact; ``kinds.toml`` describes the fields."""

    places: tuple[Place, ...]
    read: Callable[[str], Answers]
    question: str
    description: str = ""
    relation: str = ""
    excluded_by: tuple[Place, str] | None = None


def _kind(row: dict[str, Any]) -> Kind:
    row["places"] = tuple(Place(*place) for place in row["places"])
    row["read"] = getattr(answers, row["read"])
    if "excluded_by" in row:
        place, pattern = row["excluded_by"]
        row["excluded_by"] = (Place(*place), pattern)
    return Kind(**row)


_TABLE = tomllib.loads(Path(__file__).with_name("kinds.toml").read_text("utf-8"))
KINDS: Mapping[str, Kind] = {name: _kind(row) for name, row in _TABLE.items()}


class Evidence(NamedTuple):
    """A fact that a question needs: a place in a country's article that has one of ``strings``."""

    code: str
    place: Place
    strings: Answers


class DraftQuestion(NamedTuple):
    """A question whose gold passages are not yet known.

    Attributes:
      kind: the template, such as "capital" or "two_hop_by_capital".
      subject: distinguishes the questions of a kind: "fr", "fr:currency".
      text: the question.
      answers: accepted answers.
      evidence: the facts that it needs.
    """

    kind: str
    subject: str
    text: str
    answers: Answers
    evidence: tuple[Evidence, ...]

    @property
    def id(self) -> str:
        """For example "capital:fr" or "two_hop_by_capital:fr:currency"."""
        return f"{self.kind}:{self.subject}"

    @property
    def countries(self) -> frozenset[str]:
        """Codes of the countries of the evidence."""
        return frozenset(evidence.code for evidence in self.evidence)


Facts = Mapping[str, Mapping[str, Evidence]]
"""Evidence by kind and country code; its strings are the answers."""


def questions_about(
    articles: Sequence[Article],
) -> tuple[list[DraftQuestion], collections.Counter[str]]:
    """All questions about the countries, and the number left out by each rule."""
    articles = [article for article in articles if article.country]
    names = {article.code: country_names(article) for article in articles}
    facts = _facts(articles, names)
    left_out: collections.Counter[str] = collections.Counter()
    unique = {
        kind: _identifying(kind, facts[kind], articles, names, left_out)
        for kind, spec in KINDS.items()
        if spec.description
    }
    kept: list[DraftQuestion] = []
    for draft in (
        *_single_hop(facts, names),
        *_which_country(unique, names),
        *_described(unique, facts),
        *_related(facts, names, left_out),
    ):
        reason = _rejection(draft)
        left_out[reason] += 1
        if not reason:
            kept.append(draft)
    del left_out[""]
    return kept, left_out


def _facts(articles: Sequence[Article], names: Mapping[str, Answers]) -> Facts:
    """The facts of each kind; where an answer is a country, all its names are answers."""
    by_name = _codes_by_name(names)
    facts: dict[str, dict[str, Evidence]] = {}
    for kind, spec in KINDS.items():
        facts[kind] = {}
        for article in articles:
            place = next((place for place in spec.places if place in article.texts), None)
            if spec.excluded_by:
                other_place, pattern = spec.excluded_by
                if re.search(pattern, article.texts.get(other_place, "")):
                    continue
            found = spec.read(article.texts[place]) if place else ()
            if spec.relation and found:
                other = by_name.get(normalize(unmarked(found[0])))
                found = with_variants(*found, *names.get(other or "", ()))
            if place and found:
                facts[kind][article.code] = Evidence(article.code, place, found)
    return facts


def country_names(article: Article) -> Answers:
    """The country's name as in passage titles, then its other names."""
    country_name = {
        place.part: text for place, text in article.texts.items() if place.field == "Country name"
    }
    others = [country_name.get(f"conventional {form} form", "none") for form in ("short", "long")]
    others += country_name.get("abbreviation", "none").split(" or ")
    # Brackets hold comments and cities as often as names.
    forms = [re.sub(r"\s*\(.*|;.*", "", other) for other in others if not other.startswith("none")]
    return with_variants(article.name, *forms)


def contains_any(text: str, strings: Sequence[str]) -> bool:
    """Whether a text has one of the strings as whole words, regardless of case and diacritics."""
    plain = _folded(text)
    return any(
        string in plain and re.search(rf"(?<!\w){re.escape(string)}(?!\w)", plain)
        for string in map(_folded, strings)
    )


def _folded(text: str) -> str:
    return unmarked(text).casefold()


def _identifying(
    kind: str,
    facts: Mapping[str, Evidence],
    articles: Sequence[Article],
    names: Mapping[str, Answers],
    left_out: collections.Counter[str],
) -> dict[str, Evidence]:
    """The facts that identify their country without naming it."""
    texts = {
        article.code: _folded(
            " | ".join(article.texts.get(place, "") for place in KINDS[kind].places)
        )
        for article in articles
    }
    identifying = {}
    for code, fact in facts.items():
        wanted = [_folded(string) for string in fact.strings]
        # A substring test is fast, and rules out most texts.
        candidates = (
            text
            for other, text in texts.items()
            if other != code and any(string in text for string in wanted)
        )
        if contains_any(fact.strings[0], names[code]):
            left_out["description names its country"] += 1
        elif any(contains_any(text, fact.strings) for text in candidates):
            left_out["description fits several countries"] += 1
        else:
            identifying[code] = fact
    return identifying


def _single_hop(facts: Facts, names: Mapping[str, Answers]) -> Iterator[DraftQuestion]:
    for kind, spec in KINDS.items():
        for code, fact in facts[kind].items():
            text = spec.question.format(country=with_article(names[code][0]))
            yield DraftQuestion(kind, code, text, fact.strings, (fact,))


def _which_country(unique: Facts, names: Mapping[str, Answers]) -> Iterator[DraftQuestion]:
    for kind, facts in unique.items():
        for code, fact in facts.items():
            text = f"What is the name of {_description(kind, fact)}?"
            yield DraftQuestion(f"country_by_{kind}", code, text, names[code], (fact,))


def _described(unique: Facts, facts: Facts) -> Iterator[DraftQuestion]:
    for kind, described in unique.items():
        for code, fact in described.items():
            for target in _second_hops(f"{kind}:{code}", code, facts, without=kind):
                yield DraftQuestion(
                    f"two_hop_by_{kind}",
                    f"{code}:{target}",
                    KINDS[target].question.format(country=_description(kind, fact)),
                    facts[target][code].strings,
                    (fact, facts[target][code]),
                )


def _related(
    facts: Facts, names: Mapping[str, Answers], left_out: collections.Counter[str]
) -> Iterator[DraftQuestion]:
    by_name = _codes_by_name(names)
    repeats: collections.Counter[tuple[str, str, str]] = collections.Counter()
    for kind, spec in KINDS.items():
        for code, fact in facts[kind].items() if spec.relation else ():
            other = by_name.get(normalize(unmarked(fact.strings[0])))
            if other is None:
                continue
            country = f"the country {spec.relation.format(country=with_article(names[code][0]))}"
            for target in _second_hops(f"{kind}:{code}", other, facts, without=kind):
                repeats[kind, other, target] += 1
                if repeats[kind, other, target] > _PER_RELATED_FACT:
                    left_out["fact has enough questions"] += 1
                    continue
                yield DraftQuestion(
                    f"two_hop_via_{kind}",
                    f"{code}:{target}",
                    KINDS[target].question.format(country=country),
                    facts[target][other].strings,
                    (fact, facts[target][other]),
                )


def _second_hops(seed: str, code: str, facts: Facts, *, without: str) -> list[str]:
    """Up to ``_PER_DESCRIPTION`` kinds of facts of a country, pseudo-random by ``seed``."""
    possible = [kind for kind in _SECOND_HOPS if kind != without and code in facts[kind]]
    possible.sort(key=lambda kind: digest_bytes(f"{seed}:{kind}".encode()))
    return possible[:_PER_DESCRIPTION]


def _description(kind: str, fact: Evidence) -> str:
    return f"the country {KINDS[kind].description.format(value=fact.strings[0])}"


def with_article(name: str) -> str:
    """A country's name as in a sentence: "the Netherlands", "Chad"."""
    bare = name.removeprefix("The ")
    return f"the {bare}" if bare != name or _THE.match(bare) else name


def _codes_by_name(names: Mapping[str, Answers]) -> dict[str, str]:
    """Country codes by normalised name, without names that several countries share."""
    owners: dict[str, set[str]] = {}
    for code, forms in names.items():
        for form in forms:
            owners.setdefault(normalize(unmarked(form)), set()).add(code)
    return {name: min(codes) for name, codes in owners.items() if len(codes) == 1}


def _rejection(draft: DraftQuestion) -> str:
    """Why a question is left out; "" if it is not."""
    if len(draft.answers[0].split()) > _MAX_ANSWER_WORDS:
        return f"answer longer than {_MAX_ANSWER_WORDS} words"
    if contains_any(draft.text, draft.answers):
        return "answer occurs in the question"
    return ""
