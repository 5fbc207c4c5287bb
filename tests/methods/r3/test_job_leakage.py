"""Trainings of SiDR and R3 refuse evaluated questions, and record what they trained on."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.data.leakage import TRAINED_ON, question_set
from jaxrag.methods.r3 import r3
from jaxrag.methods.r3.jobs import TrainR3, TrainSidr
from jaxrag.methods.r3.settings import SupervisedTraining, Update
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs.config_file import load
from jaxrag.runs.loading import load_data
from jaxrag.runs.run import execute
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run
from tests.retrieval.sidr import small_sidr
from tests.training.processes import on_one_device


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """40 questions, each with a gold passage; the last 8 training questions are others' texts."""
    here = tmp_path_factory.mktemp("leakage")
    run = load(str(write_small_run(here, questions=40)))
    rows = [json.loads(line) for line in (here / "data" / "queries.jsonl").read_text().splitlines()]
    training = [row | {"id": f"t{i}", "question": f"{row['question']} or {i}"} for i, row in
                enumerate(rows)]  # fmt: skip
    training[3]["question"] = f"The {rows[5]['question'].upper()}?"
    gold = [{"query_id": row["id"], "passage_ids": [f"p{i}"]} for i, row in enumerate(rows)]
    gold += [{"query_id": row["id"], "passage_ids": [f"p{i}"]} for i, row in enumerate(training)]
    for name, lines in (("train", training), ("qrels", gold)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (here / "data" / f"{name}.jsonl").write_text(text)
    reader = Reader(prompts=str(here / "prompts.toml"), answer_tokens=4)
    method = r3.Config(candidates=OnePath(n=3), select=Top(k=2), reader=reader)
    index = Sidr(str(small_sidr.write(here)), m=5, top=6, query_length=16, passage_length=24)
    return dataclasses.replace(run, method=method, index=index)


def without_evaluations(monkeypatch: Any) -> None:
    """Trains without evaluations, on one device."""
    on_one_device(monkeypatch)
    monkeypatch.setattr(TrainSidr, "_evaluation", lambda self: None)


def job_of(small: Any, **changes: Any) -> TrainSidr:
    training = SupervisedTraining(
        steps=1,
        batch=8,
        microbatch=4,
        update=Update(learning_rate=1e-3),
        save_every=1,
    )
    assert isinstance(small.index, Sidr)
    start = dataclasses.replace(small.index, search="beta")
    data = dataclasses.replace(small.data, split="train")
    fields = {"training": training, "evaluation_data": (small.data,), "cache": small.cache}
    return TrainSidr(start, (data,), Bm25(), **fields | changes)


def test_evaluated_questions_are_not_trained_on(
    small: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    job = job_of(small)
    named = r"1 of 40 training questions of data train are questions of the evaluated data data q"
    with pytest.raises(InputError, match=named):  # folder "data", splits train and queries
        job.execute(tmp_path / "refused")
    assert not (tmp_path / "refused").exists()
    without_evaluations(monkeypatch)
    path = dataclasses.replace(job, leakage="drop").execute(tmp_path / "dropped").path
    texts = [q.text for q in load_data(job.data[0], Path(job.cache)).questions]
    trained = question_set("", texts[:3] + texts[4:]).hashes
    np.testing.assert_array_equal(np.load(path / TRAINED_ON), trained)
    recorded = json.loads((tmp_path / "dropped" / "config.json").read_text())["config"]
    assert recorded["training"]["leakage"] == "drop"


def test_questions_that_are_evaluated_later_are_not_trained_on(
    small: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    job = job_of(small, evaluation_data=(), evaluated_later=(small.data,))
    with pytest.raises(InputError, match=r"1 of 40 training questions of data train are"):
        job.execute(tmp_path / "refused")


def test_what_a_checkpoint_has_seen_is_not_evaluated_with_it(
    small: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    without_evaluations(monkeypatch)
    first = job_of(small, leakage="keep").execute(tmp_path / "first").path
    start = dataclasses.replace(job_of(small).start, checkpoint=str(first))
    train = dataclasses.replace(small.data, split="train")
    run = dataclasses.replace(small, index=start)
    with pytest.raises(InputError, match=r"(?s)config.index .* was trained on 1 of the 40 .*=keep"):
        execute(run, tmp_path / "run")
    kept = dataclasses.replace(run, leakage="keep", limit=6)
    execute(kept, tmp_path / "kept")
    assert (
        json.loads((tmp_path / "kept" / "config.json").read_text())["config"]["leakage"] == "keep"
    )
    # another training that starts there counts its questions as well
    with pytest.raises(InputError, match=r"(?s)config.start.checkpoint .* was trained on 1 of"):
        dataclasses.replace(job_of(small), start=start, data=(train,)).execute(tmp_path / "second")
    late = dataclasses.replace(start, search="late")
    with pytest.raises(InputError, match=r"(?s)config.start.checkpoint .* was trained on 1 of"):
        TrainR3(late, train, small.data, small.model, small.method, cache=small.cache).execute(
            tmp_path / "r3"
        )
    fresh = dataclasses.replace(late, checkpoint=job_of(small).start.checkpoint)
    with pytest.raises(InputError, match="1 of 40 training questions of data"):
        TrainR3(fresh, train, small.data, small.model, small.method, cache=small.cache).execute(
            tmp_path / "r3"
        )


def test_settings_are_checked(small: Any) -> None:
    wrong: Any = "no"
    for make in (job_of, dataclasses.replace):
        with pytest.raises(InputError, match=r"leakage is 'no'; allowed: refuse, drop, keep"):
            make(small, leakage=wrong)
