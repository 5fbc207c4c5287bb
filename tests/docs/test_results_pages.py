"""The page of claims and the pages of reproduced tables are those of the records beside them."""

import json
from pathlib import Path

from configs.papers import ALL
from configs.papers.claims import CLAIMS
from jaxrag.reproduction.claims_page import claims_page
from jaxrag.reproduction.listing import all_names, result_file

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = [
    path for scale in ("small", "paper") for path in (DOCS / "results" / scale).glob("*.json")
]


def test_the_claims_are_judged_by_the_records() -> None:
    assert (DOCS / "claims.md").read_text() == claims_page(CLAIMS, DOCS / "results")


def test_every_record_is_of_a_declared_table_and_on_its_papers_page() -> None:
    for path in RECORDS:
        record = json.loads(path.read_text())
        assert record["name"] in all_names(ALL)
        assert path == result_file(DOCS / "results", record["scale"], record["name"], "json")
        page = DOCS / "results" / f"reproduced_{record['name'].split('/')[0]}.md"
        assert record["date"] in page.read_text()
