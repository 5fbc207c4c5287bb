"""Small directories of everything that jaxrag reads and writes, and the scripts that read them."""

import json
import shutil
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jaxrag.experiments.data
import jaxrag.experiments.report
import jaxrag.experiments.reproduce
import jaxrag.experiments.run
import jaxrag.experiments.status
import jaxrag.experiments.store
from jaxrag.data.benchmark import Benchmark
from jaxrag.reproduction.listing import result_file
from tests.data.published_sets import CASES, write
from tests.experiments.small_run import write_small_run
from tests.faults.damage import call
from tests.faults.world import World


def run(directory: Path) -> World:
    """A run of DTR with a data folder, a model, an encoder, an index and a store."""
    root = directory / "run-world"
    root.mkdir()
    write_small_run(root, questions=8)
    own = ("config.py", "data", "encoder", "model", "prompts.toml")
    work, page = str(root / "run"), f"--out={root.parent / 'page' / 'report.html'}"
    readers: dict[str, tuple[Any, tuple[str, ...]]] = {
        "experiments.report": (jaxrag.experiments.report, (f"--runs={work}", page)),
        "experiments.status": (jaxrag.experiments.status, (work,)),
    }
    return World(root, root.with_name("pristine"), "run/answers.jsonl", own, readers).kept()


def stores(directory: Path) -> World:
    """A store of model results, which is merged into another."""
    root = directory / "stores-world"
    root.mkdir()
    write_small_run(root, questions=8)
    done = call(
        jaxrag.experiments.run, f"--config={root / 'config.py'}", f"--workdir={root / 'run'}"
    )
    assert done.code == 0, done
    for one in ("run", "data", "model", "encoder"):
        shutil.rmtree(root / one)
    store, merged = str(root / "cache" / "store.sqlite"), str(root / "run" / "store.sqlite")
    (root / "run").mkdir()
    actions: dict[str, tuple[str, ...]] = {
        **{name: (name, store) for name in ("report", "verify")},
        "verify --drop": ("verify", store, "--drop"),
    }
    readers = {
        f"experiments.store {name}": (jaxrag.experiments.store, more)
        for name, more in actions.items()
    }
    command = (jaxrag.experiments.store, "merge", merged, store)
    world = World(
        root, root.with_name("pristine"), "run/store.sqlite", ("cache",), readers, command,
        ("cache/store.sqlite",), reads=("cache",),
    )  # fmt: skip
    return world.kept()


def _build_and_read(argv: Sequence[str]) -> int:
    """Builds a set, and writes all that is read of it into "read" beside its directory."""
    code = jaxrag.experiments.data.main(argv)
    cache = Path(next(one for one in argv if one.startswith("--workdir="))[10:])
    sets = [Benchmark("boolq", split=split).load(cache) for split in ("train", "dev")]
    read = [(one.questions, one.gold, one.passages.get(range(len(one.passages)))) for one in sets]
    cache.with_name("read").write_text(repr(read))
    return code


def published(directory: Path) -> World:
    """A published set that is built from its files, and loaded."""
    root = directory / "published-world"
    write(CASES["boolq"].files, root / "source")
    work, source = f"--workdir={root / 'run'}", f"--source={root / 'source'}"
    script = types.SimpleNamespace(main=_build_and_read, __name__="experiments.data")
    command = (script, "boolq", source, work, "--any_size")
    listed = {"experiments.data --list": (jaxrag.experiments.data, ("--list", work))}
    return World(root, root.with_name("pristine"), "read", ("source",), listed, command).kept()


def tables(directory: Path) -> World:
    """Two reproduced tables, and the pages of results and claims that are made of them."""
    root = directory / "tables-world"
    (root / "made" / "small").mkdir(parents=True)
    ours = {"mean": 1.5, "low": 0.5, "high": 2.5, "n": 40}
    for name in ("pairs/table4", "dtr/table2"):
        record = {"name": name, "scale": "small", "date": "2026-11-24", "limit": 40}
        place = {"row": 0, "data": "nq", "datasets": ["nq"], "metric": "EM", "unit": "percent"}
        record |= {
            "models": ["m"],
            "parameters": {"m": 1.5},
            "command": "c",
            "environment": {"devices": {"cpu:cpu": 1}, "jaxrag": "0.1.0"},
        }
        cell = {**place, "printed": 36.8, "ours": ours, "agrees": None, "values": [0.0, 0.03]}
        cell |= {"model": "m", "retriever": "r"}
        record |= {"ids": {"nq": ["q1", "q2"]}, "cells": [cell]}
        file = result_file(root / "made", "small", name, "json")
        file.write_text(json.dumps(record, indent=1))
    work = f"--workdir={root / 'made'}"
    written = (f"--claims={root / 'claims.md'}", f"--pages={root / 'pages'}")
    command = (jaxrag.experiments.reproduce, *written, work)
    listed = {"experiments.reproduce --list": (jaxrag.experiments.reproduce, ("--list", work))}
    own = ("made",)
    return World(root, root.with_name("pristine"), "claims.md", own, listed, command).kept()


WORLDS: dict[str, Callable[[Path], World]] = {
    "run": run,
    "tables": tables,
    "stores": stores,
    "published": published,
}
