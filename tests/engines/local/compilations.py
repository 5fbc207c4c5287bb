"""Uses small networks and prints how many programs were compiled, and read from the cache.

    python -m tests.engines.local.compilations DIRECTORY PART

PART "model" answers and scores with the checkpoint DIRECTORY/model; "index" builds and searches an
index of DIRECTORY/data by DIRECTORY/bert. Compiled programs are cached in DIRECTORY/cache.
"""

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import jax

from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import Local
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.runs.loading import open_index_over


def main(directory: str, part: str) -> None:
    counts: Counter[str] = Counter()

    def count(event: str, **_: Any) -> None:
        counts[event.rpartition("/")[2]] += 1

    jax.monitoring.register_event_listener(count)
    cache = Path(directory) / "cache"
    if part == "model":
        model = Local(f"{directory}/model").load(cache)
        model.generate(["the cat", "a river of words"], max_new_tokens=4, temperature=0.0)
        model.logprob(["the cat"], [" sat"])
    else:
        encoder = BiEncoder(f"{directory}/bert", max_length=32)
        index: Any = open_index_over(Exact(encoder), Folder(f"{directory}/data"), cache)
        index.search(index.embed(["the cat"]), 3)
    read = counts["cache_hits"]
    print(counts["compile_requests_use_cache"] - read, read)


if __name__ == "__main__":
    main(*sys.argv[1:])
