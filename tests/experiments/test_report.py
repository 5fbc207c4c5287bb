"""The report script: from a command line to two files."""

from pathlib import Path

import pytest

from experiments import report
from jaxrag.types import InputError
from tests.evaluation import fabricate


def test_writes_page_and_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [fabricate.run(tmp_path / m, m, n=20) for m in ("no_retrieval", "dtr")]
    out = tmp_path / "out.html"
    words = [word for run in runs for word in ("--runs", str(run))]
    assert report.main(["report", *words, f"--out={out}", "--baseline=no_retrieval"]) == 0
    assert out.read_text().startswith("<!doctype html>")
    assert "ΔEM vs no_retrieval" in out.with_suffix(".md").read_text()
    assert "dtr" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--ruins=x"], ["runs/a"], []])
def test_wrong_command_lines(words: list[str]) -> None:
    with pytest.raises(InputError):
        report.main(["report", *words])


def test_selectors_have_a_page_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "selector.json").write_text("{}")
    wrote = []
    monkeypatch.setattr(report, "write_selector_report", lambda *given: wrote.append(given) or [])
    out = str(tmp_path / "page.html")
    assert report.main(["report", "--runs", str(tmp_path / "one"), f"--out={out}"]) == 0
    assert wrote == [(str(tmp_path / "one"), out)] and "page.md" in capsys.readouterr().out
    both = ["--runs", str(tmp_path / "one"), "--runs", str(tmp_path / "two")]
    with pytest.raises(InputError, match="Give one --runs of selectors"):
        report.main(["report", *both])
