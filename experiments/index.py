"""Builds the index of a config's corpus, or continues an interrupted build.

    python -m experiments.index --config configs/dtr.py:dtr@factbook

`experiments.run` also builds a missing index; this script builds it in advance.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from experiments.configuration import parse, script
from jaxrag.runs.run import Run, open_index


def main(argv: Sequence[str]) -> int:
    """Builds and opens the index."""
    run, _ = parse(argv, lambda values: None, kind=Run)
    started = time.monotonic()
    index = open_index(run, Path(run.cache))
    print(f"{len(index.passages):,} passages, {time.monotonic() - started:.0f} s: {index.identity}")
    return 0


if __name__ == "__main__":
    script(main)
