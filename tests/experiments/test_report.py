"""The report script: from a command line to two files."""

from pathlib import Path

import pytest

from jaxrag.experiments import compare, report
from jaxrag.types import InputError
from tests.evaluation import fabricate


def test_the_report_writes_page_and_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [fabricate.run(tmp_path / m, m, n=20) for m in ("no_retrieval", "dtr")]
    out = tmp_path / "out.html"
    words = [str(runs[0]), "--runs", str(tmp_path)]
    assert report.main(["report", *words, f"--out={out}", "--baseline=no_retrieval"]) == 0
    assert compare.main(["compare", f"{tmp_path}/*", "--baseline=no_retrieval"]) == 0
    assert out.read_text().startswith("<!doctype html>")
    assert "ΔEM vs no_retrieval" in out.with_suffix(".md").read_text()
    assert "ΔEM" in out.with_suffix(".csv").read_text()
    assert r"\toprule" in out.with_suffix(".tex").read_text()
    shown = capsys.readouterr().out
    assert shown.count("n = 20") == shown.count("n = 19") == 2  # each run once in both tables


def test_files_of_others_are_not_overwritten(tmp_path: Path) -> None:
    run = fabricate.run(tmp_path / "dtr", "dtr", n=20)
    out = tmp_path / "paper.html"
    words = ["report", "--runs", str(run), f"--out={out}"]
    out.with_suffix(".tex").write_text("mine")
    with pytest.raises(InputError, match=r"paper\.tex is not of an earlier report"):
        report.main(words)
    assert out.with_suffix(".tex").read_text() == "mine" and not out.exists()
    out.with_suffix(".tex").unlink()
    assert report.main(words) == report.main(words) == 0
