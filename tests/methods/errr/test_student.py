"""The query optimizer's job: its files and figures, and pairs that will not do."""

import dataclasses
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from jaxrag.data.factbook import Factbook
from jaxrag.data.leakage import TRAINED_ON, question_set
from jaxrag.engines.local.engine import Local
from jaxrag.evaluation.significance import interval
from jaxrag.methods.errr import student as job
from jaxrag.methods.errr.student import PAIRS, StudentEvaluator, read_pairs, similarity
from jaxrag.retrieval.dense.encoder import Encoder
from jaxrag.runs.job import locate_file
from jaxrag.runs.run import Run
from jaxrag.steps.episode import Episode
from jaxrag.steps.reader import Reader, Reply
from jaxrag.steps.tools import LanguageModelTool, ModelHelper, Needs, Tools
from jaxrag.training.student.checkpoint import load_student
from jaxrag.training.student.engine import engine
from jaxrag.training.student.student import NewT5
from jaxrag.training.student.training import StudentTraining, TextPair
from jaxrag.types import InputError, Question
from tests.engines.tiny_model import write_tiny_model
from tests.models.bert import small_bert
from tests.training.processes import on_one_device

QUERIES = ("a cat; a rug **", "paris **", "the river bank; money **", "rome **", "a mat **")


def lines(targets: tuple[str, ...] = QUERIES, held_out: int = 2) -> list[dict[str, Any]]:
    return [
        {
            "question_id": f"q{i}",
            "input": f"find {i}",
            "target": targets[i % len(targets)],
            "part": "held_out" if i < held_out else "train",
        }
        for i in range(10)
    ]


def write(directory: Path, some: list[dict[str, Any]]) -> Path:
    directory.mkdir(exist_ok=True)
    file = directory / "pairs.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in some))
    return file


@pytest.fixture(autouse=True)
def one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    on_one_device(monkeypatch)


def made(directory: Path, **more: Any) -> job.TrainQueryOptimizer:
    write(directory / "pairs", more.pop("lines", lines()))
    write_tiny_model(directory / "tokens")
    small_bert.write(directory / "bert", small_bert.BERT, classifier=False)
    new = NewT5(str(directory / "tokens"), width=8, inner=8, heads=1, head_width=8, layers=1)
    how = StudentTraining(
        steps=4, batch=4, microbatch=4, learning_rate=3e-2, evaluate_every=2, save_every=2
    )
    told: dict[str, Any] = {
        "pairs": str(directory / "pairs"), "new": new, "training": how, "max_source": 16,
        "max_target": 32, "encoder": str(directory / "bert"),
    }  # fmt: skip
    return job.TrainQueryOptimizer(**(told | more))


def read(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.mark.slow
def test_files_of_a_finished_job(tmp_path: Path) -> None:
    settings, work = made(tmp_path), tmp_path / "work"
    trained = settings.execute(work).path
    assert trained == work / "optimizer"
    held = read(work / "held_out.jsonl")
    assert [line["question_id"] for line in held] == ["q0", "q1"]
    assert [line["target"] for line in held] == list(QUERIES[:2])
    # what is told is what the student on disk writes, and how probable it finds the targets
    student = load_student(str(trained), max_source=16, max_target=32)
    model = engine(student, student.params)
    wrote = model.generate(["find 0", "find 1"], max_new_tokens=32)
    assert [line["output"] for line in held] == [one.text for one in wrote]
    assert [line["ended"] for line in held] == [one.finish_reason == "end" for one in wrote]
    scored = model.logprob(["find 0", "find 1"], [f"{t}<|im_end|>" for t in QUERIES[:2]])
    losses = [-float(np.mean(one)) for one in scored]
    np.testing.assert_allclose([line["loss"] for line in held], losses, rtol=1e-4)
    rows = {row["student"]: row for row in read(work / "query_optimizer.jsonl")}
    assert {*rows} == {"trained", "untrained"}
    np.testing.assert_allclose(rows["trained"]["loss"], interval(np.array(losses)), rtol=1e-4)
    assert rows["trained"]["loss"][0] < rows["untrained"]["loss"][0]
    evaluated = {line["step"]: line["watched"] for line in read(work / "metrics.jsonl")
               if "watched" in line}  # fmt: skip
    assert [*evaluated] == [0, 2, 4]
    assert {*evaluated[4]} == {"loss", "exact", "ended", "parsed", "similarity"}
    best = min(evaluated, key=lambda step: evaluated[step]["loss"])
    assert evaluated[best]["loss"] == pytest.approx(rows["trained"]["loss"][0], abs=1e-4)
    # other pairs are another job's
    write(tmp_path / "pairs", lines(QUERIES[::-1]))
    with pytest.raises(InputError, match="another"):
        settings.execute(work)


def test_figures_of_queries_and_of_labels(tmp_path: Path) -> None:
    settings = made(tmp_path)
    student = job._begin(settings, [])
    model = engine(student, student.params)

    class Says:
        """Writes what it is told to, and scores as the student."""

        def __init__(self, *texts: str) -> None:
            self.texts = texts

        def generate(self, prompts: Any, *, max_new_tokens: int) -> Any:
            found = model.generate(prompts, max_new_tokens=max_new_tokens)
            return [dataclasses.replace(one, text=text, finish_reason="end") for one, text in
                    zip(found, self.texts, strict=True)]  # fmt: skip

        def logprob(self, prompts: Any, texts: Any) -> Any:
            return model.logprob(prompts, texts)

    pairs = [TextPair("a", "find a", "a cat; a rug **"), TextPair("b", "find b", "paris **"),
             TextPair("c", "find c", "rome **")]  # fmt: skip
    encoder = Encoder.load(settings.encoder)
    judge: Any = StudentEvaluator(student, pairs, task="queries", encoder=encoder)
    found = judge(student.params, Says(" a cat; a rug **\n", "a cat **", " ;; **")).columns
    assert found["exact"].tolist() == [1, 0, 0] and found["parsed"].tolist() == [1, 1, 0]
    cat, paris = encoder.embed(["a cat", "paris"])
    np.testing.assert_allclose(found["similarity"], [1, cat @ paris, 0], atol=1e-5)

    labels = ("A", "B", "C")
    pairs = [TextPair(name, f"find {name}", name) for name in labels]
    judge = StudentEvaluator(student, pairs, task="labels", labels=labels)
    found = judge(student.params, Says("A", "C", "B")).columns
    assert found["exact"].tolist() == [1, 0, 0] and "similarity" not in found
    for pair, right in zip(pairs, found["accuracy"], strict=True):
        alone = {name: model.logprob([pair.input], [name])[0].sum() for name in labels}
        assert right == (max(alone, key=alone.__getitem__) == pair.target)


def test_similarity_by_hand() -> None:
    # nearest of mine: 1 and 0, mean 1/2; nearest of theirs: 1; (1/2 + 1) / 2
    one, two = np.eye(2)
    assert similarity(np.stack([one, two]), np.stack([one])) == 0.75
    assert similarity(np.stack([one]), np.stack([one, two])) == 0.75
    assert similarity(np.stack([one, two]), np.stack([two, one])) == 1.0
    assert similarity(np.stack([one]), np.stack([two])) == 0.0


@dataclasses.dataclass(frozen=True)
class Config:
    """Answers with the first query of the optimizer."""

    name = "first"
    reader = Reader(prompts="small")
    needs = Needs(helpers={"writer": ModelHelper(Local())})

    async def answer(self, episode: Episode) -> Reply:
        text = episode.question.text
        query = await episode.model(Local()).generate(text, max_new_tokens=4)
        if text == "fails":
            raise InputError("no")
        return episode.finish(f"{query.text} of {text}")


def test_downstream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    student = job._begin(made(tmp_path), [])
    model = engine(student, student.params)
    [wrote] = model.generate(["find 1"], max_new_tokens=4)
    texts = {"q1": "find 1", "q2": "find 2", "q3": "fails"}
    asked = tuple(
        Question(name, text, (f"{wrote.text} of {text}" if name == "q1" else "no such",))
        for name, text in texts.items()
    )

    def load(run: Run, given: Any) -> Any:
        tools = Tools(LanguageModelTool(model), helpers={ModelHelper(Local()): given["writer"]})
        return SimpleNamespace(gold={}, name="made up"), asked, tools, None, {}

    monkeypatch.setattr(job, "load", load)
    run = Run(Config(), Factbook(), Local(), cache=str(tmp_path / "cache"), store="memory")
    how = job.Downstream(run, "writer")
    found = job.outcome(how, model, ["q2", "q9", "q1"])
    np.testing.assert_array_equal(found, [0, np.nan, 1])
    recall = job.Downstream(run, "writer", "recall")
    assert np.isnan(job.outcome(recall, model, ["q1"])).all()
    with pytest.raises(InputError, match="Question q3 failed downstream: no"):
        job.outcome(how, model, ["q3"])
    with pytest.raises(InputError, match="None of the 1 held-out pairs belongs to a question of"):
        job.outcome(how, model, ["q9"])
    with pytest.raises(InputError, match="figure is 'bleu'; allowed: exact_match, f1, recall"):
        job.Downstream(run, "writer", "bleu")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"downstream\.helper is 'judge'; first has writer"):
        job.Downstream(run, "judge")


def test_a_quantised_helper_is_not_trained() -> None:
    @dataclasses.dataclass(frozen=True)
    class Rounded(Config):
        needs = Needs(helpers={"writer": ModelHelper(Local(quantization="int8"))})

    with pytest.raises(InputError, match=r"downstream\.run has writer\.quantization"):
        job.Downstream(Run(Rounded(), Factbook(), Local()), "writer")


def broken(number: int, **changes: Any) -> list[dict[str, Any]]:
    some = lines()
    some[number] = {k: v for k, v in (some[number] | changes).items() if v != "gone"}
    return some


@pytest.mark.parametrize(
    ("some", "told"),
    [
        (broken(3, part="dev"), "'part' is 'dev'; allowed are train, held_out, test"),
        (lines(held_out=0), r"no pairs of the part 'held_out' \(10 of 'train', 0 of 'held_out'"),
        (lines(held_out=10), "no pairs of the part 'train'"),
    ],
)
def test_invalid_pairs(tmp_path: Path, some: Any, told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_pairs(write(tmp_path / "pairs", some))


def located(spec: str) -> Path:
    return locate_file(spec, PAIRS, field="pairs", made="a run")


def test_valid_pairs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = broken(5, target=None)
    some[6]["part"], some[0]["part"] = "test", "held_out"
    file = write(tmp_path / "pairs", some)
    known, held = read_pairs(located(str(tmp_path / "pairs")))
    assert [pair.question_id for pair in held] == ["q0", "q1"]
    assert [pair.question_id for pair in known] == ["q2", "q3", "q4", "q7", "q8", "q9"]
    assert known[0] == TextPair("q2", "find 2", QUERIES[2])
    assert "1 of 10 lines" in caplog.text and located(str(file)) == file
    monkeypatch.chdir(tmp_path / "pairs")  # nothing named is not the directory one happens to be in
    for spec in ("", str(tmp_path), str(tmp_path / "none")):
        with pytest.raises(InputError, match=r"where there is no pairs\.jsonl"):
            located(spec)


def test_invalid_settings() -> None:
    for more, told in (
        ({"task": "poems"}, "task is 'poems'"),
        ({"evaluated": -1}, "evaluated is -1"),
        (
            {"training": StudentTraining(best="accuracy")},
            "best is 'accuracy', which is not evaluated",
        ),
        ({"training": StudentTraining(best="downstream")}, "downstream not given"),
        ({"task": "labels", "training": StudentTraining(best="similarity")}, "task is 'labels'"),
    ):
        with pytest.raises(InputError, match=told):
            job.TrainQueryOptimizer(**more)  # type: ignore[arg-type]


def test_a_student_has_the_questions_that_it_was_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their texts, or by the inputs where the pairs have none; nothing is trained here."""
    some = [line | {"question": f"Who found {i}?"} for i, line in enumerate(lines())]
    del some[9]["question"]
    settings = made(tmp_path, lines=some)
    monkeypatch.setattr(job.training, "train", lambda *some, keep, **more: keep(some[1].params, 0))
    monkeypatch.setattr(job, "_write_figures", lambda *_: None)
    path = settings.execute(tmp_path / "work").path
    seen = question_set("", [*(f"Who found {i}?" for i in range(2, 9)), "find 9"]).hashes
    np.testing.assert_array_equal(np.load(path / TRAINED_ON), seen)
    with pytest.raises(InputError, match="line 4: field 'question' is blank"):
        read_pairs(write(tmp_path / "pairs", broken(3, question=" ")))


def test_training_inputs_that_are_held_out_are_refused(tmp_path: Path) -> None:
    some = lines()
    some[5]["input"] = f"Find {some[0]['input'].removeprefix('find ')}?"
    settings = made(tmp_path, lines=some)
    with pytest.raises(InputError, match=r"(?s)1 of 8 training questions of .*its held-out pairs"):
        settings.execute(tmp_path / "work")
    assert not (tmp_path / "work").exists()
    with pytest.raises(InputError, match="leakage is 'no'"):
        made(tmp_path, leakage="no")
