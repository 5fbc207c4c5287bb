"""Answers and scores of the local engine on a GPU beside those on the CPU, for real prompts.

    python -m benchmarks.gpu.answers

SmolLM2-135M-Instruct and the 256 prompts of `benchmarks.generation`, at temperature 0. The CPU
computes in float32, in another process meanwhile. Equal tokens and log-probabilities to a bound are
what docs/engines.md promises in float32; other dtypes are for comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.generation import CHECKPOINT, STOP, Work, workloads
from jaxrag.engines.local.engine import Local, LocalModel

_SETTINGS: dict[str, dict[str, Any]] = {
    "float32": {"dtype": "float32"},
    "bfloat16": {"dtype": "bfloat16"},
    "float16": {"dtype": "float16"},
    "bfloat16, int8": {"dtype": "bfloat16", "quantization": "int8"},
}


def answer(model: LocalModel, works: dict[str, Work]) -> dict[str, Any]:
    """Tokens and log-probabilities of answers, and scores of texts."""
    made, scored = works["generation"], works["scoring"]
    found = model.generate(made.prompts, max_new_tokens=made.new_tokens, stop=STOP)
    return {
        "tokens": [list(map(int, one.tokens)) for one in found],
        "logprobs": [list(map(float, one.logprobs)) for one in found],
        "scores": [one.tolist() for one in model.logprob(scored.prompts, scored.texts)],
    }


def _timed(settings: dict[str, Any], works: dict[str, Work]) -> tuple[dict[str, Any], float]:
    """Answers of a model that has compiled its programs, and the seconds that they take."""
    model = LocalModel.load(Local(CHECKPOINT, **settings))
    answer(model, works)
    start = time.perf_counter()
    return answer(model, works), time.perf_counter() - start


def compare(name: str, made: dict[str, Any], reference: dict[str, Any], seconds: float) -> None:
    """Prints how many answers are the same, and how far log-probabilities are apart."""
    same = [a == b for a, b in zip(made["tokens"], reference["tokens"], strict=True)]
    pairs = zip(made["logprobs"], reference["logprobs"], strict=True)
    apart = [
        np.abs(np.subtract(a, b)).max() for (a, b), s in zip(pairs, same, strict=True) if s and a
    ]
    scores = zip(made["scores"], reference["scores"], strict=True)
    scored = max(np.abs(np.subtract(a, b)).max() for a, b in scores if a)
    tokens = sum(map(len, made["tokens"]))
    print(
        f"{name:16} {sum(same)} of {len(same)} answers have the CPU's tokens; log-probabilities of "
        f"these within {max(apart, default=0.0):.1e} nats, of given texts within {scored:.1e}; "
        f"{tokens} tokens, with all scores {seconds:.2f} s",
        flush=True,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.answers", description=__doc__)
    parser.add_argument("--write", type=Path, help="only write the CPU's answers to this file")
    parser.add_argument(
        "--reference", type=Path, help="such a file; by default it is made meanwhile"
    )
    parser.add_argument("--only", nargs="*", default=list(_SETTINGS), choices=list(_SETTINGS))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        works = workloads(Path(folder), 0)
        if options.write:
            model = LocalModel.load(Local(CHECKPOINT, "float32"))
            options.write.write_text(json.dumps(answer(model, works)), "utf-8")
            return 0
        if jax.default_backend() != "gpu":
            sys.exit("JAX finds no GPU: pip install 'jaxrag[cuda13]', and check nvidia-smi.")
        reference = options.reference or Path(folder, "reference.json")
        command = [sys.executable, "-m", "benchmarks.gpu.answers", f"--write={reference}"]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        process = None if options.reference else subprocess.Popen(command, env=environment)
        print(f"{jax.devices()[0].device_kind}, jax {jax.__version__}", flush=True)
        try:
            for name in options.only:
                made, seconds = _timed(_SETTINGS[name], works)
                if process and process.wait():
                    sys.exit("The process that answers on the CPU failed.")
                compare(name, made, json.loads(reference.read_text("utf-8")), seconds)
        finally:
            if process:
                process.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main())
