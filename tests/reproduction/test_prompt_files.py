"""Tables with a user's own prompts."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from configs import ars, dtr
from configs.papers import ALL
from experiments import reproduce
from jaxrag.evaluation.printed import printed_tables
from jaxrag.methods.ars.relevance import RelevanceJudge
from jaxrag.reproduction.prompt_files import (
    check_used,
    described,
    read_prompt_files,
    with_prompts,
)
from jaxrag.reproduction.work import Work, add_table
from jaxrag.steps import prompts
from jaxrag.types import InputError

OWN = """extends = "dtr"

[direct]
user = "Published words: {question}"
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "own.toml"
    file.write_text(OWN)
    prompts.load.cache_clear()
    return file


def test_the_prompts_of_a_method_and_of_its_helpers_are_replaced(own: Path) -> None:
    """ARS-RAG's labels: the reader's prompts, and those of the judge of relevance."""
    job: Any = ars.get_config("make_labels@paper-boolq")
    method = dataclasses.replace(job.run.method, judge=RelevanceJudge())
    job = dataclasses.replace(job, run=dataclasses.replace(job.run, method=method))
    assert job.run.method.reader.prompts == job.run.method.judge.prompts == "ars"
    changed: Any = with_prompts({"ars": str(own)})(job)
    assert changed.run.method.reader.prompts == changed.run.method.judge.prompts == str(own)
    assert changed.run.model == job.run.model and changed.run.data is job.run.data
    assert with_prompts({"dtr": str(own)})(job) is job


def test_the_words_are_part_of_a_job(own: Path, tmp_path: Path) -> None:
    """Other words have other directories; the same words at another place too, by their path."""

    def directories() -> set[str]:
        change = with_prompts(read_prompt_files([f"dtr={own}"]))
        work = Work(tmp_path, change=change)
        table, printed = ALL.tables["dtr/table7"], printed_tables()["dtr/table7"]
        add_table(work, table, printed, "paper", ["nq", "dtr_u0.001"])
        runs: list[Any] = [job for job in work.jobs.values() if hasattr(job, "method")]
        assert runs and all(run.method.reader.prompts == str(own) for run in runs)
        return {path.name for path in work.jobs}

    first = directories()
    assert directories() == first
    own.write_text(OWN.replace("Published", "Other"))
    prompts.load.cache_clear()
    assert not directories() & first


def test_the_record_has_the_name_and_the_hash_of_the_file(own: Path) -> None:
    digest = prompts.own_files({"prompts": str(own)})[str(own)]
    assert described({"dtr": str(own)}) == {"dtr": f"own.toml ({digest[:10]})"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("dtr", "--prompts is 'dtr': give NAME=FILE"),
        ("=own.toml", "give NAME=FILE"),
        ("dtrr=own.toml", "No prompts named 'dtrr'"),
        ("dtr=nothing.toml", "No prompts named 'nothing.toml'"),
        ("errr=own.toml", r"own\.toml has no \[rewrite\], which errr has: add it, or extends"),
    ],
)
def test_what_cannot_replace_a_set(
    own: Path, monkeypatch: pytest.MonkeyPatch, given: str, message: str
) -> None:
    monkeypatch.chdir(own.parent)
    with pytest.raises(InputError, match=message):
        read_prompt_files([given])


def test_a_set_that_no_job_has_is_refused(own: Path, tmp_path: Path) -> None:
    job = dtr.get_config("dtr@paper-nq")
    check_used({"dtr": str(own)}, [job])
    with pytest.raises(InputError, match="no job here has the prompts 'pairs': they have dtr"):
        check_used({"pairs": str(own)}, [job])
    arguments = ["reproduce", "dtr/table7", "--only=nq,dtr", f"--workdir={tmp_path}"]
    with pytest.raises(InputError, match="no job here has the prompts 'errr'"):
        reproduce.main([*arguments, "--scale=paper", "--check", "--prompts=errr=errr"])


def test_a_check_with_own_prompts(
    own: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [
        "reproduce",
        "dtr/table7",
        "--only=nq,dtr",
        f"--workdir={tmp_path}",
        "--scale=paper",
        "--check",
    ]
    assert reproduce.main([*arguments, f"--prompts=dtr={own}"]) == 0
    assert "dtr/table7: 3 jobs" in capsys.readouterr().out
