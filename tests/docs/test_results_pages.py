"""The page of claims and the pages of results are those of the records beside them."""

import json
import re
from pathlib import Path

from jaxrag.configs.papers import ALL
from jaxrag.configs.papers.claims import CLAIMS
from jaxrag.reproduction.claims_page import LEAST, claims_page
from jaxrag.reproduction.listing import all_names, result_file
from jaxrag.reproduction.printed.tables import PAPERS
from jaxrag.reproduction.result_pages import write_pages

DOCS = Path(__file__).parents[2] / "docs"
RESULTS = DOCS / "results"
MOST_WORDS = 8_000


def test_the_claims_are_judged_by_the_records() -> None:
    assert (DOCS / "claims.md").read_text() == claims_page(CLAIMS, RESULTS, DOCS)


def test_records_are_of_declared_tables_and_of_large_readers() -> None:
    for path in RESULTS.glob("*/*.json"):
        record = json.loads(path.read_text())
        assert record["name"] in all_names(ALL)
        assert path == result_file(RESULTS, path.parent.name, record["name"], "json")
        readers = record["parameters"].values()
        assert all(size is None or size > LEAST / 3 for size in readers), path


def test_the_pages_are_written_from_the_records(tmp_path: Path) -> None:
    pages = write_pages(ALL, CLAIMS, RESULTS, tmp_path)
    assert [page.stem for page in pages] == [*PAPERS]
    for page in pages:
        assert page.read_text() == (RESULTS / page.name).read_text()


def test_the_pages_are_short() -> None:
    """Words of results and claims, without tables and what their cells open to."""
    words = 0
    for path in (DOCS / "claims.md", *RESULTS.glob("*.md")):
        text = re.sub(r"<table>.*?</table>", "", path.read_text(), flags=re.DOTALL)
        words += sum(not line.startswith("|") and len(line.split()) for line in text.splitlines())
    assert 0 < words <= MOST_WORDS
