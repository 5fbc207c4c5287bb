"""Parsers of Factbook fields: texts with an answer, and texts that are left out."""

from __future__ import annotations

import pytest

from jaxrag.data.factbook import answers as read

READ = [
    (read.capital, "Asunción", ("Asunción", "Asuncion")),
    (read.capital, "Tripoli (Tarabulus)", ("Tripoli", "Tarabulus")),
    (read.capital, "Suva (on Viti Levu)", ("Suva",)),
    (read.capital, "Washington, D.C.", ("Washington, D.C.", "Washington")),
    (read.capital, "Saint John's", ("Saint John's", "St. John's")),
    (read.point, "Mount Sage 521 m", ("Mount Sage", "Sage")),
    (read.point, "Laguna Salada -10 m", ("Laguna Salada",)),
    (read.point, "Chimborazo 6,267", ("Chimborazo",)),
    (read.point, "Konigstein on Brandberg 2,573 m", ("Konigstein on Brandberg", "Konigstein")),
    (read.point, "Pik Khan-Tengri 7,010 m. note - a peak", ("Pik Khan-Tengri",)),
    (read.elevation, "Moussa Ali 2,021 m", ("2,021 m", "2,021 metres", "2,021 meters", "2,021")),
    (read.currency, "euros (EUR) per US dollar -", ("euro", "euros", "EUR")),
    (
        read.currency,
        "Danish kroner (DKK) per US dollar -",
        ("Danish krone", "Danish kroner", "DKK"),
    ),
    (read.currency, "tenge (KZT) per US dollar -", ("tenge", "KZT")),
    (read.country_code, ".fr", (".fr", "fr")),
    (read.aircraft_prefix, "VP-F", ("VP-F",)),
    (read.date, "26 July 1847", ("26 July 1847", "July 26, 1847")),
    (read.date, "5 July 1962 (from France)", ("5 July 1962", "July 5, 1962")),
    (read.independence_from, "5 July 1962 (from France)", ("France",)),
    (
        read.independence_from,
        "4 June 1970 (from UK protectorate status)",
        ("UK", "United Kingdom", "Britain", "Great Britain"),
    ),
    (read.holiday, "Independence Day, 5 July (1975)", ("5 July", "July 5")),
    (read.anthem, '"Humat Al Hima" (Defenders)', ("Humat Al Hima", "Defenders")),
    (read.anthem, "“Mila Rodino” (Dear Homeland)", ("Mila Rodino", "Dear Homeland")),
    (read.symbol, "vicuna (a camelid)", ("vicuna",)),
    (read.symbol, "a 24-rayed star", ("24-rayed star",)),
    (read.colors, "red, white", ("red, white", "white, red", "red and white", "white and red")),
    (
        read.largest_city,
        "231,000 YAMOUSSOUKRO (capital) (2018), 5.686 million ABIDJAN (seat) (2023)",
        ("Abidjan",),
    ),
    (
        read.largest_city,
        "7.776 million DAR ES SALAAM (capital), 1.3 million Mwanza (2023)",
        ("Dar es Salaam",),
    ),
    (read.official_language, "Estonian (official) 67.2%, Russian 28.5%", ("Estonian",)),
    (read.official_language, "English only (official) 78%, Spanish 13%", ("English",)),
    (read.government, "federal presidential republic", ("federal presidential republic",)),
    (read.legislature, "Parliament (Barlaman)", ("Parliament", "Barlaman")),
    (read.legislature, "Parlement - Parliament", ("Parlement", "Parliament")),
    (read.province_count, "58 provinces (wilayas, singular - wilaya); Adrar, Oran", ("58",)),
    (read.citizen, "Norwegian(s)", ("Norwegian",)),
    (read.first_listed, "crude petroleum, gold, fish (2023)", ("crude petroleum",)),
    (read.top_partner, "USA 28%, Germany 11% (2023)", ("USA",)),
    (read.only_neighbour, "Spain 1,224 km", ("Spain",)),
    (read.longest_border, "Finland 545 km; Norway 1,666 km", ("Norway",)),
    (read.longest_border, "US 8,891 km (with Alaska); Denmark (Greenland) 1.3 km", ("US",)),
    (read.dependency, "overseas collectivity of France", ("France",)),
    (read.count, "54 (46 cultural, 8 natural)", ("54",)),
    (read.years, "40.5 years (2025 est.)", ("40.5 years", "40.5")),
    (read.area, "1.2 million sq km", ("1.2 million sq km", "1.2 million square kilometers")),
    (read.length, "853 km", ("853 km", "853 kilometers")),
]


@pytest.mark.parametrize(("reader", "text", "answers"), READ)
def test_answers(reader, text, answers):
    assert reader(text)[: len(answers)] == answers
    assert len(set(reader(text))) == len(reader(text))


LEFT_OUT = [
    (read.capital, "Pretoria (administrative capital); Cape Town (legislative capital)"),
    (read.capital, "no official capital; offices in Yaren"),
    (read.point, "unnamed elevation 675 m"),
    (read.point, "Indian/Pacific Oceans 0 m"),
    (read.point, "Queen Mary's Peak 2,060 m; Green Mountain 859 m"),
    (read.elevation, "Chimborazo 6,267"),
    (read.currency, "Aruban guilders/florins per US dollar -"),
    (read.currency, "Tuvaluan dollars or Australian dollars (AUD) per US dollar -"),
    (read.country_code, "metropolitan France - .fr; Mayotte - .yt"),
    (read.aircraft_prefix, "CR, CS"),
    (read.date, "none (territory of the US)"),
    (read.date, "24 February 1918 (from Soviet Russia); 20 August 1991 (declared)"),
    (read.date, "3 May 1947 (current constitution adopted)"),
    (read.date, "14-15 May 1811 (from Spain)"),
    (read.independence_from, "27 April 1960 (from French-administered UN trusteeship)"),
    (read.independence_from, "1 January 1956 (from Egypt and the UK)"),
    (read.holiday, "Constitution Day, 18 June (1993); Independence Day, 29 June (1976)"),
    (read.holiday, "Constitution Day, the first Monday in July (1959)"),
    (read.anthem, 'four names: "Schweizerpsalm" [German] "Cantique Suisse" [French]'),
    (read.symbol, "lion, water lily"),
    (read.colors, "black, red, green, white"),
    (read.colors, "red, white, blue (all of Britain)"),
    (read.largest_city, "1.2 million A, 1.2 million B (2023)"),
    (read.largest_city, "7.6 million RIYADH (capital), 872,000 million Hufuf (2023)"),
    (read.official_language, "Arabic (official), Tamazight (official), French"),
    (read.official_language, "English 72%, Mandarin 2.7%"),
    (read.government, "presidential republic; authoritarian"),
    (read.government, "formerly, semi-presidential republic"),
    (read.legislature, "Legislative Council or LegCo"),
    (read.province_count, "24 provinces and 1 municipality*; A, B"),
    (read.citizen, "Trinidadian(s), Tobagonian(s)"),
    (read.first_listed, "ships (2023)"),
    (read.first_listed, "vehicle parts/accessories, cars (2023)"),
    (read.top_partner, "Uganda 10%, USA 10% (2023)"),
    (read.only_neighbour, "Belize 266 km; Mexico 276 km"),
    (read.longest_border, "Spain 1,224 km"),
    (read.longest_border, "A 10 km; B 10 km"),
    (read.longest_border, "A 10 km; B, unsettled"),
    (read.dependency, "British crown dependency"),
    (read.count, "0 (2025)"),
    (read.count, "54 (46 cultural); note - one in New Caledonia"),
    (read.length, "0 km (landlocked)"),
    (read.area, "443 sq km (Antigua 280 sq km; Barbuda 161 sq km)"),
]


@pytest.mark.parametrize(("reader", "text"), LEFT_OUT)
def test_texts_without_one_answer(reader, text):
    assert reader(text) == ()
