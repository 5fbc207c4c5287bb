"""``python -m experiments.index``: whole, in shares, by several processes."""

import functools
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from jaxrag.experiments import index as script
from jaxrag.experiments.configuration import parse
from jaxrag.experiments.run import main as run_main
from jaxrag.retrieval.dense import exact
from jaxrag.retrieval.dense.encoder import Encoder
from jaxrag.retrieval.dense.matrix import write_matrix
from jaxrag.runs import loading
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return write_small_run(tmp_path_factory.mktemp("index"), questions=20)


@pytest.fixture(autouse=True)
def small_files(monkeypatch):
    """Files of 7 of the 40 passages; nothing is kept from other tests."""
    monkeypatch.setattr(exact, "write_matrix", functools.partial(write_matrix, shard_rows=7))
    loading.open_index_over.cache_clear()


def main(config, cache, *more):
    loading.open_index_over.cache_clear()
    return script.main(["index", f"--config={config}", f"--config.cache={cache}", *more])


def files(cache):
    (directory,) = (path for path in (cache / "indexes").iterdir() if path.is_dir())
    kept = (path for path in directory.iterdir() if not path.name.startswith(".lock"))
    return {path.name: path.read_bytes() for path in kept}


def test_shared_and_copied_indexes_have_the_bytes_of_one(config, tmp_path, capsys, monkeypatch):
    one, shared = (tmp_path / name for name in ("one", "shared"))
    assert main(config, one) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("40 passages, ")
    assert "of 40 passages: 1.92 kB on disk, " in shown.err  # 40 x 24 x 2 bytes
    assert main(config, shared, "--shard=1/2") == 0
    assert "holds parts of an index; a build without --shard finishes it" in capsys.readouterr().out
    assert main(config, shared, "--shard=0/2") == 0
    assert capsys.readouterr().out.endswith(": built\n")
    assert len(files(one)) == 7 and files(shared) == files(one)
    shutil.copytree(one / "indexes", tmp_path / "copied" / "indexes")
    monkeypatch.setattr(Encoder, "stream_passages", None)  # nothing is encoded again
    assert main(config, tmp_path / "copied") == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--shard=2/2"], "numbered from 0"),
        (["--shard=1"], "--shard is '1': give I/N"),
        (["--shard=0/2", "--distributed=auto"], "give --distributed or --shard"),
        (["--config.index=Bm25", "--shard=0/2"], "BM25 is built at once by one process"),
        (["--distributed=localhost:1,2,2"], "2 processes are numbered from 0"),
    ],
)
def test_wrong_flags(config, tmp_path, flags, message):
    with pytest.raises(InputError, match=message):
        main(config, tmp_path / "cache", *flags)


@pytest.mark.parametrize(
    "flag",
    [
        "--config.cache=gs://bucket/cache",
        "--config.data.path=s3://bucket/data",
        "--config.index.encoder.checkpoint=hdfs://host/encoder",
        "--workdir=gs://bucket/run",
    ],
)
def test_paths_of_other_file_systems_are_refused_at_the_door(config, flag, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"which is not a path of this machine: mount it"):
        run_main(["run", f"--config={config}", flag, "--dry-run"])
    assert not list(tmp_path.iterdir())
    parse(["run", f"--config={config}"], "run")


@pytest.mark.slow
def test_two_processes_build_together(config, tmp_path):
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "experiments.index", f"--config={config}"]
    environment = {**os.environ, "XLA_FLAGS": "", "JAX_PLATFORMS": "cpu"}
    both = [
        subprocess.Popen(
            [*command, f"--config.cache={tmp_path}", f"--distributed=localhost:{port},2,{i}"],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for i in (0, 1)
    ]
    first, second = (process.communicate(timeout=300)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0]
    assert first.startswith("40 passages, ") and second == ""
