"""Building a corpus of psgs_w100's form and size: memory, time, size, random access, kills.

    python -m benchmarks.corpus [rows] [workers] [directory] [kills]

A generator writes psgs_w100.tsv: words by Zipf's law from a vocabulary of 50,000, 100 a passage
with a standard deviation of 5, titles of 1 to 4 words, quoting as in CSV (about 660 bytes a row,
13 GB for 21,015,324). The table is built into passages by `jaxrag.data.corpora`, in a process of
its own whose memory (proportional set size, with its writing processes) is sampled. Then it is
built again and killed at shares of its way; the files must have the same bytes. The peer is
``tfds.core.SequentialWriter``, with which corpora were written before, on the first 200,000 rows.
Linux only. The directory needs twice the table's size; it is removed at the end.
"""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow_datasets as tfds
from tensorflow_datasets.core.dataset_info import DatasetIdentity

from jaxrag.core.hashing import digest_file
from jaxrag.core.progress import progress
from jaxrag.data import corpora
from jaxrag.retrieval.corpus.formats import read_dpr
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.corpus.shards import read_record

TABLE = "psgs_w100.tsv"
NAME = "psgs_w100"
PEER_ROWS = 200_000
SHARES = (0.02, 0.1, 0.3, 0.55, 0.8)  # of the files, when a build is killed
_SAMPLED = 0.25  # seconds between samples of memory
_BLOCK = 1000  # rows generated at a time


def write_table(path: Path, rows: int) -> None:
    """Writes a table in the form of psgs_w100.tsv; the same for the same number of rows."""
    rng = np.random.default_rng(22)
    letters = np.array(list("abcdefghijklmnopqrstuvwxyzéö"))
    vocabulary = ["".join(rng.choice(letters, n)) for n in rng.integers(2, 10, 50_000)]
    vocabulary[40::200] = [f'"{word}"' for word in vocabulary[40::200]]
    shares = 1 / np.arange(10, 50_010)
    table = np.array(vocabulary, object)[rng.choice(50_000, 1 << 20, p=shares / shares.sum())]
    with path.open("w", newline="", encoding="utf-8") as stream, progress(rows, "rows") as advance:
        writer = csv.writer(stream, delimiter="\t", lineterminator="\n")
        writer.writerow(["id", "text", "title"])
        for start in range(0, rows, _BLOCK):
            count = min(_BLOCK, rows - start)
            lengths = np.clip(rng.normal(100, 5, count).astype(int), 20, None)
            titles = rng.integers(1, 5, count)
            words = iter(table[rng.integers(0, 1 << 20, lengths.sum() + titles.sum())].tolist())
            writer.writerows(
                (
                    start + row + 1,
                    " ".join(itertools.islice(words, int(lengths[row]))),
                    " ".join(itertools.islice(words, int(titles[row]))).title(),
                )
                for row in range(count)
            )
            advance(count)


def build(directory: Path, rows: int, workers: int) -> None:
    """Builds the table in a directory into passages, as ``jaxrag data`` does."""
    corpus = dataclasses.replace(corpora.CORPORA[NAME], passages=rows)
    corpora.CORPORA = {NAME: corpus}
    corpora.build_corpus(NAME, directory, directory / TABLE, workers=workers)


def build_as_peer(directory: Path, rows: int) -> None:
    """Builds the first rows with TFDS's own writer."""
    text, target = tfds.features.Text, directory / "peer"
    target.mkdir()
    info = tfds.core.DatasetInfo(
        builder=DatasetIdentity(
            name="passages",
            version=tfds.core.Version("1.0.0"),
            data_dir=str(target),
            module_name="jaxrag",
        ),
        features=tfds.features.FeaturesDict({"id": text(), "title": text(), "text": text()}),
        disable_shuffling=True,
    )
    writer = tfds.core.SequentialWriter(
        info, max_examples_per_shard=1 << 17, file_format="array_record"
    )
    writer.initialize_splits(["corpus"])
    passages = itertools.islice(read_dpr(directory / TABLE), rows)
    while chunk := [vars(passage) for passage in itertools.islice(passages, 4096)]:
        writer.add_examples({"corpus": chunk})
    writer.close_all()


class Built(NamedTuple):
    """What a process of `build` took; ``memory`` is the largest sample, in bytes."""

    seconds: float
    memory: int


def run(arguments: Sequence[str], *, kill: Callable[[], bool] = lambda: False) -> Built:
    """Runs this module in another process, killed when ``kill()`` holds, and samples its memory."""
    started, memory = time.monotonic(), 0
    with subprocess.Popen([sys.executable, "-m", "benchmarks.corpus", *arguments]) as process:
        while process.poll() is None:
            memory = max(memory, sum(map(_memory, _tree(process.pid))))
            if kill():
                process.send_signal(signal.SIGKILL)
            time.sleep(_SAMPLED)
    if process.returncode not in (0, -signal.SIGKILL):
        sys.exit(f"the build failed with {process.returncode}")
    return Built(time.monotonic() - started, memory)


def _tree(pid: int) -> Iterator[int]:
    """A process and its descendants."""
    yield pid
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))


def _memory(pid: int) -> int:
    """Bytes of a process, pages that it shares with others in proportion."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def killed_and_resumed(directory: Path, rows: int, workers: int, files: int, kills: int) -> Built:
    """Builds again, killed when shares of the files are finished; time and memory of all runs."""
    partial = directory / "corpora" / f".{NAME}.partial"
    taken = []
    for share in SHARES[:kills]:
        least = max(1, round(share * files))
        taken.append(
            run(
                ["build", str(directory), str(rows), str(workers)],
                kill=lambda least=least: len({f.name for f in read_record(partial)}) >= least,
            )
        )
        print(f"  killed with {len(read_record(partial))} of {files} files", flush=True)
    taken.append(run(["build", str(directory), str(rows), str(workers)]))
    return Built(sum(one.seconds for one in taken), max(one.memory for one in taken))


def random_access(passages: Passages, batch: int, seconds: float = 10.0) -> float:
    """Passages a second, read in batches of random rows."""
    draw, count, started = random.Random(0), 0, time.monotonic()
    while time.monotonic() - started < seconds:
        passages.get([draw.randrange(len(passages)) for _ in range(batch)])
        count += batch
    return count / (time.monotonic() - started)


def digests(directory: Path) -> dict[str, str]:
    """SHA-256 of each file of a directory."""
    return {path.name: digest_file(path) for path in sorted(directory.iterdir())}


def report(rows: int, workers: int, directory: Path, kills: int) -> None:
    """Generates, builds, measures and prints."""
    started = time.monotonic()
    write_table(directory / TABLE, rows)
    size = (directory / TABLE).stat().st_size
    print(f"{rows:,} rows, {size / 1e9:.2f} GB, in {time.monotonic() - started:.0f} s", flush=True)
    peer = run(["peer", str(directory), str(min(rows, PEER_ROWS))])
    peer_rate = min(rows, PEER_ROWS) / peer.seconds
    print(f"SequentialWriter: {peer_rate:,.0f} rows/s, {peer.memory / 2**30:.2f} GiB", flush=True)
    shutil.rmtree(directory / "peer")
    built = run(["build", str(directory), str(rows), str(workers)])
    target = directory / "corpora" / NAME
    files = digests(target)
    passages = Passages.open(target)
    size = sum(path.stat().st_size for path in target.iterdir())
    rate = rows / built.seconds
    print(
        f"built with {workers} workers: {built.seconds:.0f} s, {rate:,.0f} rows/s,"
        f" {rate / peer_rate:.2f} x SequentialWriter; at most {built.memory / 2**30:.2f} GiB;"
        f" {size / 1e9:.2f} GB in {len(files)} files; identity {passages.identity[:16]}"
    )
    rates = {batch: random_access(passages, batch) for batch in (1, 100, 1024)}
    print(
        "random access, passages/s: "
        + ", ".join(f"{rate:,.0f} in batches of {batch}" for batch, rate in rates.items()),
        flush=True,
    )
    shutil.rmtree(target)
    shards = sum("array_record" in name for name in files)
    again = killed_and_resumed(directory, rows, workers, shards, kills)
    same = digests(target) == files
    print(
        f"killed {kills} times: {again.seconds:.0f} s in all, at most"
        f" {again.memory / 2**30:.2f} GiB; {'the same bytes' if same else 'OTHER BYTES'}"
    )
    if not same:
        sys.exit(1)


def main(argv: Sequence[str]) -> None:
    """The report, or one of its processes."""
    if argv[:1] == ["build"]:
        build(Path(argv[1]), int(argv[2]), int(argv[3]))
    elif argv[:1] == ["peer"]:
        build_as_peer(Path(argv[1]), int(argv[2]))
    else:
        rows, workers, parent, kills = (*argv, *("1000000", "2", "", "5")[len(argv) :])
        with tempfile.TemporaryDirectory(dir=parent or None) as directory:
            report(int(rows), int(workers), Path(directory), int(kills))


if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    main(sys.argv[1:])
