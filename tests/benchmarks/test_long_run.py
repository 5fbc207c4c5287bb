"""The benchmark of a long run, on 40 questions: it kills, and sees a difference."""

from pathlib import Path

import pytest

from benchmarks import long_run
from tests.experiments.small_run import write_small_run


def test_growth_by_hand() -> None:
    # samples 5 to 8 of 16 against 13 to 16: 110 / 100
    memory = [50] * 4 + [100] * 4 + [105] * 4 + [110] * 4
    assert long_run.Lived(16.0, 1, memory, 0).growth == pytest.approx(0.1)
    assert long_run.Lived(2.0, 1, [50, 100], 0).growth == 0.0


def test_unknown_arguments_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        long_run.main([f"--out={tmp_path}", "--limit=4"])
    assert "unknown: --limit=4" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_that_is_killed_has_the_answers_of_one_that_is_not(tmp_path, capsys, monkeypatch):
    (tmp_path / "small").mkdir()
    config = write_small_run(tmp_path / "small", questions=40)
    out, same = tmp_path / "out", ["--questions=40", "--kill=0", "--config.live=4"]
    out.mkdir()
    assert long_run.main([f"--out={out}", f"--config={config}", *same]) == 0
    said = capsys.readouterr().out
    assert "answers equal" in said and "killed with" in said and "0 damaged" in said

    def live(command: list[str], workdir: Path, kill: float | None) -> long_run.Lived:
        workdir.mkdir(parents=True)
        (workdir / "answers.jsonl").write_text(f"{kill}\n")
        return long_run.Lived(1.0, 1, [], 0)

    monkeypatch.setattr(long_run, "live", live)
    other = tmp_path / "other"
    assert long_run.main([f"--out={other}", f"--config={config}", *same]) == 1
    assert "answers DIFFER" in capsys.readouterr().out
