"""ERRR and RRR as whole runs of small files, and every variant of their configs."""

import dataclasses
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from configs import errr as errr_config
from configs import errr_pairs as pairs_config
from experiments.configuration import editable, load, rebuilt
from jaxrag.evaluation.records import read_run
from jaxrag.methods import errr, errr_pairs, no_retrieval, prompts, rrr, standard_rag
from jaxrag.methods.queries import ERRR, RRR, Prompted, Trained
from jaxrag.methods.rewrite_steps import Search
from jaxrag.methods.steps import Reader
from jaxrag.run import Run, answer_function, execute
from jaxrag.settings import Draw, Exact, Local, Seq2Seq, Server
from jaxrag.types import InputError
from tests.experiments.small_run import PROMPTS, write_small_run
from tests.jobs.test_query_pairs import MORE
from tests.models import small_t5

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
    method = dataclasses.replace(made.run.method, optimizer=Trained(tokens=12))
    small_t5.write(tmp_path / "t5", small_t5.CONFIGS["1.0"])
    optimizer = Seq2Seq(str(tmp_path / "t5"))
    run = dataclasses.replace(made.run, method=method, query_optimizer=optimizer)
    found = execute(run, tmp_path / "run")
    assert found["answered"] == QUESTIONS and not found["errors"]
    records = read_run(tmp_path / "run")
    assert records.config["query_optimizer"]
    assert all(line["cost"]["llm_calls"] == 3 for line in records.records)


def test_without_an_optimizer_every_question_says_so(made: Made, tmp_path: Path) -> None:
    method = dataclasses.replace(made.run.method, optimizer=Trained(context=False))
    execute(dataclasses.replace(made.run, method=method), tmp_path / "run")
    for line in read_run(tmp_path / "run").records:
        assert "set config.query_optimizer.checkpoint" in line["error"]


def test_prompts_without_the_roles_are_refused(made: Made, tmp_path: Path) -> None:
    file = tmp_path / "few.toml"
    file.write_text(PROMPTS)
    reader = dataclasses.replace(made.run.method.reader, prompts=str(file))
    run = dataclasses.replace(made.run, method=rrr.Config(reader=reader), limit=1)
    execute(run, tmp_path / "run")
    error = read_run(tmp_path / "run").records[0]["error"]
    assert "has no [queries], which this method asks for" in error


METHODS: dict[str, Any] = {
    "direct": no_retrieval,
    "rag": standard_rag,
    "frozen_rrr": rrr,
    "trainable_rrr": rrr,
    "frozen_errr": errr,
    "trainable_errr": errr,
}
DATA = (*errr_config.DATA, *(f"paper-{name}" for name in ("popqa", "ambigqa", "hotpotqa")))


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_every_data_set(name: str, data: str) -> None:
    run = errr_config.get_config(f"{name}@{data}")
    paper = data.startswith("paper-")
    assert isinstance(run.method, METHODS[name].Config) and answer_function(run)
    assert run.name == name and rebuilt(run, editable(run)) == run
    assert (run.index is None) == (name == "direct")
    assert isinstance(run.query_optimizer, Seq2Seq) == name.startswith("trainable")
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
    assert trained == Trained() and trained.instruction == ERRR and trained.ending == ""
    run = errr_config.get_config("trainable_rrr@paper-popqa")
    assert run.method.rewriter == Trained(RRR, context=False, tokens=50)
    assert isinstance(run.query_optimizer, Seq2Seq) and run.query_optimizer.beams == 4


def test_a_decoder_as_a_student() -> None:
    run = errr_config.get_config("trainable_errr+decoder@popqa")
    assert isinstance(run.query_optimizer, Local) and run.name == "trainable_errr+decoder"
    assert run.method.optimizer.input("Who?", "A man.").endswith(" Who? Context: A man.\nQueries:")
    pairs = pairs_config.get_config("popqa+decoder")
    assert pairs.method.student == run.method.optimizer


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("name", ["trainable_errr", "trainable_rrr"])
def test_pairs_are_what_the_method_reads_of_other_questions(name: str, data: str) -> None:
    run, pairs = errr_config.get_config(f"{name}@{data}"), f"{name}@{data}"
    teacher = pairs_config.get_config(pairs)
    assert isinstance(teacher.method, errr_pairs.Config) and teacher.index is None
    writer = run.method.optimizer if name == "trainable_errr" else run.method.rewriter
    assert teacher.method.student == writer
    assert teacher.method.teacher.context == writer.context
    assert dataclasses.replace(teacher.data, part="test") == run.data  # type: ignore[type-var]
    assert teacher.data.part == "train" and teacher.model == run.model  # type: ignore[attr-defined]
    if name == "trainable_errr":
        assert pairs_config.get_config(data) == teacher


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
