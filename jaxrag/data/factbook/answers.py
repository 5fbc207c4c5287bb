"""Reading answers out of the World Factbook's fields.

Each reader takes a field's text and gives the accepted answers, the best-known form first, or
nothing where the text does not hold one short, certain answer. Leaving out is the rule:
a list where one thing is asked, a hedge ("formerly", "disputed"), a description, a note.
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
# Plurals of currencies that dropping an "s" does not undo.
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
    """The names and their spellings without marks, with "St." and without "Mount"."""
    found: dict[str, None] = {}
    for name in (" ".join(name.split()) for name in names):
        plain = unmarked(name)
        for form in (name, plain, re.sub(r"\bSaint\b", "St.", plain)):
            found.setdefault(form)
        if plain.startswith("Mount "):
            found.setdefault(plain.removeprefix("Mount "))
    return tuple(form for form in found if form)


def unmarked(text: str) -> str:
    """The text in letters without diacritics and with straight quotes."""
    if text.isascii():
        return text
    decomposed = unicodedata.normalize("NFKD", text.translate(_PLAIN))
    return "".join(mark for mark in decomposed if not unicodedata.combining(mark))


_PLAIN = str.maketrans({"ø": "o", "Ø": "O", "ß": "ss", "đ": "d", "ł": "l", "ı": "i", "’": "'"})


def name(text: str) -> Answers:
    """One proper name, perhaps with other names of the same thing in brackets after it."""
    match = re.fullmatch(r"([^();,/]+?)(?:\s*\(([^()]*)\))?", text.strip())
    if match is None or _HEDGES.search(match[1]) or not match[1][0].isupper():
        return ()
    return with_variants(match[1], *_other_names(match[2] or ""))


def _other_names(bracketed: str) -> list[str]:
    parts = [part.strip() for part in re.split(r"[,/]", bracketed)]
    plain = all(re.fullmatch(r"(?:[A-Z][\w'’.-]*)(?: [A-Z][\w'’.-]*){0,3}", part) for part in parts)
    return parts if plain else []


def capital(text: str) -> Answers:
    """The only capital."""
    return with_variants(text, "Washington") if text == "Washington, D.C." else name(text)


def point(text: str) -> Answers:
    """The name of a highest or lowest point, without its elevation."""
    match = re.fullmatch(r"(.+?) (?:-?[\d,.]+)(?: m)?(?: \(.*\))?(?:\.? note .*)?", text)
    found = name(match[1]) if match else ()
    # "Pic Marguerite on Mont Ngaliema": the peak alone will do.
    return with_variants(*found, *(form.split(" on ")[0] for form in found))


def elevation(text: str) -> Answers:
    """The elevation of a highest point in metres."""
    match = re.fullmatch(r"[^\d;]+ ([\d,]+) m(?:\.? note .*)?", text)
    return _measure(match[1], "m", "metres", "meters") if match else ()


def area(text: str) -> Answers:
    """Square kilometres."""
    match = re.fullmatch(r"([\d,.]+(?: million)?) sq km", text)
    return (
        _measure(match[1], "sq km", "square kilometers", "square kilometres", "km²", "km2")
        if match
        else ()
    )


def length(text: str) -> Answers:
    """Kilometres, where there are any."""
    match = re.fullmatch(r"([\d,.]+) km", text)
    if match is None or match[1] == "0":
        return ()
    return _measure(match[1], "km", "kilometers", "kilometres")


def years(text: str) -> Answers:
    """A number of years, an estimate of some year."""
    match = re.fullmatch(r"([\d.]+) years(?: \(.*\))?", text)
    return _measure(match[1], "years") if match else ()


def _measure(number: str, *units: str) -> Answers:
    return (*(f"{number} {unit}" for unit in units), number)


def count(text: str) -> Answers:
    """A whole number that the text begins with."""
    match = re.fullmatch(r"([\d,]+)(?: \(.*\))?", text)
    return (match[1],) if match and match[1] != "0" else ()


def currency(text: str) -> Answers:
    """A currency in the singular, in the plural of the text, and its ISO code."""
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
    """A top-level domain, with its dot and without."""
    match = re.fullmatch(r"(\.[a-z]{2})", text)
    return (match[1], match[1][1:]) if match else ()


def aircraft_prefix(text: str) -> Answers:
    """The letters and digits that mark a country's aircraft."""
    return (text,) if re.fullmatch(r"[A-Z0-9-]{1,4}", text) else ()


def date(text: str) -> Answers:
    """The only date of an independence, in both orders; not of a union or a constitution."""
    if not re.fullmatch(r"[^();]+(?:\(from [^();]+\))?", text):
        return ()
    dates = re.findall(rf"\b(\d{{1,2}}) ({_MONTHS}) (\d{{4}})\b", text)
    if len(dates) != 1 or not text.startswith(dates[0][0]):
        return ()
    day, month, year = dates[0]
    return (f"{day} {month} {year}", f"{month} {day}, {year}")


def independence_from(text: str) -> Answers:
    """The power that a country's only independence date names in "(from ...)"."""
    match = re.fullmatch(r"[^();]+\(from (?:the )?([^();,]+)\)", text)
    if match is None or re.search(r"\d|\b(?:and|trustee|trusteeship|mandate)\b", match[1]):
        return ()
    power = match[1].removesuffix(" protectorate status")
    return with_variants(power, *_POWERS.get(power, ()))


def holiday(text: str) -> Answers:
    """The day and month of the only national holiday."""
    days = re.findall(rf"\b(\d{{1,2}}) ({_MONTHS})\b", text)
    if len(days) != 1 or ";" in text or _HEDGES.search(re.sub(r"\(.*?\)", "", text)):
        return ()
    day, month = days[0]
    return (f"{day} {month}", f"{month} {day}")


def anthem(text: str) -> Answers:
    """The title of the only anthem, and its translation."""
    match = re.fullmatch(r'"([^"]+?),?" ?(?:\(([^()]+)\))?', re.sub("[“”]", '"', text))
    if match is None:
        return ()
    translations = (match[2] or "").replace('"', "").split(" or ")
    return with_variants(match[1], *(title for title in translations if title))


def symbol(text: str) -> Answers:
    """The only national symbol, in at most four words."""
    match = re.fullmatch(r"([^();,:]+?)(?: \(([^();,]+)\))?", text)
    if match is None or _HEDGES.search(text) or len(match[1].split()) > 4:
        return ()
    return with_variants(match[1].removeprefix("a "))


def colors(text: str) -> Answers:
    """Two or three national colours in any order."""
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
    # "872,000 million" is a slip of the source.
    if not 0 < size < 1e8 or (others and others[0][0] == size):
        return ()
    # The capital is written in capitals.
    city = city.strip()
    return name(_titled(city) if city.isupper() else city)


def _titled(city: str) -> str:
    words = re.sub(r"(?:(?<=^)|(?<=[ -]))\w+", lambda word: word.group().capitalize(), city.lower())
    return re.sub(r"(?<=[ -])(?:De|Es|La|Of)\b", lambda word: word.group().lower(), words)


def official_language(text: str) -> Answers:
    """The only language marked as official."""
    marked = re.findall(r"(?:^|[,;] )([A-Z][^,;()%]*?)(?: [\d.]+%)? \((official)[^)]*\)", text)
    mentions = len(re.findall(r"\bofficial|\bnational language|\bstate language", text))
    if len(marked) != 1 or mentions != 1 or " and " in marked[0][0]:
        return ()
    return name(re.sub(r" only$| [\d.]+%$", "", marked[0][0]))


def government(text: str) -> Answers:
    """A type of government in a few words."""
    simple = re.fullmatch(r"[a-z-]+(?: [a-z-]+){1,3}", text)
    return (text,) if simple and not _HEDGES.search(text) else ()


def legislature(text: str) -> Answers:
    """The legislature's name, and its name in the country's language."""
    both = [name(part) for part in text.split(" - ")]
    return tuple(form for forms in both for form in forms) if all(both) else ()


def province_count(text: str) -> Answers:
    """How many provinces there are, where all first-order divisions are provinces."""
    match = re.match(r"(\d+) provinces(?: \([^)]*\))?; ", text)
    return (match[1],) if match and "*" not in text else ()


def citizen(text: str) -> Answers:
    """What one citizen is called."""
    match = re.fullmatch(r"([A-Z][\w' -]+?)(?:\(s\)|\(es\))?(?: \(singular and plural\))?", text)
    return with_variants(match[1]) if match and not _HEDGES.search(text) else ()


def first_listed(text: str) -> Answers:
    """The first of several goods, listed from the most on, in at most three words."""
    first, *others = re.sub(r" \(\d{4}.*\)$", "", text).split(", ")
    if not others or ";" in text or not re.fullmatch(r"[a-z]+(?:[ -][a-z]+){0,2}", first):
        return ()
    return (first,)


def top_partner(text: str) -> Answers:
    """The trading partner with the largest share, if it is ahead of the second."""
    shares = re.findall(r"([A-Z][^\d,]*?) (\d+)%", text)
    if len(shares) < 2 or int(shares[0][1]) <= int(shares[1][1]):
        return ()
    return (shares[0][0],)


def only_neighbour(text: str) -> Answers:
    """The neighbour of a country that has exactly one."""
    match = re.fullmatch(r"([A-Z][^\d;,()]+?) [\d,.]+ km", text)
    return (match[1],) if match else ()


def longest_border(text: str) -> Answers:
    """Of several neighbours the one with the longest border."""
    borders = re.findall(r"(?:^|; )([A-Z][^\d;()]+?)(?: \([^)]*\))? ([\d,.]+) km", text)
    lengths = sorted((float(km.replace(",", "")), neighbour) for neighbour, km in borders)
    if len(lengths) < 2 or len(lengths) != text.count(";") + 1 or lengths[-1][0] == lengths[-2][0]:
        return ()
    return (lengths[-1][1],)


def dependency(text: str) -> Answers:
    """The state that a territory belongs to."""
    match = re.search(
        r"\b(?:of|by) (?:the )?(?:Kingdom of )?(?:the )?"
        r"(UK|US|France|Netherlands|Norway|Denmark|Australia|New Zealand)\b",
        text,
    )
    if match is None:
        return ()
    return with_variants(match[1], *_POWERS.get(match[1], ()))
