"""Builds the index of a config's corpus, or continues an interrupted build.

    jaxrag index --config configs/dtr.py:dtr@factbook

`jaxrag run` also builds a missing index; this script builds it in advance, on one machine or
on several. All local devices are used.

``--distributed auto`` or ``--distributed HOST:PORT,PROCESSES,PROCESS`` (see `jaxrag run`): the
command is started in several processes that share the cache's directory, and each builds its share
of the files. If one of them dies all stop; the same commands go on.

``--shard 0/2`` and ``--shard 1/2``: as many jobs that know nothing of each other, such as those of
a job array, each of which builds its share of the files in one directory on a shared disk. The last
to finish joins the parts. The command without ``--shard`` verifies what is there, and builds what
is missing, such as the files of a machine that died.

An index's bytes do not depend on the number of processes and devices. On CPUs they do, in the last
bits, on the number of cores.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import jax

from jaxrag.experiments.configuration import parse, script
from jaxrag.experiments.run import join
from jaxrag.retrieval.corpus.builds import BuildPart
from jaxrag.runs.loading import build_index
from jaxrag.runs.parts import open_index
from jaxrag.runs.run import Run
from jaxrag.types import InputError


def main(argv: Sequence[str]) -> int:
    """Builds the index, or a share of it."""
    run, values = parse(argv, "index", kind=Run)
    if run.index is None:
        raise InputError(f"{run.name} has no index: set config.index.")
    if values.distributed and values.shard:
        raise InputError("give --distributed or --shard.")
    cache, started = Path(run.cache), time.monotonic()
    if values.distributed:
        join(values.distributed)
        first = jax.process_index() == 0
        build_index(run.index, run.data, cache, BuildPart(jax.process_index(), jax.process_count()))
        jax.distributed.shutdown()  # waits for the others
        if not first:
            return 0
    elif values.shard:
        part = _part(values.shard)
        status = build_index(run.index, run.data, cache, part)
        print(f"share {values.shard}: done, {time.monotonic() - started:.0f} s")
        print(f"{status.directory}: {status.state}")
        return 0
    index = open_index(run, cache)
    print(f"{len(index.passages):,} passages, {time.monotonic() - started:.0f} s: {index.identity}")
    return 0


def _part(text: str) -> BuildPart:
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit()):
        raise InputError(f"--shard is {text!r}: give I/N, such as 0/2 on one machine and 1/2.")
    return BuildPart(int(number), int(count))


if __name__ == "__main__":
    script(main)
