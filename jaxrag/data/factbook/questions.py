"""Questions about the World Factbook's facts, by templates.

Single-hop questions ask for a fact of a country (kind "capital") or, where only one country has
it, for the country ("country_by_capital"). Two-hop questions ask for a fact of a country that is
not named but described: by another fact that only it has ("two_hop_by_capital"), or by what it
is to a country that is named ("two_hop_via_only_neighbour").

Left out by rule, and counted: answers of more than five words, answers that stand in the
question, and descriptions that fit several countries. Fields that hold no single short answer
never become facts (``factbook_answers``).
"""

from __future__ import annotations

import collections
import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from jaxrag.data.factbook_answers import Answers, unmarked, with_variants
from jaxrag.data.factbook_articles import Article, Place
from jaxrag.data.factbook_kinds import KINDS
from jaxrag.functional.answers import normalize

MAX_ANSWER_WORDS = 5
"""Exact match on longer answers measures copying."""

# What the second hop asks for; of those that a description can ask, a hash picks a few.
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


class Evidence(NamedTuple):
    """What a question rests on: in a country's article, a place that holds one of the strings."""

    code: str
    place: Place
    strings: Answers


class Template(NamedTuple):
    """A question before its gold passages are looked up; ``kind`` names the template."""

    kind: str
    about: str
    text: str
    answers: Answers
    evidence: tuple[Evidence, ...]

    @property
    def id(self) -> str:
        """Kind and what it is about: "capital:fr", "two_hop_by_capital:fr:currency"."""
        return f"{self.kind}:{self.about}"

    @property
    def codes(self) -> frozenset[str]:
        """The countries whose articles it rests on."""
        return frozenset(evidence.code for evidence in self.evidence)


Facts = Mapping[str, Mapping[str, Evidence]]
"""By kind and country code; the evidence's strings are the answers."""


def questions_about(articles: Sequence[Article]) -> tuple[list[Template], collections.Counter[str]]:
    """Every question that the rules allow, and how many each rule left out."""
    articles = [article for article in articles if article.country]
    names = {article.code: names_of(article) for article in articles}
    facts = facts_of(articles, names)
    left_out: collections.Counter[str] = collections.Counter()
    unique = {
        kind: _telling(kind, facts[kind], articles, names, left_out)
        for kind, of in KINDS.items()
        if of.described
    }
    kept: list[Template] = []
    for template in (
        *_single_hop(facts, names),
        *_which_country(unique, names),
        *_described(unique, facts),
        *_related(facts, names, left_out),
    ):
        reason = _objection(template)
        left_out[reason] += 1
        if not reason:
            kept.append(template)
    del left_out[""]
    return kept, left_out


def facts_of(articles: Sequence[Article], names: Mapping[str, Answers]) -> Facts:
    """What the readers find in the articles; countries that it names get all their names."""
    by_name = _codes_by_name(names)
    facts: dict[str, dict[str, Evidence]] = {}
    for kind, of in KINDS.items():
        facts[kind] = {}
        for article in articles:
            place = next((place for place in of.places if place in article.texts), None)
            doubtful = of.unless and re.search(of.unless[1], article.texts.get(of.unless[0], ""))
            answers = of.read(article.texts[place]) if place and not doubtful else ()
            if of.related and answers:
                # The text says "USA": every name of that country counts.
                other = by_name.get(normalize(unmarked(answers[0])))
                answers = with_variants(*answers, *names.get(other or "", ()))
            if place and answers:
                facts[kind][article.code] = Evidence(article.code, place, answers)
    return facts


def names_of(article: Article) -> Answers:
    """The country's name as titles use it, then its other names."""
    country_name = {
        place.part: text for place, text in article.texts.items() if place.field == "Country name"
    }
    others = [country_name.get(f"conventional {form} form", "none") for form in ("short", "long")]
    others += country_name.get("abbreviation", "none").split(" or ")
    # What stands in brackets is a comment or a city as often as a name.
    forms = [re.sub(r"\s*\(.*|;.*", "", other) for other in others if not other.startswith("none")]
    return with_variants(article.name, *forms)


def holds(text: str, strings: Sequence[str]) -> bool:
    """Whether the text has one of the strings as whole words, whatever the case and marks."""
    plain = _folded(text)
    return any(
        string in plain and re.search(rf"(?<!\w){re.escape(string)}(?!\w)", plain)
        for string in map(_folded, strings)
    )


def _folded(text: str) -> str:
    return unmarked(text).casefold()


def _telling(
    kind: str,
    facts: Mapping[str, Evidence],
    articles: Sequence[Article],
    names: Mapping[str, Answers],
    left_out: collections.Counter[str],
) -> dict[str, Evidence]:
    """The facts that single out their country without naming it."""
    texts = {
        article.code: _folded(" | ".join(article.texts.get(at, "") for at in KINDS[kind].places))
        for article in articles
    }
    telling = {}
    for code, fact in facts.items():
        wanted = [_folded(string) for string in fact.strings]
        # Most texts hold none of the letters; only then is it worth to look for whole words.
        likely = (
            text
            for other, text in texts.items()
            if other != code and any(string in text for string in wanted)
        )
        if holds(fact.strings[0], names[code]):
            left_out["description names its country"] += 1
        elif any(holds(text, fact.strings) for text in likely):
            left_out["description fits several countries"] += 1
        else:
            telling[code] = fact
    return telling


def _single_hop(facts: Facts, names: Mapping[str, Answers]) -> Iterator[Template]:
    for kind, of in KINDS.items():
        for code, fact in facts[kind].items():
            text = of.ask.format(country=the(names[code][0]))
            yield Template(kind, code, text, fact.strings, (fact,))


def _which_country(unique: Facts, names: Mapping[str, Answers]) -> Iterator[Template]:
    for kind, facts in unique.items():
        for code, fact in facts.items():
            text = f"What is the name of {_description(kind, fact)}?"
            yield Template(f"country_by_{kind}", code, text, names[code], (fact,))


def _described(unique: Facts, facts: Facts) -> Iterator[Template]:
    for kind, described in unique.items():
        for code, fact in described.items():
            for target in _second_hops(f"{kind}:{code}", code, facts, without=kind):
                yield Template(
                    f"two_hop_by_{kind}",
                    f"{code}:{target}",
                    KINDS[target].ask.format(country=_description(kind, fact)),
                    facts[target][code].strings,
                    (fact, facts[target][code]),
                )


def _related(
    facts: Facts, names: Mapping[str, Answers], left_out: collections.Counter[str]
) -> Iterator[Template]:
    by_name = _codes_by_name(names)
    asked: collections.Counter[tuple[str, str, str]] = collections.Counter()
    for kind, of in KINDS.items():
        for code, fact in facts[kind].items() if of.related else ():
            other = by_name.get(normalize(unmarked(fact.strings[0])))
            if other is None:
                continue
            country = f"the country {of.related.format(country=the(names[code][0]))}"
            for target in _second_hops(f"{kind}:{code}", other, facts, without=kind):
                asked[kind, other, target] += 1
                if asked[kind, other, target] > _PER_RELATED_FACT:
                    left_out["fact is asked for often enough"] += 1
                    continue
                yield Template(
                    f"two_hop_via_{kind}",
                    f"{code}:{target}",
                    KINDS[target].ask.format(country=country),
                    facts[target][other].strings,
                    (fact, facts[target][other]),
                )


def _second_hops(seed: str, code: str, facts: Facts, *, without: str) -> list[str]:
    """The few kinds, by hash, that this description asks about."""
    possible = [kind for kind in _SECOND_HOPS if kind != without and code in facts[kind]]
    possible.sort(key=lambda kind: hashlib.sha256(f"{seed}:{kind}".encode()).digest())
    return possible[:_PER_DESCRIPTION]


def _description(kind: str, fact: Evidence) -> str:
    return f"the country {KINDS[kind].described.format(value=fact.strings[0])}"


def the(name: str) -> str:
    """A country's name as it stands in a sentence: "the Netherlands"."""
    bare = name.removeprefix("The ")
    return f"the {bare}" if bare != name or _THE.match(bare) else name


def _codes_by_name(names: Mapping[str, Answers]) -> dict[str, str]:
    """Country codes by normalised name, where a name is one country's."""
    owners: dict[str, set[str]] = {}
    for code, forms in names.items():
        for form in forms:
            owners.setdefault(normalize(unmarked(form)), set()).add(code)
    return {name: min(codes) for name, codes in owners.items() if len(codes) == 1}


def _objection(template: Template) -> str:
    if len(template.answers[0].split()) > MAX_ANSWER_WORDS:
        return f"answer longer than {MAX_ANSWER_WORDS} words"
    if holds(template.text, template.answers):
        return "answer stands in the question"
    return ""
