"""The page of claims and the pages of reproduced tables are those of the records beside them."""

import json
from pathlib import Path

from configs.papers import ALL
from configs.papers.claims import CLAIMS, FIGURE_CLAIMS
from jaxrag.reproduction.claims_page import claims_page
from jaxrag.reproduction.listing import all_names, result_file
from jaxrag.reproduction.result_pages import write_pages
from jaxrag.reproduction.tables import SCALES

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = [path for scale in SCALES for path in (DOCS / "results" / scale).glob("*.json")]


def test_the_claims_are_judged_by_the_records() -> None:
    assert (DOCS / "claims.md").read_text() == claims_page(CLAIMS, FIGURE_CLAIMS, DOCS / "results")


def test_every_record_is_of_a_declared_table() -> None:
    for path in RECORDS:
        record = json.loads(path.read_text())
        assert record["name"] in all_names(ALL)
        assert path == result_file(DOCS / "results", record["scale"], record["name"], "json")


def test_the_pages_are_written_from_the_records(tmp_path: Path) -> None:
    pages = write_pages(ALL, DOCS / "results", tmp_path)
    assert pages
    for page in pages:
        assert page.read_text() == (DOCS / "results" / page.name).read_text()


def test_a_claim_without_any_difference_says_so() -> None:
    """PAIRS' dynamic weight at scale small: the same answers to all 100 questions."""
    lines = (DOCS / "claims.md").read_text().splitlines()
    [line] = [line for line in lines if "angle of question" in line]
    assert "+0.00 [+0.00, +0.00], n = 100; all differences are 0" in line
