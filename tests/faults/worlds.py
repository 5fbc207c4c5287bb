"""Small directories of everything that jaxrag reads and writes, and the scripts that read them."""

import json
import shutil
import types
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jaxrag.experiments.ask
import jaxrag.experiments.data
import jaxrag.experiments.explain
import jaxrag.experiments.index
import jaxrag.experiments.report
import jaxrag.experiments.reproduce
import jaxrag.experiments.run
import jaxrag.experiments.status
import jaxrag.experiments.store
import jaxrag.experiments.sweep
from benchmarks import ppo_toy
from jaxrag.data.benchmark import Benchmark
from jaxrag.reproduction.listing import result_file
from tests.data.published_sets import CASES, write
from tests.experiments.small_run import write_small_run
from tests.faults.damage import call
from tests.faults.world import World
from tests.methods.ars.bandit import small_table
from tests.methods.ars.ranker import small_ranker, test_job
from tests.models.bert import small_bert


def _finished(root: Path, results: str, inputs: tuple[str, ...], **more: Any) -> World:
    work, page = str(root / "run"), f"--out={root.parent / 'page' / 'report.html'}"
    readers: dict[str, tuple[Any, tuple[str, ...]]] = {
        "experiments.report": (jaxrag.experiments.report, (f"--runs={work}", page)),
        "experiments.status": (jaxrag.experiments.status, (work,)),
    }
    return World(root, root.with_name("pristine"), results, inputs, readers, **more).kept()


def write_lines(file: Path, lines: Iterable[Any]) -> None:
    """Writes JSON lines."""
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def run(directory: Path) -> World:
    """A run of DTR with a data folder, a model, an encoder, an index and a store."""
    root = directory / "run-world"
    root.mkdir()
    write_small_run(root, questions=8)
    own = ("config.py", "data", "encoder", "model", "prompts.toml")
    return _finished(root, "run/answers.jsonl", own)


def _configured(root: Path, name: str) -> None:
    """Writes the config of that name in tests/faults/configs."""
    settings = Path(__file__).with_name("configs") / f"{name}.py"
    (root / "config.py").write_text(settings.read_text().replace("DIRECTORY", str(root)))


def _trained(root: Path, name: str, own: tuple[str, ...], result: str) -> World:
    """A training that was killed after two of four steps."""
    _configured(root, name)
    undone = f"run/{result}", "run/checkpoints/[34]"
    made = f"run/{result}/model.safetensors"
    return _finished(root, made, ("config.py", *own), undone=undone)


def training(directory: Path) -> World:
    """A training of ARS-RAG's ranker, killed after two of four steps."""
    root = directory / "training-world"
    root.mkdir()
    test_job.write(root / "labels", test_job.lines())
    small_ranker.write(root)
    return _trained(root, "ranker", ("labels", "bert"), "ranker")


def bandit(directory: Path) -> World:
    """Trainings of bandits from a reward table."""
    root = directory / "bandit-world"
    root.mkdir()
    small_table.write(root / "boolq")
    _configured(root, "bandit")
    return _finished(root, "run/curves.jsonl", ("config.py", "boolq"))


def student(directory: Path) -> World:
    """A training of a query writer on pairs, killed after two of four steps."""
    root = directory / "student-world"
    root.mkdir()
    ppo_toy.tokenizer(root / "tokenizer")
    small_bert.write(root / "encoder", small_bert.BERT, classifier=False)
    (root / "pairs").mkdir()
    words = ppo_toy.WORDS
    lines = [
        {
            "question_id": f"q{i}",
            "input": f"{one} {words[4 + i // 4]}",
            "target": one,
            "part": "train" if i > 1 else "held_out",
        }
        for i, one in enumerate([*words[:4], *words[:4]])
    ]
    write_lines(root / "pairs" / "pairs.jsonl", lines)
    return _trained(root, "student", ("pairs", "tokenizer", "encoder"), "optimizer")


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
    "training": training,
    "bandit": bandit,
    "tables": tables,
    "stores": stores,
    "published": published,
    "student": student,
}
