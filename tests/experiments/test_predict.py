"""Questions without gold answers are answered to a file; the trace of one is shown."""

import json
from pathlib import Path
from typing import Any

import pytest

from jaxrag.engines.local.engine import LocalModel
from jaxrag.experiments import ask, explain, predict
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run


def test_answers_go_to_a_file_and_the_same_command_goes_on(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    config = write_small_run(tmp_path, questions=2)
    (tmp_path / "asked.txt").write_text("is a b\tgold\nis b c\nis a b\n")
    out = tmp_path / "my out.jsonl"
    words = [f"--config={config}", f"--questions={tmp_path / 'asked.txt'}", f"--out={out}"]
    one = tmp_path / "one.jsonl"
    assert predict.main(["predict", *words[:2], f"--out={one}", "--config.limit=1"]) == 0
    assert one.read_text().count("\n") == 1
    capsys.readouterr()
    assert predict.main(["predict", *words]) == 0
    before = out.read_text()
    lines = [json.loads(line) for line in before.splitlines()]
    assert [line["question"] for line in lines] == ["is a b", "is b c"]
    assert all(line.keys() == {"id", "question", "answer"} for line in lines)
    told = capsys.readouterr().out.splitlines()
    assert told[-1] == f"next: jaxrag explain '{tmp_path / 'my out.run'}' {lines[0]['id']}"
    answers = (tmp_path / "my out.run" / "answers.jsonl").read_text()
    assert 'gold"' not in answers and json.loads(answers.splitlines()[0])["gold_answers"] == []

    monkeypatch.setattr(LocalModel, "generate_each", lambda *_, **__: pytest.fail("asked again"))
    out.unlink()
    assert predict.main(["predict", *words]) == 0 and out.read_text() == before
    for wanted in (lines[1]["id"], "B C"):
        capsys.readouterr()
        assert explain.main(["explain", str(tmp_path / "my out.run"), wanted]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith("is b c\n") and "Direct answer" in shown
    for wrong in (tmp_path / "asked.txt", tmp_path, tmp_path / "my out.run"):
        with pytest.raises(InputError, match="is a directory, or a file that is read"):
            predict.main(["predict", *words[:2], f"--out={wrong}"])
    with pytest.raises(InputError, match=r"no answer to 'is b d'\. Nearest: 'is b c'"):
        explain.main(["explain", str(tmp_path / "my out.run"), "is b d"])
    assert ask.main(["ask", f"--config={config}", "--json", "is b c"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["question"], found["answer"]) == ("is b c", lines[1]["answer"])
    assert found["trace"]["direct"] and found["cost"]["llm_calls"] and found["passages"]
