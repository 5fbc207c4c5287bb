"""A scripted judge of made-up runs: verdicts, the store, agreement with exact match, tables."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.report.page import write_report
from jaxrag.evaluation.summary import summarise
from jaxrag.experiments import judge as command
from jaxrag.runs.judge import Judge
from jaxrag.types import InputError
from tests.evaluation import fabricate
from tests.scripted import ScriptedModel


def reply(shown: str, settings: Any) -> str:
    """Knows that the old name is meant, and says nothing about question 3."""
    line = next(one for one in shown.splitlines() if one.startswith("Answer to grade: "))
    gold = shown.partition("any of which is right: ")[2].partition(";")[0]
    if "river <" in shown:
        return "Hard to say."
    return "**Correct.**" if gold in line else "Incorrect, since it is elsewhere."


MODEL = ScriptedModel(reply)


@dataclasses.dataclass(frozen=True)
class Scripted:
    """Settings of the scripted judge."""

    name: str = "scripted"
    checkpoint: str = ""

    def load(self, cache: Path) -> Any:
        return MODEL


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    MODEL.prompts.clear()
    return [fabricate.run(tmp_path / name, name, n=40) for name in ("standard_rag", "dtr")]


def test_answers_are_judged_once_and_shown_beside_exact_match(
    runs: list[Path], tmp_path: Path
) -> None:
    file = runs[0] / "answers.jsonl"
    first, *others = map(json.loads, file.read_text("utf-8").splitlines())
    first["prediction"] = ""  # incorrect, without a call
    file.write_text("".join(json.dumps(line) + "\n" for line in (first, *others)))
    (runs[0] / "metrics.json").unlink()  # it has the hash of the answers
    judge = Judge(Scripted(), cache=str(tmp_path / "cache"))
    assert [judge.judge(run) for run in runs] == [0, 0]
    for run, row in zip(runs, summarise(runs), strict=True):
        lines = {line["question_id"]: line for line in read_run(run).records if "error" not in line}
        verdicts = json.loads((run / "judgements.json").read_text("utf-8"))["judgements"]
        assert [*verdicts] == [*lines]
        for ident, line in lines.items():
            right = line["gold_answers"][0] in line["prediction"]
            assert verdicts[ident]["correct"] is (None if ident == "q00003" else right)
        silent = {"q00003"} & {*lines}
        assert row.means["judged"].n == len(lines) - len(silent)
        known = [one["correct"] for one in verdicts.values() if one["correct"] is not None]
        assert row.means["judged"].mean == pytest.approx(sum(known) / len(known))
        old = sum("of old" in line["prediction"] for i, line in lines.items() if i not in silent)
        share = 100 * (1 - old / len(known))
        replies = sum(bool(line["prediction"].strip()) for line in lines.values())
        assert (
            f"{row.label}: judged by scripted: {replies - len(silent)} of {replies} replies are "
            f"judgements; {share:.1f} % of judgements agree with exact match; correct by the "
            f"judge alone: {old}."
        ) in row.notes
    asked = len(MODEL.prompts)
    assert asked and [judge.judge(run) for run in runs] == [0, 0] and len(MODEL.prompts) == asked
    write_report(runs, tmp_path / "report.html")
    assert "judged %" in (tmp_path / "report.md").read_text("utf-8")
    assert "judged %" in (tmp_path / "report.csv").read_text("utf-8")


def test_an_answer_that_has_changed_is_not_judged(runs: list[Path], tmp_path: Path) -> None:
    Judge(Scripted(), cache=str(tmp_path / "cache")).judge(runs[0])
    file = runs[0] / "judgements.json"
    record = json.loads(file.read_text("utf-8"))
    record["judgements"]["q00001"]["prediction"] = "what it was"
    file.write_text(json.dumps(record))
    assert summarise(runs[:1])[0].means["judged"].n == 38
    file.write_text("[]")
    with pytest.raises(InputError, match=r"judgements\.json is not .*judge the run again"):
        summarise(runs[:1])


def test_the_command(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "mine.py"
    config.write_text(
        "from jaxrag.runs.judge import Judge\nfrom tests.runs.test_judge import Scripted\n\n"
        f"def get_config():\n    return Judge(Scripted(), cache={str(tmp_path / 'cache')!r})\n"
    )
    assert command.main(["judge", f"--config={config}", *map(str, runs)]) == 0
    told = capsys.readouterr().out
    assert (
        "judged %" in told and told.splitlines()[-1] == f"next: jaxrag report {runs[0]} {runs[1]}"
    )
    for words, named in (
        ([], "give run directories"),
        ([str(runs[0]), "--config.prompts=small"], r"small\.toml has no \[correctness\]"),
        ([str(runs[0]), "--config.tokens=0"], "tokens"),
    ):
        with pytest.raises(InputError, match=named):
            command.main(["judge", f"--config={config}", *words])
