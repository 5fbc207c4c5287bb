"""Mistyped command lines: exit code 2 and one sentence with the nearest name, or what is right."""

import sys
from pathlib import Path

import pytest

from jaxrag.experiments import __main__ as command

DTR = "--config=configs/dtr.py:dtr@tiny"
SAID = {
    "--versoin": "no command '--versoin'. Nearest: --version.",
    "swep": "no command 'swep'. Nearest: sweep.",
    "run --confg=configs/dtr.py": "jaxrag run has no option --confg; the nearest is --config.",
    "run --config": "give --config=FILE",
    "run --config=config/dtr.py:dtr": "no config file config/dtr.py; nearest: configs/dtr.py.",
    f"run {DTR} --dryrun": "no option --dryrun; the nearest is --dry-run.",
    f"run {DTR} --limit=5": "no option --limit; the nearest is --config.limit.",
    f"run {DTR} --threshold=1": "the nearest is --config.method.gate.threshold.",
    f"run {DTR} --config.threshold=1": "the nearest is --config.method.gate.threshold",
    f"run {DTR} --config.method.reader.prompts=smal --workdir=x": "Nearest: small.",
    f"run {DTR} --workdir=file/x": "file is a file, not a run directory",
    f"sweep {DTR} --over=k=1 --workdir=x": "no setting --config.k; the nearest is "
    "--config.method.select.k",
    f"ask {DTR} --json=maybe Who?": "--json is 'maybe'; give no value.",
    f"check-model {DTR} direkt": "has no role 'direkt'; nearest: direct.",
    "compare runs/dtr --printed=-3": "--printed is '-3'; give a number of at least 0.",
    "import nowhere --out=x": "there is no folder nowhere",
    "import runs --out=x --words=0": "--words is '0'; give a whole number of at least 1.",
    "judge runs/dtr --config=configs/judge.py:servr": "Nearest: server.",
    "judge runs/dtr --config=configs/dtr.py": "returned Run, not a jaxrag.runs.judge.Judge",
    "list --all": "jaxrag list has no option --all; jaxrag list --help lists its options.",
    "quickstart --workdir": "Missing value for flag --workdir: write --NAME=VALUE.",
    "reproduce --list=dtx": "no table or figure 'dtx' (--list prints all). Nearest: dtr.",
    "reproduce dtr/table2 --limit=all": "--limit is 'all'; give a whole number of at least 0.",
    "reproduce dtr/table2 --scale=tinny": "--scale is 'tinny'; allowed: tiny, small, paper. "
    "Nearest: tiny.",
    "status runs/drt": "runs/drt: there is no such directory. Nearest: runs/dtr.",
    "store reprot x": "jaxrag store has no 'reprot': report, verify, merge. Nearest: report.",
}


@pytest.mark.parametrize("line", SAID)
def test_a_mistyped_command_is_answered_in_one_sentence(
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "dtr").mkdir(parents=True)
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "argv", ["jaxrag", *line.split()])
    with pytest.raises(SystemExit) as stop:
        command.main()
    said = capsys.readouterr().err.splitlines()
    assert stop.value.code == 2 and SAID[line] in said[-1] and said[-1].startswith("error: ")
    assert {one.name for one in tmp_path.iterdir()} == {"runs", "file"}  # nothing was made
