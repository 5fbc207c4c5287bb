"""Trains a small SiDR and prints the hash of what came out: a process of its own for the tests.

    python -m tests.training.train_small DIRECTORY STEPS FSDP [PROCESS PROCESSES PORT]

DIRECTORY/made holds the data; checkpoints go to DIRECTORY/run.
"""

import json
import sys
from pathlib import Path

import jax

from jaxrag.methods.r3 import supervised_training as sidr
from jaxrag.methods.r3.contrastive import train_towers
from jaxrag.methods.r3.settings import SupervisedTraining, Update
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.types import Passage
from tests.methods.r3 import small_sidr
from tests.models.bert import small_bert
from tests.models.bert.small_bert import WORDS
from tests.training.contents import digest_of

QUESTIONS, PASSAGES = 24, 40


def make(directory: Path) -> None:
    """The data and the network to begin with."""
    texts = [f"{WORDS[i % 18]} {WORDS[i * 5 % 17]} {WORDS[i * 7 % 13]}" for i in range(PASSAGES)]
    write_passages(directory / "passages", (Passage(f"p{i}", "", t) for i, t in enumerate(texts)))
    config = small_sidr.BERT | {"vocab_size": 4 + len(WORDS)}
    small_bert.write(directory / "bert", config, classifier=False)


def examples() -> list[sidr.Example]:
    return [
        sidr.Example(f"{WORDS[i % 18]} {WORDS[i * 5 % 17]}", (i,), tuple(range(30, 30 + i % 5)))
        for i in range(QUESTIONS)
    ]


def train(
    directory: Path, steps: int, *, fsdp: int = 1, evaluate=None, save_every: int = 5, devices=None
) -> str:
    """Trains in ``directory``/run; the hash of the parameters."""
    made = directory / "made"
    encoder = SidrEncoder.load(
        str(made / "bert"), first=4, top=8, query_length=16, passage_length=16, scale=0.3
    )
    settings = SupervisedTraining(
        steps=steps,
        batch=16,
        microbatch=8,
        fsdp=fsdp,
        update=Update(learning_rate=2e-3, top=8, warmup=2),
        save_every=save_every,
        evaluate_every=save_every if evaluate else 0,
    )
    data = sidr.batches(examples(), Passages.open(made / "passages"), encoder, settings)
    params = train_towers(
        encoder, data, settings, directory / "run", questions=QUESTIONS, name="training",
        evaluate=evaluate, devices=devices,
    )  # fmt: skip
    return digest_of(params)


def main(
    directory: str, steps: str, fsdp: str, process: str = "", processes: str = "", port: str = ""
) -> None:
    if process:
        jax.distributed.initialize(f"localhost:{port}", int(processes), int(process))
    found = train(Path(directory), int(steps), fsdp=int(fsdp))
    print(json.dumps({"hash": found, "devices": jax.device_count()}))


if __name__ == "__main__":
    main(*sys.argv[1:])
