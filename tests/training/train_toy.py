"""Trains one matrix and prints the hash of what came out: a process of its own for the tests.

python -m tests.training.train_toy DIRECTORY FSDP PROCESS PROCESSES PORT
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

from jaxrag.models.processes import is_first, shared
from jaxrag.training.loop import fit
from jaxrag.training.step import first_copy, grad_cache, make_step, training_mesh
from tests.training.contents import digest_of

STEPS, WIDTH = 3, 128  # so that the matrix is cut over "fsdp"


class Batch(NamedTuple):
    x: np.ndarray


class Batches:
    """Other random rows in every step."""

    def __init__(self) -> None:
        self.at = 0

    def __next__(self) -> Batch:
        self.at += 1
        random = np.random.default_rng(self.at)
        return Batch(random.normal(size=(8, WIDTH)).astype(np.float32))

    def get_state(self) -> Any:
        return {"at": self.at}

    def set_state(self, state: Any) -> None:
        self.at = state["at"]


def embed(params: Any, microbatch: Batch, key: jax.Array) -> jax.Array:
    return jax.numpy.tanh(microbatch.x @ params["w"])


def loss(vectors: jax.Array, batch: Batch) -> jax.Array:
    """Depends on all pairs of rows, as a contrastive loss does."""
    return -jax.numpy.diagonal(jax.nn.log_softmax(vectors @ vectors.T / WIDTH)).sum()


def train(directory: Path, *, fsdp: int = 1, devices: Any = None) -> str:
    """Trains in ``directory``, with the parameters in w.npy; their hash."""
    random = np.random.default_rng(0)
    params = {"w": np.float32(random.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5)}
    mesh = training_mesh(8, 2, fsdp=fsdp, devices=devices)
    step = make_step(grad_cache(embed, loss), optax.sgd(0.1), microbatch=2, mesh=mesh)
    state = fit(
        step.begin(params),
        Batches(),
        step.update,
        steps=STEPS,
        directory=directory,
        what="training",
        save_every=2,
    )
    params = first_copy(step.params(state))
    if is_first():
        np.save(directory / "w.npy", params["w"])
    return digest_of(params)


def main(directory: str, fsdp: str, process: str, processes: str, port: str) -> None:
    jax.distributed.initialize(f"localhost:{port}", int(processes), int(process))
    found = train(Path(directory), fsdp=int(fsdp))
    thirds = shared([*range(5)], lambda some: [number / 3 for number in some])
    print(json.dumps({"hash": found, "devices": jax.device_count(), "thirds": thirds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
