"""Parsers of fields of the World Factbook.

Each takes a field's text and returns the accepted answers, the most common form first. They return
() where the text is not one short, certain answer: a list, a hedge ("formerly", "disputed"), a
description, or a note.
"""

from __future__ import annotations

import itertools
import re
import unicodedata

Answers = tuple[str, ...]

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_HEDGES = re.compile(
    r"\b(?:disputed|formerly|former|previous|various|none|unknown|unnamed|note|no official|see"
    r"|according|location|not|or|aka|about|approximately|ca|other|unspecified|elevation|point)\b",
    re.IGNORECASE,
)
_POWERS = {"UK": ("United Kingdom", "Britain", "Great Britain"), "US": ("United States", "USA")}
# Singular of currencies whose plural does not end in "s", or where removing it is wrong.
_SINGULARS = {
    "colones": "colon",
    "koruny": "koruna",
    "kroner": "krone",
    "kronor": "krona",
    "kronur": "krona",
    "lei": "leu",
    "leke": "lek",
    "leva": "lev",
    "maloti": "loti",
    "meticais": "metical",
    "quetzales": "quetzal",
    "zlotych": "zloty",
}


def with_variants(*names: str) -> Answers:
    """The names and their variants: without diacritics, "Saint" as "St.", without "Mount"."""
    found: dict[str, None] = {}
    for name in (" ".join(name.split()) for name in names):
        plain = unmarked(name)
        for form in (name, plain, re.sub(r"\bSaint\b", "St.", plain)):
            found.setdefault(form)
        if plain.startswith("Mount "):
            found.setdefault(plain.removeprefix("Mount "))
    return tuple(form for form in found if form)


def unmarked(text: str) -> str:
    """The text without diacritics and with straight apostrophes."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    return "".join(mark for mark in decomposed if not unicodedata.combining(mark))


_PLAIN = str.maketrans({"ø": "o", "Ø": "O", "ß": "ss", "đ": "d", "ł": "l", "ı": "i", "’": "'"})


def name(text: str) -> Answers:
    """A single proper name, with alternative names in brackets if there are any."""
    match = re.fullmatch(r"([^();,/]+?)(?:\s*\(([^()]*)\))?", text.strip())
    if match is None or _HEDGES.search(match[1]) or not match[1][0].isupper():
        return ()
    return with_variants(match[1], *_other_names(match[2] or ""))


def _other_names(bracketed: str) -> list[str]:
    parts = [part.strip() for part in re.split(r"[,/]", bracketed)]
    plain = all(re.fullmatch(r"(?:[A-Z][\w'’.-]*)(?: [A-Z][\w'’.-]*){0,3}", part) for part in parts)
    return parts if plain else []


def capital(text: str) -> Answers:
    """The capital, if there is one only."""
    return with_variants(text, "Washington") if text == "Washington, D.C." else name(text)


def point(text: str) -> Answers:
    """Name of the highest or lowest point."""
    match = re.fullmatch(r"(.+?) (?:-?[\d,.]+)(?: m)?(?: \(.*\))?(?:\.? note .*)?", text)
    found = name(match[1]) if match else ()
    # "Pic Marguerite on Mont Ngaliema": the peak alone is accepted.
    return with_variants(*found, *(form.split(" on ")[0] for form in found))


def elevation(text: str) -> Answers:
    """Elevation of the highest point, in metres."""
    match = re.fullmatch(r"[^\d;]+ ([\d,]+) m(?:\.? note .*)?", text)
    return _measure(match[1], "m", "metres", "meters") if match else ()


def area(text: str) -> Answers:
    """Area in square kilometres."""
    match = re.fullmatch(r"([\d,.]+(?: million)?) sq km", text)
    return (
        _measure(match[1], "sq km", "square kilometers", "square kilometres", "km²", "km2")
        if match
        else ()
    )


def length(text: str) -> Answers:
    """Length in kilometres, unless 0."""
    match = re.fullmatch(r"([\d,.]+) km", text)
    if match is None or match[1] == "0":
        return ()
    return _measure(match[1], "km", "kilometers", "kilometres")


def years(text: str) -> Answers:
    """Number of years."""
    match = re.fullmatch(r"([\d.]+) years(?: \(.*\))?", text)
    return _measure(match[1], "years") if match else ()


def _measure(number: str, *units: str) -> Answers:
    return (*(f"{number} {unit}" for unit in units), number)


def count(text: str) -> Answers:
    """A whole number above 0, with a comment in brackets if there is one."""
    match = re.fullmatch(r"([\d,]+)(?: \(.*\))?", text)
    return (match[1],) if match and match[1] != "0" else ()


def currency(text: str) -> Answers:
    """The currency in singular and plural, and its ISO code."""
    match = re.fullmatch(r"([^();,/]+) \(([A-Z]{3})\) per US dollar -?", text)
    if match is None or " or " in match[1]:
        return ()
    *first, last = match[1].split()
    singular = _SINGULARS.get(last, re.sub(r"(?<=[^s])s$", "", last))
    names = [" ".join([*first, singular]), match[1]]
    if match[1].startswith("Communaute Financiere Africaine") or match[2] in ("XOF", "XAF"):
        names[:0] = ["CFA franc"]
        names.append("CFA francs")
    return with_variants(*names, match[2])


def country_code(text: str) -> Answers:
    """The top-level domain, with and without its dot."""
    match = re.fullmatch(r"(\.[a-z]{2})", text)
    return (match[1], match[1][1:]) if match else ()


def aircraft_prefix(text: str) -> Answers:
    """Registration prefix of aircraft."""
    return (text,) if re.fullmatch(r"[A-Z0-9-]{1,4}", text) else ()


def date(text: str) -> Answers:
    """Date of independence, if there is one only, in both orders of day and month."""
    if not re.fullmatch(r"[^();]+(?:\(from [^();]+\))?", text):
        return ()
    dates = re.findall(rf"\b(\d{{1,2}}) ({_MONTHS}) (\d{{4}})\b", text)
    if len(dates) != 1 or not text.startswith(dates[0][0]):
        return ()
    day, month, year = dates[0]
    return (f"{day} {month} {year}", f"{month} {day}, {year}")


def independence_from(text: str) -> Answers:
    """The country from which independence was gained: "(from ...)" after a single date."""
    match = re.fullmatch(r"[^();]+\(from (?:the )?([^();,]+)\)", text)
    if match is None or re.search(r"\d|\b(?:and|trustee|trusteeship|mandate)\b", match[1]):
        return ()
    power = match[1].removesuffix(" protectorate status")
    return with_variants(power, *_POWERS.get(power, ()))


def holiday(text: str) -> Answers:
    """Day and month of the national holiday, if there is one only."""
    days = re.findall(rf"\b(\d{{1,2}}) ({_MONTHS})\b", text)
    if len(days) != 1 or ";" in text or _HEDGES.search(re.sub(r"\(.*?\)", "", text)):
        return ()
    day, month = days[0]
    return (f"{day} {month}", f"{month} {day}")


def anthem(text: str) -> Answers:
    """Title of the anthem and its translations."""
    match = re.fullmatch(r'"([^"]+?),?" ?(?:\(([^()]+)\))?', re.sub("[“”]", '"', text))
    if match is None:
        return ()
    translations = (match[2] or "").replace('"', "").split(" or ")
    return with_variants(match[1], *(title for title in translations if title))


def symbol(text: str) -> Answers:
    """The national symbol, if there is one only, of at most four words."""
    match = re.fullmatch(r"([^();,:]+?)(?: \(([^();,]+)\))?", text)
    if match is None or _HEDGES.search(text) or len(match[1].split()) > 4:
        return ()
    return with_variants(match[1].removeprefix("a "))


def colors(text: str) -> Answers:
    """Two or three national colours, in every order."""
    names = text.split(", ")
    if not 2 <= len(names) <= 3 or not all(re.fullmatch(r"[a-z]+(?: [a-z]+)?", n) for n in names):
        return ()
    orders = list(itertools.permutations(names))
    joined = [", ".join(order) for order in orders]
    return (*joined, *(f"{', '.join(order[:-1])} and {order[-1]}" for order in orders))


def largest_city(text: str) -> Answers:
    """The most populous of the listed urban areas."""
    cities = re.findall(r"(\d[\d.,]*)( million)? ([^\d,(]+?)(?: \([^)]*\))?(?=,|$| \()", text)
    sizes = [
        (float(number.replace(",", "")) * (1e6 if million else 1), city)
        for number, million, city in cities
    ]
    (size, city), *others = sorted(sizes, reverse=True) or [(0.0, "")]
    # "872,000 million" is an error of the source.
    if not 0 < size < 1e8 or (others and others[0][0] == size):
        return ()
    # Capital cities are in upper case.
    city = city.strip()
    return name(_titled(city) if city.isupper() else city)


def _titled(city: str) -> str:
    words = re.sub(r"(?:(?<=^)|(?<=[ -]))\w+", lambda word: word.group().capitalize(), city.lower())
    return re.sub(r"(?<=[ -])(?:De|Es|La|Of)\b", lambda word: word.group().lower(), words)


def official_language(text: str) -> Answers:
    """The official language, if there is one only."""
    marked = re.findall(r"(?:^|[,;] )([A-Z][^,;()%]*?)(?: [\d.]+%)? \((official)[^)]*\)", text)
    mentions = len(re.findall(r"\bofficial|\bnational language|\bstate language", text))
    if len(marked) != 1 or mentions != 1 or " and " in marked[0][0]:
        return ()
    return name(re.sub(r" only$| [\d.]+%$", "", marked[0][0]))


def government(text: str) -> Answers:
    """Type of government, in two to four lower-case words."""
    simple = re.fullmatch(r"[a-z-]+(?: [a-z-]+){1,3}", text)
    return (text,) if simple and not _HEDGES.search(text) else ()


def legislature(text: str) -> Answers:
    """Name of the legislature, in English and in the country's language."""
    both = [name(part) for part in text.split(" - ")]
    return tuple(form for forms in both for form in forms) if all(both) else ()


def province_count(text: str) -> Answers:
    """Number of provinces, if all first-order divisions are provinces."""
    match = re.match(r"(\d+) provinces(?: \([^)]*\))?; ", text)
    return (match[1],) if match and "*" not in text else ()


def citizen(text: str) -> Answers:
    """Noun for a citizen, in the singular."""
    match = re.fullmatch(r"([A-Z][\w' -]+?)(?:\(s\)|\(es\))?(?: \(singular and plural\))?", text)
    return with_variants(match[1]) if match and not _HEDGES.search(text) else ()


def first_listed(text: str) -> Answers:
    """The first of several listed goods, of at most three words; lists are by descending value."""
    first, *others = re.sub(r" \(\d{4}.*\)$", "", text).split(", ")
    if not others or ";" in text or not re.fullmatch(r"[a-z]+(?:[ -][a-z]+){0,2}", first):
        return ()
    return (first,)


def top_partner(text: str) -> Answers:
    """The trading partner with the largest share, unless two share the first place."""
    shares = re.findall(r"([A-Z][^\d,]*?) (\d+)%", text)
    if len(shares) < 2 or int(shares[0][1]) <= int(shares[1][1]):
        return ()
    return (shares[0][0],)


def only_neighbour(text: str) -> Answers:
    """The only neighbouring country."""
    match = re.fullmatch(r"([A-Z][^\d;,()]+?) [\d,.]+ km", text)
    return (match[1],) if match else ()


def longest_border(text: str) -> Answers:
    """The one of several neighbouring countries with the longest border."""
    borders = re.findall(r"(?:^|; )([A-Z][^\d;()]+?)(?: \([^)]*\))? ([\d,.]+) km", text)
    lengths = sorted((float(km.replace(",", "")), neighbour) for neighbour, km in borders)
    if len(lengths) < 2 or len(lengths) != text.count(";") + 1 or lengths[-1][0] == lengths[-2][0]:
        return ()
    return (lengths[-1][1],)


def dependency(text: str) -> Answers:
    """The state to which a territory belongs."""
    match = re.search(
        r"\b(?:of|by) (?:the )?(?:Kingdom of )?(?:the )?"
        r"(UK|US|France|Netherlands|Norway|Denmark|Australia|New Zealand)\b",
        text,
    )
    if match is None:
        return ()
    return with_variants(match[1], *_POWERS.get(match[1], ()))
