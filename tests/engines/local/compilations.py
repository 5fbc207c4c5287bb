"""Answers and scores with a small model and prints how many programs were compiled, and read.

    python -m tests.engines.local.compilations DIRECTORY

The directory holds a checkpoint under ``model``; compiled programs are cached in it.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jax

from jaxrag.engines.local.engine import Local


def main(directory: str) -> None:
    counts: Counter[str] = Counter()

    def count(event: str, **_: Any) -> None:
        counts[event.rpartition("/")[2]] += 1

    jax.monitoring.register_event_listener(count)
    model = Local(f"{directory}/model").load(Path(directory))
    model.generate(["the cat", "a river of words"], max_new_tokens=4, temperature=0.0)
    model.logprob(["the cat"], [" sat"])
    read = counts["cache_hits"]
    print(counts["compile_requests_use_cache"] - read, read)


if __name__ == "__main__":
    main(*sys.argv[1:])
