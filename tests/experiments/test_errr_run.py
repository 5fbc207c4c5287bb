"""ERRR and RRR as whole runs of small files, and every variant of their configs."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from configs import errr as errr_config
from configs import errr_pairs as pairs_config
from experiments.configuration import load
from jaxrag.data.draw import Draw
from jaxrag.engines.local.engine import Local
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.engines.server import Server
from jaxrag.evaluation.records import read_run
from jaxrag.methods.errr import errr, errr_pairs, rrr
from jaxrag.methods.errr.queries import ERRR, RRR, Prompted, StudentInput, Trained
from jaxrag.retrieval.dense.settings import Exact
from jaxrag.runs.plan import plan
from jaxrag.runs.run import Run, execute
from jaxrag.steps import prompts
from jaxrag.steps.asking import Reader
from jaxrag.steps.searches import Search
from jaxrag.types import InputError
from tests.experiments.small_run import PROMPTS, write_small_run
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


def test_the_trainable_method_asks_the_optimizer(made: Made, tmp_path: Path) -> None:
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


def test_prompts_without_the_roles_are_refused(made: Made, tmp_path: Path) -> None:
    file = tmp_path / "few.toml"
    file.write_text(PROMPTS)
    reader = dataclasses.replace(made.run.method.reader, prompts=str(file))
    run = dataclasses.replace(made.run, method=rrr.Config(reader=reader), limit=1)
    execute(run, tmp_path / "run")
    error = read_run(tmp_path / "run").records[0]["error"]
    assert "has no [queries], which this method asks for" in error


METHODS = {
    "direct": "no_retrieval",
    "rag": "standard_rag",
    "frozen_rrr": "rrr",
    "trainable_rrr": "rrr",
    "frozen_errr": "errr",
    "trainable_errr": "errr",
}
DATA = (*errr_config.DATA, *(f"paper-{name}" for name in ("popqa", "ambigqa", "hotpotqa")))


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_every_data_set(name: str, data: str) -> None:
    run = errr_config.get_config(f"{name}@{data}")
    paper = data.startswith("paper-")
    assert run.method.name == METHODS[name]
    assert run.name == name
    assert (run.index is None) == (name == "direct")
    helpers = list(run.method.needs.helpers)
    assert helpers == {
        "trainable_rrr": ["rewriter.model"], "trainable_errr": ["optimizer.model"]
    }.get(name, [])  # fmt: skip
    assert isinstance(run.model, Server if paper else Local)
    assert isinstance(run.data, Draw) and run.data.part == "test"
    found = prompts.load(run.method.reader.prompts)
    known = {"tiny": "factbook", "factbook_known": "factbook"}
    shown = known.get(data, data.removeprefix("paper-"))
    assert found.path.endswith(f"{'errr' if paper else 'errr_small'}_{shown}.toml")
    if paper and name != "direct":
        assert isinstance(run.index, Exact) and run.index.metric == "l2"
    # all methods answer the same questions
    assert run.data == errr_config.get_config(f"direct@{data}").data


def test_the_settings_of_the_paper() -> None:
    frozen = errr_config.get_config("frozen_errr@paper-popqa").method
    assert frozen.search == Search(m=5, merge="fusion", read=5)
    assert frozen.optimizer == Prompted(context=True)
    trained = errr_config.get_config("trainable_errr@paper-popqa").method.optimizer
    assert trained == Trained() and trained.reads == StudentInput(ERRR, True, "")
    run = errr_config.get_config("trainable_rrr@paper-popqa")
    reads = StudentInput(RRR, context=False)
    assert run.method.rewriter == Trained(reads, Seq2Seq(beams=4), tokens=50)


def test_a_decoder_as_a_student() -> None:
    run = errr_config.get_config("trainable_errr+decoder@popqa")
    optimizer = run.method.optimizer
    assert optimizer.model == Local("") and run.name == "trainable_errr+decoder"
    assert optimizer.reads.text("Who?", "A man.").endswith(" Who? Context: A man.\nQueries:")
    pairs = pairs_config.get_config("popqa+decoder")
    assert pairs.run.method.student == optimizer.reads


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", ["trainable_errr", "trainable_rrr"])
def test_pairs_are_what_the_method_reads_of_other_questions(name: str, data: str) -> None:
    run, pairs = errr_config.get_config(f"{name}@{data}"), f"{name}@{data}"
    teacher = pairs_config.get_config(pairs).run
    assert isinstance(teacher.method, errr_pairs.Config) and teacher.index is None
    writer = run.method.optimizer if name == "trainable_errr" else run.method.rewriter
    assert teacher.method.student == writer.reads
    assert teacher.method.teacher.context == writer.context
    assert dataclasses.replace(teacher.data, part="test") == run.data  # type: ignore[type-var]
    assert teacher.data.part == "train" and teacher.model == run.model  # type: ignore[attr-defined]
    if name == "trainable_errr":
        assert pairs_config.get_config(data).run == teacher


@pytest.mark.parametrize(
    "config, bad, said",
    [
        (errr_config, "frozen_errr@nowhere", "no data 'nowhere'"),
        (errr_config, "best@tiny", "no method 'best'; there are direct, rag"),
        (errr_config, "trainable_errr+bert@tiny", r"no student 'bert'.*\+decoder"),
        (errr_config, "frozen_errr+decoder@tiny", "'frozen_errr' has no student"),
        (pairs_config, "frozen_errr@tiny", "'frozen_errr' has no student"),
        (pairs_config, "nowhere", "no data 'nowhere'"),
    ],
)
def test_bad_variants(config: Any, bad: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        config.get_config(bad)
