"""Executes a small training job and prints the hash of what came out: a process of its own.

    python -m tests.training.train_job NAME DIRECTORY [PROCESS PROCESSES PORT [KILLED]]

NAME is one of `JOBS`. DIRECTORY gets its inputs and, in "run", its results. The last process kills
itself while it saves step KILLED. The language model of "ppo" and "r3" is scripted.
"""

import contextlib
import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import numpy as np

from jaxrag.core.hashing import digest_file
from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import Local
from jaxrag.methods.errr.ppo import job as ppo_job
from jaxrag.methods.r3 import jobs as r3_jobs
from jaxrag.methods.r3 import r3
from jaxrag.methods.r3.settings import R3Training, SupervisedTraining, Update
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.dpr import Dpr
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.training.checkpoints import Checkpoints
from jaxrag.types import Generation
from tests.experiments.small_run import PROMPTS
from tests.methods.ars.ranker import test_job as rankers
from tests.methods.errr import test_student as students
from tests.methods.errr.ppo import test_job as rewriters
from tests.methods.errr.test_errr import Reads
from tests.models.bert import small_bert
from tests.models.bert.small_bert import WORDS
from tests.retrieval.sidr import small_sidr


class Coin:
    """Answers "rome" or "oslo", and finds "rome" probable, by the letters of the prompt."""

    identity = '{"model":"coin"}'

    def generate(self, prompts: Sequence[Any], **_: Any) -> list[Generation]:
        texts = ["rome" if self._number(one) % 2 else "oslo" for one in prompts]
        return [Generation(text, (1,), (-1.0,), "stop", 3) for text in texts]

    def logprob(self, prompts: Sequence[Any], continuations: Sequence[str]) -> list[np.ndarray]:
        return [np.float32([-3.0 + (self._number(one) % 101) / 50]) for one in prompts]

    @staticmethod
    def _number(prompt: Any) -> int:
        return sum(place * ord(letter) for place, letter in enumerate(str(prompt)))


def ranker(inputs: Path) -> Any:
    inputs.mkdir(parents=True, exist_ok=True)
    how = dataclasses.replace(rankers.HOW, batch=8, microbatch=8)
    return rankers.made(inputs, training=how)


def student(inputs: Path) -> Any:
    inputs.mkdir(parents=True, exist_ok=True)
    made = students.made(inputs)
    return dataclasses.replace(
        made, training=dataclasses.replace(made.training, batch=8, microbatch=8)
    )


def ppo(inputs: Path) -> Any:
    inputs.mkdir(parents=True, exist_ok=True)
    return rewriters.small(inputs)


def data_of(inputs: Path) -> tuple[Folder, Folder]:
    """16 questions to train on and 5 to evaluate, over 40 passages."""
    data = inputs / "data"
    data.mkdir(parents=True, exist_ok=True)
    some = [(WORDS[i % 18], WORDS[i * 5 % 17]) for i in range(40)]
    texts = [f"{a} {b}" for a, b in some]
    rows = {
        "corpus": [{"id": f"p{i}", "title": "", "text": text} for i, text in enumerate(texts)],
        "train": [
            {"id": f"t{i}", "question": f"{a} {b} {i}", "answers": ["rome"]}
            for i, (a, b) in enumerate(some[:16])
        ],
        "queries": [
            {"id": f"q{i}", "question": f"is {a} {b}", "answers": ["rome"]}
            for i, (a, b) in enumerate(some[:5])
        ],
        "qrels": [
            {"query_id": name, "passage_ids": [f"p{i}"]}
            for i in range(16) for name in (f"t{i}", f"q{i}")[: 1 + (i < 5)]
        ],
    }  # fmt: skip
    for name, lines in rows.items():
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (data / f"{name}.jsonl").write_text(text)
    return Folder(str(data), split="train"), Folder(str(data))


def sidr(inputs: Path) -> Any:
    """SiDR on negatives of BM25; four steps."""
    train, held_out = data_of(inputs)
    start = Sidr(str(small_sidr.write(inputs)), m=20, top=6, query_length=16, passage_length=24)
    training = SupervisedTraining(
        epochs=2, batch=8, microbatch=8, update=Update(learning_rate=1e-3, top=6), save_every=1,
        evaluate_every=2,
    )  # fmt: skip
    cache = str(inputs / "cache")
    return r3_jobs.TrainSidr(start, (train,), Bm25(), training, (held_out,), depth=6, cache=cache)


def dpr(inputs: Path) -> Any:
    """DPR on negatives of BM25; four steps."""
    train, _ = data_of(inputs)
    training = SupervisedTraining(
        epochs=2, batch=8, microbatch=8, update=Update(learning_rate=1e-3, form="dpr"), save_every=1
    )
    return r3_jobs.TrainDpr(
        _bert(inputs), (train,), Bm25(), training, depth=6, cache=str(inputs / "cache")
    )


def _bert(inputs: Path) -> Dpr:
    config = small_bert.BERT | {"vocab_size": 4 + len(WORDS), "num_hidden_layers": 1}
    return Dpr(str(small_bert.write(inputs / "bert", config, classifier=False)), max_length=24)


def reindexed(inputs: Path) -> Any:
    """R3 from DPR, whose vectors are computed again after two of three steps."""
    update = Update(learning_rate=1e-3)
    made = retriever(inputs)
    training = dataclasses.replace(made.training, update=update)
    changes = {"search": "reindexed", "reindex_every": 2, "training": training}
    return dataclasses.replace(made, start=_bert(inputs), **changes)


def retriever(inputs: Path) -> Any:
    """R3; three steps, two of them online."""
    train, held_out = data_of(inputs)
    (inputs / "prompts.toml").write_text(PROMPTS)
    reader = Reader(prompts=str(inputs / "prompts.toml"), answer_tokens=4)
    training = R3Training(
        steps=3, batch=8, microbatch=8, warmup=0.4, update=Update(learning_rate=1e-3, top=6),
        save_every=1, evaluations=1,
    )  # fmt: skip
    return r3_jobs.TrainR3(
        Sidr(str(small_sidr.write(inputs)), m=5, top=6, query_length=16, passage_length=24),
        train, held_out, Local(),
        r3.Config(candidates=OnePath(n=3), select=Top(k=1), reader=reader), training, depth=6,
        cache=str(inputs / "cache"), store="memory",
    )  # fmt: skip


JOBS: dict[str, Callable[[Path], Any]] = {
    "ranker": ranker, "student": student, "ppo": ppo, "sidr": sidr, "dpr": dpr, "r3": retriever,
    "reindexed": reindexed,
}  # fmt: skip


def execute(name: str, directory: Path, inputs: str, **changes: Any) -> dict[str, Any]:
    """Executes a job in ``directory``/run; hashes of its checkpoint, and metrics of its steps.

    ``changes`` are of the job's training.
    """
    patches = (
        mock.patch.object(ppo_job, "load_model", lambda *_: Reads({})),
        mock.patch.object(r3_jobs, "load_model", lambda *_: Coin()),
    )
    with patches[0], patches[1]:
        job = JOBS[name](directory / inputs)
        job = dataclasses.replace(job, training=dataclasses.replace(job.training, **changes))
        trained = job.execute(directory / "run").path
    if jax.process_index():
        return {}
    weights = sorted(trained.rglob("*.safetensors"))
    lines = map(json.loads, (directory / "run" / "metrics.jsonl").read_text().splitlines())
    return {
        "weights": [digest_file(file) for file in weights],
        "metrics": [{k: v for k, v in line.items() if "seconds" not in k} for line in lines],
        "devices": jax.device_count(),
    }


def _killed_at(last: int) -> Any:
    """A stand-in of `Checkpoints.save` that ends the process, as SIGKILL does, at step ``last``."""
    real = Checkpoints.save

    def save(self: Checkpoints, step: int, *args: Any) -> None:
        if step == last:
            self.wait()  # for the checkpoint before
            os.kill(os.getpid(), signal.SIGKILL)
        real(self, step, *args)

    return mock.patch.object(Checkpoints, "save", save)


def main(
    name: str,
    directory: str,
    process: str = "0",
    processes: str = "",
    port: str = "",
    killed: str = "0",
) -> None:
    if processes:
        jax.distributed.initialize(f"localhost:{port}", int(processes), int(process))
    # processes of one job do not write the inputs of each other
    last = bool(processes) and int(process) == int(processes) - 1
    with _killed_at(int(killed)) if last else contextlib.nullcontext():
        found = execute(name, Path(directory), f"inputs-{process}", save_every=1)
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
