"""Small directories of everything that jaxrag reads and writes, and the scripts that read them."""

import dataclasses
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
from jaxrag.training.student.checkpoint import new_t5, write_student
from jaxrag.training.student.student import NewT5
from tests.data.published_sets import CASES, write
from tests.experiments.small_run import write_small_run
from tests.experiments.test_ars_run import make
from tests.faults.damage import call
from tests.faults.world import World
from tests.methods.ars.bandit import small_table
from tests.methods.ars.ranker import small_ranker, test_job
from tests.models.bert import small_bert
from tests.models.t5 import small_t5
from tests.retrieval.sidr import small_sidr


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
    if result == "retriever":  # of two towers
        made = f"run/{result}/query/model.safetensors"
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


OTHER = """
import dataclasses
from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import Local
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.methods.r3 import r3
from jaxrag.methods.retrieve_and_read import NO_RETRIEVAL, STANDARD_RAG
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.scann.index import Scann
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.runs.run import Run
from jaxrag.steps.reader import Reader
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top

HERE = {here!r}


def get_config():
    reader = Reader(prompts=HERE + "/prompts.toml", answer_tokens=4, passage_tokens=12)
    parts = dict(candidates=OnePath(n=3), select=Top(k=2), reader=reader)
    model, index = Local(HERE + "/model"), None
    {choice}
    return Run(method, Folder(HERE + "/data"), model, index, cache=HERE + "/cache")
"""


def _another(root: Path, choice: str, only: tuple[str, ...]) -> World:
    """A run whose method, model or index another statement chooses."""
    (root / "config.py").write_text(OTHER.format(here=str(root), choice=choice))
    own = ("config.py", "data", "encoder", "model", "prompts.toml", "sidr-0", "bert-0", "t5")
    return _finished(root, "run/answers.jsonl", own, only=only)


def _small(root: Path) -> Path:
    root.mkdir()
    write_small_run(root, questions=8)
    return root


def bm25(directory: Path) -> World:
    """A run over BM25: its index is tried."""
    chosen = "method, index = dataclasses.replace(STANDARD_RAG, **parts), Bm25()"
    return _another(_small(directory / "bm25-world"), chosen, ("cache/indexes",))


def scann(directory: Path) -> World:
    """A run over ScaNN: its index is tried."""
    parts = "BiEncoder(HERE + '/encoder', max_length=32), leaves=4"
    chosen = f"method, index = dataclasses.replace(STANDARD_RAG, **parts), Scann({parts})"
    return _another(_small(directory / "scann-world"), chosen, ("cache/indexes",))


def ars(directory: Path) -> World:
    """A run of ARS-RAG: its ranker and bandit are tried."""
    root = directory / "ars-world"
    root.mkdir()
    made = make(root)
    shutil.copytree(made.bandit, root / "bandit")
    for done in ("labels", "ranked", "bandits", "cache"):
        shutil.rmtree(root / done)
    (root / "config.py").rename(root / "small.py")
    _configured(root, "ars")
    own = ("config.py", "small.py", "data", "encoder", "model", "prompts.toml", "ranker", "bandit")
    return _finished(root, "run/answers.jsonl", own, only=("ranker", "bandit"))


def sparse(directory: Path) -> World:
    """A run of R3 over SiDR's sparse vectors: their index is tried."""
    root = _small(directory / "sparse-world")
    small_sidr.write(root)
    shape = "search='alpha', m=5, top=6, query_length=16, passage_length=24"
    chosen = f"method, index = r3.Config(**parts), Sidr(HERE + '/sidr-0', {shape})"
    return _another(root, chosen, ("cache/indexes",))


def sidr(directory: Path) -> World:
    """A run of R3 over SiDR: its checkpoint and index are tried."""
    root = _small(directory / "sidr-world")
    small_sidr.write(root)
    shape = "m=5, top=6, query_length=16, passage_length=24"
    chosen = f"method, index = r3.Config(**parts), Sidr(HERE + '/sidr-0', {shape})"
    world = _another(root, chosen, ("cache/indexes", "sidr-0"))
    config = f"--config={root / 'config.py'}"
    readers = {
        "experiments.index": (jaxrag.experiments.index, (config,)),
        "experiments.ask": (jaxrag.experiments.ask, (config, "is paris rome")),
        "experiments.explain": (jaxrag.experiments.explain, (config, f"--workdir={root / 'run'}")),
    }
    return dataclasses.replace(world, readers=readers, reads=("cache", "sidr-0"))


def t5(directory: Path) -> World:
    """A run that a T5 answers: its checkpoint, of two files of weights, is tried."""
    root = _small(directory / "t5-world")
    small_t5.write(root / "t5", small_t5.CONFIGS["1.1"], shards=2)
    replaced = "dataclasses.replace(NO_RETRIEVAL, reader=reader)"
    return _another(root, f"method, model = {replaced}, Seq2Seq(HERE + '/t5')", ("t5",))


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


def ppo(directory: Path) -> World:
    """A training of a query writer by PPO, killed after two of four steps."""
    root = _small(directory / "ppo-world")
    shutil.rmtree(root / "encoder")
    questions = [json.loads(line) for line in (root / "data" / "queries.jsonl").open()]
    write_lines(root / "data" / "train.jsonl", questions[:5])
    write_lines(root / "data" / "queries.jsonl", questions[5:])
    gold = ({"query_id": one["id"], "passage_ids": [f"p{i}"]} for i, one in enumerate(questions))
    write_lines(root / "data" / "qrels.jsonl", gold)
    tokens = str(ppo_toy.tokenizer(directory / "tokenizer"))
    sizes = NewT5(tokens, width=8, inner=8, heads=1, head_width=8, layers=1)
    new = new_t5(sizes, max_source=8, max_target=4, dtype="float32")
    write_student(root / "student", new, new.params)
    return _trained(root, "ppo", ("data", "model", "student", "prompts.toml"), "optimizer")


def _retriever_data(root: Path) -> None:
    """Questions to train on and to evaluate, over the corpus of a small run."""
    questions = [json.loads(line) for line in (root / "data" / "queries.jsonl").open()]
    write_lines(root / "data" / "train.jsonl", questions[:6])
    write_lines(root / "data" / "queries.jsonl", questions[6:])
    gold = ({"query_id": one["id"], "passage_ids": [f"p{i}"]} for i, one in enumerate(questions))
    write_lines(root / "data" / "qrels.jsonl", gold)


def _gold_is_what_is_said(root: Path) -> None:
    """Gold answers become those that the model gives from some passage: else none is right."""
    shape = "m=5, top=6, query_length=16, passage_length=24"
    chosen = f"method, index = r3.Config(**parts), Sidr(HERE + '/sidr-0', {shape})"
    settings = OTHER.format(here=str(root), choice=chosen).replace("Top(k=2)", "Top(k=1)")
    (root / "config.py").write_text(settings)
    done = call(
        jaxrag.experiments.run, f"--config={root / 'config.py'}", f"--workdir={root / 'run'}"
    )
    assert done.code == 0, done
    answers = [json.loads(line) for line in (root / "run" / "answers.jsonl").open()]
    said = {one["question_id"]: one["prediction"] for one in answers}
    questions = [json.loads(line) for line in (root / "data" / "queries.jsonl").open()]
    told = ({**one, "answers": [said[one["id"]]]} for one in questions)
    write_lines(root / "data" / "queries.jsonl", told)
    for made in ("run", "cache"):
        shutil.rmtree(root / made)


def train_sidr(directory: Path) -> World:
    """A training of SiDR, killed after two of four steps."""
    root = _small(directory / "train_sidr-world")
    _retriever_data(root)
    shutil.rmtree(root / "encoder")
    small_sidr.write(root)
    return _trained(root, "train_sidr", ("data", "bert-0", "sidr-0"), "retriever")


def train_r3(directory: Path) -> World:
    """A training of R3, killed after two of four steps."""
    root = _small(directory / "train_r3-world")
    shutil.rmtree(root / "encoder")
    small_sidr.write(root)
    _gold_is_what_is_said(root)
    _retriever_data(root)
    own = ("data", "sidr-0", "bert-0", "model", "prompts.toml")
    return _trained(root, "train_r3", own, "retriever")


def stores(directory: Path) -> World:
    """A store of model results, which is merged into another."""
    root = _small(directory / "stores-world")
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


def sweep(directory: Path) -> World:
    """Two runs of a sweep."""
    root = _small(directory / "sweep-world")
    own = ("config.py", "data", "encoder", "model", "prompts.toml")
    config, work = f"--config={root / 'config.py'}", f"--workdir={root / 'run'}"
    command = (jaxrag.experiments.sweep, config, work, "--key=limit", "--values=2,4")
    results, only = "run/limit=4/answers.jsonl", ("config.py", "run", "prompts.toml")
    world = World(root, root.with_name("pristine"), results, own, {}, command, only)
    return world.kept()


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
    "bm25": bm25,
    "scann": scann,
    "sparse": sparse,
    "ars": ars,
    "sidr": sidr,
    "t5": t5,
    "tables": tables,
    "stores": stores,
    "sweep": sweep,
    "published": published,
    "student": student,
    "ppo": ppo,
    "train_sidr": train_sidr,
    "train_r3": train_r3,
}
