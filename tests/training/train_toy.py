"""Trains one matrix and prints the hash of what came out: a process of its own for the tests.

python -m tests.training.train_toy DIRECTORY PROCESS PROCESSES PORT
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from jaxrag.core.hashing import canonical, digest
from jaxrag.models.processes import shared
from jaxrag.training import grad_cache
from jaxrag.training.checkpoints import hashes
from jaxrag.training.loop import fit
from jaxrag.training.optimisation import make_optimiser, make_step, with_step

STEPS = 3


class Batch(NamedTuple):
    x: np.ndarray
    step: np.ndarray


class Batches:
    """Other random rows in every step."""

    def __init__(self) -> None:
        self.at = 0

    def __next__(self) -> Batch:
        self.at += 1
        random = np.random.default_rng(self.at)
        return Batch(random.normal(size=(8, 5)).astype(np.float32), np.zeros(8, np.int32))

    def get_state(self) -> Any:
        return {"at": self.at}

    def set_state(self, state: Any) -> None:
        self.at = state["at"]


def embed(params: Any, microbatch: Batch) -> jax.Array:
    return jax.numpy.tanh(microbatch.x @ params["w"])


def loss(vectors: jax.Array, batch: Batch) -> jax.Array:
    """Depends on all pairs of rows, as a contrastive loss does."""
    return -jax.numpy.diagonal(jax.nn.log_softmax(vectors @ vectors.T)).sum()


def train(directory: Path, mesh: Mesh) -> str:
    """Trains in ``directory``; the hash of the parameters."""
    params = {"w": np.float32(np.random.default_rng(0).normal(size=(5, 3)))}
    optimiser = make_optimiser(0.1, weight_decay=0.01, clip=0.5)
    step = make_step(optimiser, embed, loss, microbatch=2, mesh=mesh, prepare=with_step)
    state = fit(
        step.begin(params),
        Batches(),
        step.update,
        steps=STEPS,
        directory=directory,
        what="training",
        save_every=2,
    )
    return digest(canonical(hashes(state.params)))


def main(directory: str, process: str, processes: str, port: str) -> None:
    jax.distributed.initialize(f"localhost:{port}", int(processes), int(process))
    found = train(Path(directory), grad_cache.data_mesh())
    thirds = shared([*range(5)], lambda some: [number / 3 for number in some])
    print(json.dumps({"hash": found, "devices": jax.device_count(), "thirds": thirds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
