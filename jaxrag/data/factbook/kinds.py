"""Table of the kinds of facts that questions ask for."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

from jaxrag.data.factbook import answers as read
from jaxrag.data.factbook.articles import Place


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of fact: where articles have it, how it is read, and the texts of questions.

    Attributes:
      places: alternatives; the first that an article has is read.
      read: parses the text of the place into accepted answers.
      question: template with ``{country}``.
      description: template with ``{value}`` that describes the country which has the fact.
      relation: template with ``{country}`` that describes the country which is the answer.
      excluded_by: a place and a pattern; where the pattern matches, there is no such fact.
    """

    places: tuple[Place, ...]
    read: Callable[[str], read.Answers]
    question: str
    description: str = ""
    relation: str = ""
    excluded_by: tuple[Place, str] | None = None


def _in(section: str, field: str, *parts: str) -> tuple[Place, ...]:
    return tuple(Place(section, field, part) for part in parts or ("",))


KINDS: Mapping[str, Kind] = {
    "capital": Kind(
        _in("Government", "Capital", "name"),
        read.capital,
        "What is the capital of {country}?",
        description="whose capital is {value}",
    ),
    "highest_point": Kind(
        _in("Geography", "Elevation", "highest point"),
        read.point,
        "What is the highest point of {country}?",
        description="whose highest point is {value}",
    ),
    "highest_elevation": Kind(
        _in("Geography", "Elevation", "highest point"),
        read.elevation,
        "What is the elevation of the highest point of {country}, in metres?",
    ),
    "lowest_point": Kind(
        _in("Geography", "Elevation", "lowest point"),
        read.point,
        "What is the lowest point of {country}?",
    ),
    "area": Kind(
        _in("Geography", "Area", "total"),
        read.area,
        "What is the total area of {country}, in square kilometers?",
    ),
    "coastline": Kind(
        _in("Geography", "Coastline"),
        read.length,
        "How long is the coastline of {country}, in kilometers?",
    ),
    "only_neighbour": Kind(
        _in("Geography", "Land boundaries", "border countries"),
        read.only_neighbour,
        "Which is the only country that shares a land border with {country}?",
        relation="that is the only land neighbour of {country}",
    ),
    "longest_border": Kind(
        _in("Geography", "Land boundaries", "border countries"),
        read.longest_border,
        "With which country does {country} share its longest land border?",
        relation="that shares the longest land border with {country}",
    ),
    "citizen": Kind(
        _in("People and Society", "Nationality", "noun"),
        read.citizen,
        "What is a citizen of {country} called?",
    ),
    "official_language": Kind(
        _in("People and Society", "Languages", "Languages", ""),
        read.official_language,
        "What is the official language of {country}?",
    ),
    "largest_city": Kind(
        _in("People and Society", "Major urban areas - population"),
        read.largest_city,
        "What is the most populous urban area of {country}?",
    ),
    "median_age": Kind(
        _in("People and Society", "Median age", "total"),
        read.years,
        "What is the median age of the population of {country}, in years?",
    ),
    "official_name": Kind(
        _in("Government", "Country name", "conventional long form"),
        read.name,
        "What is the conventional long form of the name of {country}?",
    ),
    "local_name": Kind(
        _in("Government", "Country name", "local short form"),
        read.name,
        "What is the local short form of the name of {country}?",
        description="whose local short name is {value}",
    ),
    "former_name": Kind(
        _in("Government", "Country name", "former"),
        read.name,
        "What is the former name of {country}?",
        description='formerly called "{value}"',
    ),
    "government_type": Kind(
        _in("Government", "Government type"),
        read.government,
        "What type of government does {country} have?",
    ),
    "province_count": Kind(
        _in("Government", "Administrative divisions"),
        read.province_count,
        "How many provinces does {country} have?",
    ),
    "independence_date": Kind(
        _in("Government", "Independence"),
        read.date,
        "On what date did {country} become independent?",
    ),
    "independence_from": Kind(
        _in("Government", "Independence"),
        read.independence_from,
        "From which country did {country} gain independence?",
    ),
    "national_holiday": Kind(
        _in("Government", "National holiday"),
        read.holiday,
        "On what day of the year is the national holiday of {country}?",
    ),
    "national_anthem": Kind(
        _in("Government", "National anthem(s)", "title"),
        read.anthem,
        "What is the title of the national anthem of {country}?",
        description='whose national anthem is "{value}"',
        # Some have a royal anthem beside the national one, and the package has only one of them.
        excluded_by=(
            Place("Government", "National anthem(s)", "history"),
            r"royal|official anthem, as",
        ),
    ),
    "national_symbol": Kind(
        _in("Government", "National symbol(s)"),
        read.symbol,
        "What is the national symbol of {country}?",
        description='with the national symbol "{value}"',
    ),
    "national_colors": Kind(
        _in("Government", "National color(s)"),
        read.colors,
        "What are the national colors of {country}?",
    ),
    "legislature": Kind(
        _in("Government", "Legislative branch", "legislature name"),
        read.legislature,
        "What is the name of the legislature of {country}?",
    ),
    "seats": Kind(
        _in("Government", "Legislative branch", "number of seats"),
        read.count,
        "How many seats does the legislature of {country} have?",
    ),
    "lower_chamber_seats": Kind(
        _in("Government", "Legislative branch - lower chamber", "number of seats"),
        read.count,
        "How many seats does the lower chamber of the legislature of {country} have?",
    ),
    "world_heritage_sites": Kind(
        _in("Government", "National heritage", "total World Heritage Sites"),
        read.count,
        "How many World Heritage Sites does {country} have?",
    ),
    "dependency": Kind(
        _in("Government", "Dependency status"),
        read.dependency,
        "To which country does the territory of {country} belong?",
    ),
    "currency": Kind(
        _in("Economy", "Exchange rates", "Currency"),
        read.currency,
        "What is the currency of {country}?",
        description="whose currency is the {value}",
    ),
    "top_export": Kind(
        _in("Economy", "Exports - commodities"),
        read.first_listed,
        "What is the top export commodity of {country}?",
    ),
    "top_farm_product": Kind(
        _in("Economy", "Agricultural products"),
        read.first_listed,
        "What is the top agricultural product of {country}?",
    ),
    "top_buyer": Kind(
        _in("Economy", "Exports - partners"),
        read.top_partner,
        "Which country is the top export partner of {country}?",
        relation="that is the top export partner of {country}",
    ),
    "top_supplier": Kind(
        _in("Economy", "Imports - partners"),
        read.top_partner,
        "Which country is the top import partner of {country}?",
        relation="that is the top import partner of {country}",
    ),
    "internet_code": Kind(
        _in("Communications", "Internet country code"),
        read.country_code,
        "What is the internet country code of {country}?",
        description="with the internet country code {value}",
    ),
    "airports": Kind(
        _in("Transportation", "Airports"),
        read.count,
        "How many airports does {country} have?",
    ),
    "aircraft_prefix": Kind(
        _in("Transportation", "Civil aircraft registration country code prefix"),
        read.aircraft_prefix,
        "What is the civil aircraft registration prefix of {country}?",
        description="with the civil aircraft registration prefix {value}",
    ),
}
