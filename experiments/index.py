"""Builds the index of a config's corpus, or continues an interrupted build.

    python -m experiments.index --config configs/dtr.py:dtr@factbook

`experiments.run` also builds a missing index; this script builds it in advance, on one machine or
on several. All local devices are used.

``--estimate`` builds for a minute and prints passages a second, the hours that the whole takes on
this machine, its size on disk and the memory that a search needs; what was built is kept.

``--distributed auto`` or ``--distributed HOST:PORT,PROCESSES,PROCESS`` (see `experiments.run`): the
command is started in several processes that share the cache's directory, and each builds its share
of the files. If one of them dies all stop; the same commands go on.

``--shard 0/2`` and ``--shard 1/2``: as many machines that know nothing of each other, each of which
builds its share of the files, in one directory on a shared disk or each in a cache of its own. The
last of a shared directory closes the index. ``--merge DIR,DIR`` copies the finished files of other
directories (caches, or the index's own directories) after comparing their hashes. The command
without these flags verifies what is there, and builds what is missing, such as the files of a
machine that died.

An index's bytes do not depend on the number of processes and devices. On CPUs they do, in the last
bits, on the number of cores.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import jax
from absl import flags

from experiments.configuration import parse, script
from experiments.run import define_distributed, join
from jaxrag.retrieval.corpus.builds import BuildPart, StoppedBuildError
from jaxrag.runs.loading import build_index
from jaxrag.runs.plan import keep_rate, plan_index
from jaxrag.runs.run import Run, open_index
from jaxrag.types import InputError

_MINUTE = 60  # seconds


def _define(values: flags.FlagValues) -> None:
    define_distributed(values)
    flags.DEFINE_string("shard", "", "I/N, this machine's share of N", flag_values=values)
    flags.DEFINE_list("merge", [], "directories to copy files from", flag_values=values)
    flags.DEFINE_bool("estimate", False, "build for a minute", flag_values=values)


def main(argv: Sequence[str]) -> int:
    """Builds the index, or a share of it."""
    run, values = parse(argv, _define, kind=Run)
    if run.index is None:
        raise InputError(f"{run.name} has no index: set config.index.")
    ways = ("distributed", "shard", "merge", "estimate")
    if sum(bool(values[name].value) for name in ways) > 1:
        raise InputError(f"give one of --{', --'.join(ways)}.")
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
    elif values.estimate:
        return _estimate(run, cache)
    elif values.merge:
        merged = tuple(Path(path).expanduser() for path in values.merge)
        build_index(run.index, run.data, cache, BuildPart(merged=merged))
    index = open_index(run, cache)
    print(f"{len(index.passages):,} passages, {time.monotonic() - started:.0f} s: {index.identity}")
    return 0


def _estimate(run: Run, cache: Path) -> int:
    """Builds for a minute, unless the index is built, and prints the plan."""
    assert run.index is not None
    directory = plan_index(run).directory
    try:
        build_index(run.index, run.data, cache, BuildPart(seconds=_MINUTE))
    except StoppedBuildError as stopped:
        if directory is not None:
            keep_rate(directory, stopped.rate)
    print(plan_index(run).text)
    return 0


def _part(text: str) -> BuildPart:
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit()):
        raise InputError(f"--shard is {text!r}: give I/N, such as 0/2 on one machine and 1/2.")
    return BuildPart(int(number), int(count))


if __name__ == "__main__":
    script(main)
