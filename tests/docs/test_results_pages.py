"""The page of claims and the pages of reproduced tables are those of the records beside them."""

import json
import re
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


def test_rows_of_small_models_name_these_and_have_no_printed_values() -> None:
    for path in (DOCS / "results").glob("reproduced_*.md"):
        rows = re.findall(r"^\| .*\d\.\d.*", path.read_text(), re.MULTILINE)
        assert rows
        for row in rows:
            assert "SmolLM2-135M-Instruct" in row and "printed" not in row
            assert not re.search(r"\dB\b|gpt-|Qwen|Llama|Gemma|Mistral|Phi-", row)


def test_claims_of_small_models_have_no_verdict() -> None:
    first, *lines = (DOCS / "claims.md").read_text().splitlines()
    assert "no verdict on this page is at the papers' scale" in first
    words = re.compile("replicated|contradicted|undecided")
    assert not any(words.search(line) for line in lines if line.startswith("| "))
