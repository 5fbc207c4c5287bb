"""Thirty and more malformed inputs: each is one InputError that names the thing."""

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from jaxrag.core.store import Store
from jaxrag.data.factbook import Factbook
from jaxrag.data.folder import Folder
from jaxrag.engines.local.engine import Local
from jaxrag.evaluation.records import RunDirectory, read_run
from jaxrag.experiments.configuration import parse
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.models.checkpoint.files import locate
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.dense.encoder import Encoder
from jaxrag.retrieval.dense.exact import ExactIndex
from jaxrag.runs.config_file import load
from jaxrag.runs.run import Run, execute
from jaxrag.steps import prompts
from jaxrag.types import InputError, Passage
from tests.engines.tiny_model import load_local, write_tiny_model
from tests.retrieval.fakes import FakeEncoder, FakePassages, build_matrix

QUERY = {"id": "q1", "question": "Where?", "answers": ["Rome"]}
PASSAGE = {"id": "p1", "title": "Rome", "text": "Rome is there."}


def data(path, queries=(QUERY,), corpus=(PASSAGE,), qrels=()):
    """A folder of JSONL; a string stands for a raw line."""
    path.mkdir(exist_ok=True)
    for name, rows in (("queries", queries), ("corpus", corpus), ("qrels", qrels)):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (path / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return Folder(str(path)).load(path / "cache")


def model(path, break_it):
    """A tiny checkpoint, broken by a function of its directory, loaded."""
    write_tiny_model(path / "model")
    break_it(path / "model")
    return load_local(path / "model")


def edit(**changes):
    """Changes keys of a checkpoint's config.json; None removes one."""

    def break_it(directory):
        file = directory / "config.json"
        config = {**json.loads(file.read_text()), **changes}
        file.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))

    return break_it


def cut(name, share=0.5):
    """Cuts a file of a directory to a share of its length."""

    def break_it(directory):
        file = directory / name
        file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])

    return break_it


def index(path, break_it, *, encoder=None, passages=None, rows=40):
    """A matrix of ``rows`` vectors, broken by a function of its directory, opened."""
    own = FakePassages(rows)
    build_matrix(own, FakeEncoder(), path / "index", shard_rows=16)
    break_it(path / "index")
    return ExactIndex.open(path / "index", encoder or FakeEncoder(), passages or own)


def nan_shard(directory):
    shard = next(directory.glob("*.npy"))
    vectors = np.load(shard)
    vectors[0] = np.nan
    np.save(shard, vectors)


def config(*arguments):
    return parse(["answer", "--config=configs/dtr.py:dtr@tiny", *arguments], lambda values: None)


def resumed_with_other_settings(path):
    with RunDirectory.open(path / "run", {"method": {"threshold": 0.1}}):
        pass
    RunDirectory.open(path / "run", {"method": {"threshold": 0.2}})


def torn_in_the_middle(path):
    with RunDirectory.open(path / "run", {}):
        pass
    (path / "run" / "answers.jsonl").write_text('{"question_id": \n{"question_id": "b"}\n')
    read_run(path / "run")


def foreign_database(path):
    with sqlite3.connect(path / "x.sqlite") as connection:
        connection.execute("CREATE TABLE x(y)")
    connection.close()
    Store(path / "x.sqlite")


def written(path, name, text):
    (path / name).write_text(text)
    return str(path / name)


def cut_passages(path):
    write_passages(path / "corpus", [Passage(str(i), "", "text") for i in range(50)])
    cut("passages-corpus.array_record-00000")(path / "corpus")
    Passages.open(path / "corpus")


def bad_passages_then_run(path):
    run = Run(UncertaintyGate(), Factbook(countries=3), Local("package:no_such_package"))
    execute(run, path / "run")


BAD = {
    # files of data
    "no such folder": (lambda p: Folder(str(p / "none")).load(p), r"none"),
    "bad json": (lambda p: data(p / "d", [QUERY, "{oops"]), r"queries\.jsonl.*2"),
    "no question": (lambda p: data(p / "d", [{"id": "1", "answers": ["x"]}]), "question"),
    "answers no list": (lambda p: data(p / "d", [{**QUERY, "answers": "Rome"}]), "answers"),
    "blank answer": (lambda p: data(p / "d", [{**QUERY, "answers": [" "]}]), "answers"),
    "twice one id": (lambda p: data(p / "d", [QUERY, QUERY]), "q1"),
    "empty corpus": (lambda p: data(p / "d", corpus=[]), "corpus"),
    "passage without text": (lambda p: data(p / "d", corpus=[{"id": "1"}]), "text|title"),
    "gold for nobody": (
        lambda p: data(p / "d", qrels=[{"query_id": "q9", "passage_ids": ["p1"]}]),
        "q9",
    ),
    "gold of nowhere": (
        lambda p: data(p / "d", qrels=[{"query_id": "q1", "passage_ids": ["p9"]}]),
        "p9",
    ),
    "cut corpus": (cut_passages, "array_record|corpus"),
    "unknown split": (lambda p: Factbook(split="dev").load(p), "dev.*train"),
    "too many countries": (lambda p: Factbook(countries=999).load(p), "999"),
    # configs and prompts
    "no config file": (lambda p: load("configs/none.py"), r"none\.py"),
    "no such variant": (lambda p: load("configs/dtr.py:none"), "none.*METHOD@DATA"),
    "misspelt key": (lambda p: config("--config.method.selct.k=1"), r"method\.select"),
    "value of a wrong type": (lambda p: config("--config.method.select.k=one"), "one"),
    "value out of range": (lambda p: config("--config.method.select.k=0"), r"select\.k"),
    "NaN threshold": (lambda p: config("--config.method.gate.threshold=nan"), "threshold"),
    "no such prompts": (lambda p: prompts.load("none"), "none.*small"),
    "bad prompts": (lambda p: prompts.load(written(p, "p.toml", "[direct")), r"p\.toml"),
    # checkpoints
    "no checkpoint": (lambda p: load_local(p / "none"), "none"),
    "no package": (lambda p: locate("package:no_such_package"), "pip install no-such-package"),
    "other kind of model": (lambda p: model(p, edit(model_type="mamba")), "[Mm]amba"),
    "config lacks a key": (lambda p: model(p, edit(hidden_size=None)), "hidden_size"),
    "config of another size": (lambda p: model(p, edit(intermediate_size=7)), "misshapen"),
    "config cut short": (lambda p: model(p, cut("config.json")), r"config\.json"),
    "weights cut short": (lambda p: model(p, cut("model.safetensors")), r"model\.safetensors"),
    "weights gone": (lambda p: model(p, lambda d: (d / "model.safetensors").unlink()), "model"),
    "no tokenizer": (lambda p: model(p, lambda d: (d / "tokenizer.json").unlink()), "tokenizer"),
    "not a GGUF": (lambda p: load_local(written(p, "x.gguf", "GGUF?")), r"x\.gguf"),
    "decoder as encoder": (
        lambda p: (write_tiny_model(p / "m"), Encoder.load(str(p / "m"))),
        "qwen2",
    ),
    # indexes
    "empty index": (lambda p: build_matrix(FakePassages(0), FakeEncoder(), p / "i"), "empty"),
    "no index": (lambda p: ExactIndex.open(p / "no", FakeEncoder(), FakePassages(3)), "no"),
    "shard cut short": (lambda p: index(p, lambda d: cut(next(d.glob("*.npy")).name)(d)), "npy"),
    "shard gone": (lambda p: index(p, lambda d: next(d.glob("*.npy")).unlink()), "npy|shard"),
    "NaN in a shard": (lambda p: index(p, nan_shard), "npy|hash|NaN"),
    "manifest gone": (lambda p: index(p, lambda d: (d / "manifest.json").unlink()), "manifest"),
    "manifest cut short": (lambda p: index(p, cut("manifest.json")), "manifest"),
    "other encoder": (lambda p: index(p, lambda d: None, encoder=FakeEncoder(name="x")), "encoder"),
    "other passages": (
        lambda p: index(p, lambda d: None, passages=FakePassages(40, identity="x")),
        "passages",
    ),
    "query of a wrong length": (
        lambda p: index(p, lambda d: None).search(np.ones((1, 3), np.float32), 1),
        "3",
    ),
    "NaN query": (
        lambda p: index(p, lambda d: None).search(np.full((1, 16), np.nan, np.float32), 1),
        "finite|NaN",
    ),
    # run directories and stores
    "other settings": (resumed_with_other_settings, r"method\.threshold: 0\.1 recorded, 0\.2 now"),
    "no run": (lambda p: read_run(p), "config.json"),
    "torn record": (torn_in_the_middle, r"answers\.jsonl.*1"),
    "foreign database": (foreign_database, "not a jaxrag store"),
    "run without a model": (bad_passages_then_run, "no-such-package|answer"),
}


@pytest.mark.parametrize("name", BAD)
def test_invalid_input_has_a_clear_error(name, tmp_path, monkeypatch):
    monkeypatch.chdir(Path(__file__).parent.parent)
    act, named = BAD[name]
    with pytest.raises(InputError, match=named) as error:
        act(tmp_path)
    assert len(str(error.value).splitlines()) <= 12 and not str(error.value).endswith(":")
    shutil.rmtree(tmp_path, ignore_errors=True)


def test_at_least_thirty_invalid_inputs_are_tested():
    assert len(BAD) >= 30
