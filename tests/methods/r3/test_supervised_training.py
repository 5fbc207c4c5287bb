import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrag.methods.r3.settings import SupervisedTraining
from jaxrag.methods.r3.supervised_training import Example, batches, mine
from jaxrag.retrieval.bm25.index import Bm25Index
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.training import grad_cache
from jaxrag.types import InputError, Passage, Question
from tests.methods.r3 import small_sidr
from tests.models.bert import small_bert
from tests.training import processes, train_small
from tests.training.processes import finished, free_port

TEXTS = (
    "Rome is the capital of Italy",
    "Paris is the capital of France",
    "the capital of France has a river",
    "the capital markets of France are in Paris",
    "a cat sat on the mat",
    "France borders Italy",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sidr")
    train_small.make(directory / "made")
    return directory


def fresh(made: Path, directory: Path) -> Path:
    (directory / "made").symlink_to(made / "made")
    return directory


@pytest.mark.parametrize("task", ["open", "yes_no", "labels"])
def test_words_of_closed_answers_are_no_distant_positives(tmp_path: Path, task: str) -> None:
    """A passage with the word "no" does not answer, and is a hard negative like others."""
    texts = ("no cheese is made in Oslo", "cheese of Oslo is imported")
    passages = write_passages(
        tmp_path / "corpus", (Passage(f"p{i}", "", text) for i, text in enumerate(texts))
    )
    index = Bm25Index.build(tmp_path / "bm25", passages)
    question = Question(
        "q", "is cheese made in Oslo", ("no",), ("yes", "no")[: 2 * (task == "labels")], task
    )
    with pytest.raises(InputError, match="None of the 1 questions"):
        mine([question], {}, passages, index)
    (example,) = mine([question], {"q": [1]}, passages, index)
    assert example.positives == (1,) and example.negatives == (0,)


def test_negatives_rank_high_and_contain_no_answer(tmp_path: Path) -> None:
    passages = write_passages(
        tmp_path / "corpus", (Passage(f"p{i}", "", text) for i, text in enumerate(TEXTS))
    )
    index = Bm25Index.build(tmp_path / "bm25", passages)
    known = Question("known", "what is the capital of France", ("Paris",))
    unknown = Question("unknown", "what is the capital of Italy", ("Rome",))
    lost = Question("lost", "which cat sat on the mat", ("Felix",))
    found = mine([known, unknown, lost], {"known": [1]}, passages, index)
    assert [example.question for example in found] == [known.text, unknown.text]
    # known: 1 is gold, 3 holds the answer; of the rest 2 has both words, then 0 or 5 have one
    assert found[0].positives == (1,)
    assert found[0].negatives[0] == 2 and {*found[0].negatives} == {0, 2, 5}
    # unknown has no gold: the first passage with the answer takes its place
    assert found[1].positives == (0,) and {*found[1].negatives} == {1, 2, 3, 5}
    only = mine([known, unknown], {"known": [1]}, passages, index, distant=0)
    assert [example.question for example in only] == [known.text]
    with pytest.raises(InputError, match="None of the 1 questions has a gold passage"):
        mine([lost], {}, passages, index)


def loader(made: Path, examples: Any = None, **changes: Any) -> Any:
    encoder = SidrEncoder.load(
        str(made / "made" / "bert"), first=4, top=8, query_length=16, passage_length=16
    )
    settings = SupervisedTraining(batch=8, microbatch=2, **changes)
    corpus = Passages.open(made / "made" / "passages")
    return batches(examples or train_small.examples(), corpus, encoder, settings)


def ids(batch: Any) -> list[Any]:
    return [np.asarray(x).tolist() for x in (*batch.queries, *batch.passages)]


def test_the_order_depends_on_the_seed_and_resumes(made: Path) -> None:
    first, again, other = loader(made), loader(made), loader(made, seed=1)
    found = [ids(next(first)) for _ in range(5)]
    assert found == [ids(next(again)) for _ in range(5)]
    assert found != [ids(next(other)) for _ in range(5)]
    state = json.loads(json.dumps(first.get_state()))
    rest = [ids(next(first)) for _ in range(4)]
    later = loader(made)
    later.set_state(state)
    assert rest == [ids(next(later)) for _ in range(4)]


def test_each_question_is_visited_once_an_epoch_with_its_passages(made: Path) -> None:
    named = [
        Example(f"the {word}", (i,), (20 + i, 30)) for i, word in enumerate(small_bert.WORDS[:16])
    ]
    data = loader(made, named, negatives=2)
    epochs = [[next(data) for _ in range(2)] for _ in range(2)]
    orders = []
    for epoch in epochs:
        rows = np.concatenate([batch.queries.ids[:, 2] for batch in epoch])
        assert sorted(rows) == list(range(4, 20))  # the words' ids
        orders.append(rows.tolist())
    assert orders[0] != orders[1]
    batch = epochs[0][0]
    passages = Passages.open(made / "made" / "passages")
    tokenizer = small_bert.tokenizer(small_sidr.BERT)
    for place, word in enumerate(batch.queries.ids[:, 2]):
        number = int(word) - 4
        wanted = tokenizer(passages[number].text).input_ids
        assert batch.passages.ids[3 * place, : len(wanted)].tolist() == wanted
        drawn = [tuple(batch.passages.ids[3 * place + k, :5].tolist()) for k in (1, 2)]
        both = [tuple(tokenizer(passages[row].text).input_ids) for row in (20 + number, 30)]
        assert sorted(drawn) == sorted(both)


def test_missing_negatives_are_other_questions_positives(made: Path) -> None:
    data = loader(made, [Example("the cat", (i,), ()) for i in range(8)])
    batch = next(data)
    pairs = batch.passages.ids.reshape(8, 2, -1)
    assert (pairs[:, 0] != pairs[:, 1]).any(axis=1).all()


def test_too_few_questions_are_refused(made: Path) -> None:
    with pytest.raises(InputError, match="3 questions to train on, fewer than a batch of 8"):
        loader(made, train_small.examples()[:3])
    with pytest.raises(InputError, match="2 different positive passages, too few"):
        loader(made, [Example("the cat", (i % 2,), ()) for i in range(8)], negatives=4)
    for wrong in ({"epochs": 0.0}, {"negatives": -1}, {"steps": -1}):
        with pytest.raises(InputError, match=f"{next(iter(wrong))} "):
            SupervisedTraining(**wrong)


class Stop(Exception):
    pass


@pytest.mark.slow
def test_a_resumed_training_ends_in_the_same_bits(made: Path, tmp_path: Path) -> None:
    """Stopped after step 4 of 5, before its checkpoint, and started again; and never stopped.

    That the devices may be others when it goes on is tried with the processes below.
    """
    seen: list[int] = []

    def evaluate(encoder: SidrEncoder, step: int) -> dict[str, np.ndarray]:
        seen.append(step)
        if len(seen) == 3:
            raise Stop
        return {"norm": np.linalg.norm(encoder.embed(["the cat"]), axis=1)}

    stopped, whole = (fresh(made, tmp_path / name) for name in ("stopped", "whole") if not
                      (tmp_path / name).mkdir())  # fmt: skip
    one = grad_cache.data_mesh(jax.devices()[:1])
    with pytest.raises(Stop):
        train_small.train(stopped, 5, evaluate=evaluate, save_every=2, mesh=one)
    assert seen == [0, 2, 4]
    found = train_small.train(stopped, 5, evaluate=lambda *_: {}, save_every=2, mesh=one)
    assert found == train_small.train(whole, 5, evaluate=lambda *_: {}, save_every=2, mesh=one)
    lines = [
        [json.loads(line) for line in (place / "run" / "metrics.jsonl").read_text().splitlines()]
        for place in (stopped, whole)
    ]
    assert [line["step"] for line in lines[0]] == list(range(6))
    losses = [[line.get("loss") for line in some] for some in lines]
    assert losses[0] == losses[1] and len({*losses[0]}) == 6


def started(directory: Path, steps: int, *more: Any, devices: int) -> subprocess.Popen[str]:
    words = directory, steps, *more
    return processes.started("tests.training.train_small", *words, devices=devices)


def wait_for(process: subprocess.Popen[str], figures: Path, step: int) -> None:
    """Returns once a running training has figures of a step."""
    until = time.monotonic() + 1500
    while not figures.exists() or f'"step": {step},' not in figures.read_text():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.slow
def test_devices_processes_and_kills_change_nothing_in_200_steps(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what is killed as it writes a program would leave half of one to the other tests
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "programs"))
    places = {}
    for name in ("one", "eight", "two processes", "killed"):
        (tmp_path / name).mkdir()
        places[name] = fresh(made, tmp_path / name)
    one = finished(started(places["one"], 200, devices=1))
    assert one["devices"] == 1
    eight = finished(started(places["eight"], 200, devices=8))
    assert eight == {"hash": one["hash"], "devices": 8}
    port = free_port()
    both = [started(places["two processes"], 200, p, 2, port, devices=2) for p in (0, 1)]
    for process in both:
        assert finished(process) == {"hash": one["hash"], "devices": 4}
    for devices, reached in ((2, 35), (1, 90), (4, 151)):
        process = started(places["killed"], 200, devices=devices)
        wait_for(process, places["killed"] / "run" / "metrics.jsonl", reached)
        process.kill()
        process.communicate()
    last = finished(started(places["killed"], 200, devices=2))
    assert last == {"hash": one["hash"], "devices": 2}
    shutil.rmtree(tmp_path)


@pytest.mark.slow
def test_two_processes_give_the_bits_of_one(made: Path, tmp_path: Path) -> None:
    """The default suite has two processes with a smaller network, in tests/training/test_loop."""
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    one = train_small.train(
        fresh(made, tmp_path / "one"), 2, mesh=grad_cache.data_mesh(jax.devices()[:1])
    )
    port, two = free_port(), fresh(made, tmp_path / "two")
    both = [started(two, 2, process, 2, port, devices=1) for process in (0, 1)]
    began = time.monotonic()
    assert [finished(process) for process in both] == [{"hash": one, "devices": 2}] * 2
    assert time.monotonic() - began < 600
