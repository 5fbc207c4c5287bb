"""Calls a model over the devices of all processes and prints the results: a process for the tests.

python -m tests.engines.local.span MODEL STACKED [PROCESS PROCESSES PORT]
"""

import json
import sys

import jax

from jaxrag.engines.local.engine import LocalModel
from jaxrag.models.sharding import device_mesh

PROMPTS = ["a cat", "the river bank is", "paris paris"]


def main(model: str, stacked: str, process: str = "0", processes: str = "", port: str = "") -> None:
    if processes:
        jax.distributed.initialize(f"localhost:{port}", int(processes), int(process))
    local = LocalModel.load(
        model,
        mesh=device_mesh(data=2, model=2, spanning=True),
        stacked=stacked == "stacked",
        prefill_rows=2,
        decode_rows=4,
        chunk=8,
    )
    sampled = local.generate(
        PROMPTS, max_new_tokens=9, temperature=1.0, seed=3, repetition_penalty=1.3
    )
    (inspected,) = local.inspect(PROMPTS[:1], [" on a mat"])
    print(
        json.dumps(
            {
                "devices": jax.device_count(),
                "tokens": [one.tokens for one in sampled],
                "logprobs": [one.logprobs for one in sampled],
                "scores": [x.tolist() for x in local.logprob(PROMPTS, [" x y", " the", " a mat"])],
                "entropies": inspected.entropies.tolist(),
                "state": inspected.state.tolist(),
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
