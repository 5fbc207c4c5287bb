"""ERRR and RRR as whole runs of small files, and every variant of their configs."""

import dataclasses
from pathlib import Path
from typing import NamedTuple

import pytest

from jaxrag.configs import errr as errr_config
from jaxrag.engines.local.engine import Local
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.evaluation.records import read_run
from jaxrag.methods.errr import errr
from jaxrag.methods.errr.queries import Prompted, Trained
from jaxrag.runs.config_file import load
from jaxrag.runs.plan import plan
from jaxrag.runs.run import Run, execute
from jaxrag.steps.candidates import Search
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run
from tests.methods.errr.test_query_pairs import MORE
from tests.models.t5 import small_t5

QUESTIONS = 4


class Made(NamedTuple):
    """A run of ERRR's method over small files."""

    root: Path
    run: Run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root = tmp_path_factory.mktemp("errr")
    run = load(str(write_small_run(root, questions=QUESTIONS)))
    (root / "prompts.toml").write_text(MORE)
    reader = Reader(prompts=str(root / "prompts.toml"), answer_tokens=6, passage_tokens=6)
    method = errr.Config(Prompted(tokens=6), Search(m=3, read=2), reader=reader)
    return Made(root, dataclasses.replace(run, method=method))


def test_the_frozen_method(made: Made, tmp_path: Path) -> None:
    found = execute(made.run, tmp_path / "run")
    assert found["answered"] == QUESTIONS and not found["errors"]
    for line in read_run(tmp_path / "run").records:
        trace, queries = line["trace"], line["trace"]["queries"]
        assert [s["query"] for s in trace["searches"]] == queries["texts"]
        assert line["cost"]["llm_calls"] == 3
        assert line["cost"]["searches"] == len(queries["texts"]) <= 5
        assert 1 <= len(trace["selected"]["ids"]) <= 2
        if not queries["parsed"]:
            assert queries["texts"] == [line["question"]]


def test_the_trainable_method_uses_the_optimizer(made: Made, tmp_path: Path) -> None:
    small_t5.write(tmp_path / "t5", small_t5.CONFIGS["1.0"])
    optimizer = Trained(model=Seq2Seq(str(tmp_path / "t5")), tokens=12)
    run = dataclasses.replace(
        made.run, method=dataclasses.replace(made.run.method, optimizer=optimizer)
    )
    found = execute(run, tmp_path / "run")
    assert found["answered"] == QUESTIONS and not found["errors"]
    records = read_run(tmp_path / "run")
    assert records.config["helpers"]["optimizer.model"]["name"] == "t5"
    assert "weights" in str(records.config["helpers"]["optimizer.model"])
    assert all(line["cost"]["llm_calls"] == 3 for line in records.records)


def test_without_an_optimizer_the_run_is_refused(made: Made, tmp_path: Path) -> None:
    run = dataclasses.replace(
        made.run, method=dataclasses.replace(made.run.method, optimizer=Trained())
    )
    for use in (plan, lambda run: execute(run, tmp_path / "run")):
        with pytest.raises(
            InputError, match=r"give --config\.method\.optimizer\.model\.checkpoint"
        ):
            use(run)
    assert not (tmp_path / "run").exists()


def test_a_decoder_student_gets_an_ending_after_its_input() -> None:
    (run, pairs) = (errr_config.get_config(f"{name}_errr_decoder@popqa") for name in
                    ("trainable", "make_pairs"))  # fmt: skip
    optimizer = run.method.optimizer  # type: ignore[attr-defined]
    assert optimizer.model == Local("") and run.name == "trainable_errr_decoder"  # type: ignore[attr-defined]
    assert optimizer.reads.text("Who?", "A man.").endswith(" Who? Context: A man.\nQueries:")
    assert pairs.run.method.student == optimizer.reads  # type: ignore[attr-defined]
