"""The contract of everything that is read from disk: a damaged or malformed file is one error.

It is an InputError of a few words that names the file and, in files of lines, line and field; it
comes within seconds. `tests/faults` does the same to whole jobs, by their commands.
"""

import dataclasses
import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxrag.core.json_stream import read_elements
from jaxrag.core.store import Store
from jaxrag.data.folder import Folder
from jaxrag.data.formats.own_forms import read_parquet
from jaxrag.evaluation.records import read_passages, read_run
from jaxrag.methods.ars.bandit.reward_table import read_table
from jaxrag.methods.ars.bandit.trained import TrainedBandit, load_bandit, write_bandit
from jaxrag.methods.ars.ranker.data import read_labels
from jaxrag.methods.errr.student import read_pairs
from jaxrag.models.bert.checkpoint import load_encoder
from jaxrag.models.checkpoint.files import read_tensors
from jaxrag.models.decoder.checkpoint import load_decoder
from jaxrag.models.t5.checkpoint import load_t5
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.dense.matrix import open_matrix
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.retrieval.wiki_dpr.index import import_published
from jaxrag.steps import prompts
from jaxrag.types import InputError, Passage
from tests.engines.tiny_model import write_tiny_model
from tests.evaluation.test_records import whole_run
from tests.faults.damage import DAMAGES, SECONDS
from tests.methods.ars.bandit import small_table
from tests.methods.ars.bandit.test_trained import PARAMS
from tests.models.bert import small_bert
from tests.models.checkpoint import small_gguf
from tests.models.t5 import small_t5
from tests.retrieval.fakes import FakeEncoder, FakePassages, build_matrix
from tests.retrieval.sidr import small_sidr
from tests.retrieval.wiki_dpr import test_index as wiki_dpr

FLOAT32 = np.dtype("float32")
LENGTHS: Any = {"query_length": 32, "passage_length": 48}
BANDIT = TrainedBandit(3, 2, (1,), PARAMS, None, {"name": "encoder A"}, {"order": "ranked"})


@dataclasses.dataclass(frozen=True)
class Files:
    """Files that belong together.

    Attributes:
      write: writes them into an empty directory.
      read: reads the directory.
      names: those of the files that are damaged.
      fine: kinds of damage that leave a valid file.
    """

    write: Callable[[Path], object]
    read: Callable[[Path], object]
    names: tuple[str, ...]
    fine: tuple[str, ...] = ()


def lines(file: Path, *rows: Any) -> None:
    """Writes rows as JSON lines; bytes stand for a line as it is."""
    whole = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
    file.write_bytes(b"".join(row + b"\n" for row in whole))


QUERY = {"id": "q1", "question": "Where?", "answers": ["Rome"]}
PASSAGE = {"id": "p1", "title": "Rome", "text": "Rome is there."}
GOLD = {"query_id": "q1", "passage_ids": ["p1"]}
LABELS = {"question_id": "q0", "question": "cat?", "rewrites": ["a", "b"], "labels": [1, 0]}
PAIR = {"question_id": "q0", "input": "find", "target": "found", "part": "train"}
HELD_OUT = {**PAIR, "question_id": "q9", "part": "held_out"}


def write_folder(here: Path) -> None:
    lines(here / "queries.jsonl", QUERY)
    lines(here / "corpus.jsonl", PASSAGE)
    lines(here / "qrels.jsonl", GOLD)


def load_folder(here: Path) -> Any:
    shutil.rmtree(here / "cache", ignore_errors=True)
    return Folder(str(here)).load(here / "cache")


def import_all(source: Path) -> None:
    shutil.rmtree(source.with_name("to"), ignore_errors=True)
    import_published(source, source.with_name("to"), dimension=wiki_dpr.D)


FILES = {
    "a decoder": Files(
        write_tiny_model,
        lambda here: (load_decoder(here, dtype=FLOAT32), load_tokenizer(here)),
        ("config.json", "model.safetensors", "tokenizer.json"),
    ),
    "an encoder": Files(
        lambda here: small_bert.write(here, small_bert.BERT, classifier=False),
        lambda here: load_encoder(here, dtype=FLOAT32),
        ("config.json", "model.safetensors"),
    ),
    "a T5 of two files": Files(
        lambda here: small_t5.write(here, small_t5.CONFIGS["1.1"], shards=2),
        lambda here: load_t5(here, dtype=FLOAT32),
        ("config.json", "model.safetensors.index.json", "model-00002-of-00002.safetensors"),
    ),
    "a SiDR": Files(
        small_sidr.write,
        lambda here: SidrEncoder.load(str(here / "sidr-0"), top=small_sidr.DIMENSION, **LENGTHS),
        ("sidr-0/query/config.json", "sidr-0/passage/model.safetensors"),
    ),
    "a bandit": Files(
        lambda here: write_bandit(here / "b", BANDIT),
        lambda here: load_bandit(here / "b"),
        ("b/config.json", "b/model.safetensors"),
    ),
    "a GGUF file": Files(
        lambda here: small_gguf.write(here / "m.gguf", small_gguf.random_tensors()),
        lambda here: dict(read_tensors(here / "m.gguf")),
        ("m.gguf",),
    ),
    "an index": Files(
        lambda here: build_matrix(FakePassages(30), FakeEncoder(), here, shard_rows=16),
        lambda here: open_matrix(here, FakePassages(30), FakeEncoder()),
        ("manifest.json", "vectors-00001.npy"),
    ),
    "a corpus": Files(
        lambda here: write_passages(here / "c", [Passage(str(i), "", "text") for i in range(9)]),
        lambda here: Passages.open(here / "c"),
        ("c/manifest.json", "c/ids.npy", "c/passages-corpus.array_record-00000"),
    ),
    "a folder of data": Files(
        write_folder,
        load_folder,
        ("queries.jsonl", "corpus.jsonl"),
    ),
    "gold passages": Files(
        write_folder,
        load_folder,
        ("qrels.jsonl",),
        fine=("missing", "empty"),
    ),
    "prompts": Files(
        lambda here: (here / "own.toml").write_text('[direct]\nuser = "{question}"\n'),
        lambda here: prompts.load(str(here / "own.toml")),
        ("own.toml",),
        fine=("empty",),
    ),
    "a reward table": Files(
        lambda here: small_table.write(here / "boolq", questions=6, trained=4),
        lambda here: read_table(here / "boolq", arms=3),
        ("boolq/config.json", "boolq/rewards.jsonl", "boolq/contexts.npy"),
    ),
    "labels of rewrites": Files(
        lambda here: lines(here / "labels.jsonl", LABELS),
        lambda here: read_labels(here / "labels.jsonl", label="model"),
        ("labels.jsonl",),
    ),
    "pairs of a student": Files(
        lambda here: lines(here / "pairs.jsonl", PAIR, HELD_OUT),
        lambda here: read_pairs(here / "pairs.jsonl"),
        ("pairs.jsonl",),
    ),
    "a run": Files(lambda here: whole_run(here), read_run, ("config.json", "answers.jsonl")),
    "a store": Files(
        lambda here: Store(here / "s.sqlite").close(),
        lambda here: Store(here / "s.sqlite").close(),
        ("s.sqlite",),
        fine=("missing", "empty", "a symbolic link to nothing"),
    ),
    "published parquet": Files(
        lambda here: wiki_dpr.parquet(here / "p"),
        lambda here: import_all(here / "p"),
        ("p/train-10.parquet",),
        fine=("missing",),
    ),
    "a parquet file": Files(
        lambda here: pq.write_table(pa.table({"id": ["a"] * 99}), here / "r.parquet"),
        lambda here: list(read_parquet(here / "r.parquet")),
        ("r.parquet",),
    ),
    "a list in JSON": Files(
        lambda here: (here / "rows.json").write_text('[{"a": 1}]'),
        lambda here: list(read_elements(here / "rows.json")),
        ("rows.json",),
    ),
}
DAMAGE = (
    "missing", "empty", "first half", "garbage", "invalid UTF-8", "deep JSON", "null", "a list",
    "an empty object", "NaN", "a directory", "a symbolic link to itself",
    "a symbolic link to nothing",
)  # fmt: skip


def told(act: Callable[[], object], *parts: str) -> str:
    """The one error that something ends in, soon; it has all ``parts``."""
    began = time.monotonic()
    with pytest.raises(InputError) as error:
        act()
    said = str(error.value)
    assert len(said.splitlines()) <= 12 and not said.endswith(":")
    assert time.monotonic() - began < SECONDS
    assert not [part for part in parts if part not in said], said
    return said


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, one in FILES.items() for name in one.names]
)
def test_a_damaged_file_is_one_error_that_names_it(kind: str, name: str, tmp_path: Path) -> None:
    files, whole = FILES[kind], tmp_path / "whole"
    whole.mkdir()
    files.write(whole)
    files.read(whole)
    for damage in DAMAGE:
        if damage in files.fine:
            continue
        here = shutil.copytree(whole, tmp_path / damage)
        DAMAGES[damage](here / name)
        said = told(lambda: files.read(here))  # noqa: B023
        assert Path(name).name in said or str((here / name).parent) in said, said


@dataclasses.dataclass(frozen=True)
class Lines:
    """A file of JSON lines; the second line is damaged.

    Attributes:
      files: the key in `FILES`.
      name: the file.
      good: two lines, before others.
      needs: the fields that a line needs.
      others: lines that follow.
    """

    files: str
    name: str
    good: tuple[dict[str, Any], dict[str, Any]]
    needs: tuple[str, ...]
    others: tuple[dict[str, Any], ...] = ()


ANSWER = {
    "question_id": "q", "question": "?", "gold_answers": ["x"], "prediction": "x", "trace": {},
    "cost": {},
}  # fmt: skip
LINES = {
    "queries": Lines(
        "a folder of data",
        "queries.jsonl",
        (QUERY, {**QUERY, "id": "q2"}),
        ("id", "question", "answers"),
    ),
    "corpus": Lines(
        "a folder of data", "corpus.jsonl", (PASSAGE, {**PASSAGE, "id": "p2"}), ("id", "text")
    ),
    "qrels": Lines(
        "a folder of data",
        "qrels.jsonl",
        (GOLD, {**GOLD, "query_id": "q2"}),
        ("query_id", "passage_ids"),
    ),
    "labels": Lines(
        "labels of rewrites",
        "labels.jsonl",
        (LABELS, {**LABELS, "question_id": "q1"}),
        ("question_id", "question", "rewrites", "labels"),
    ),
    "pairs": Lines(
        "pairs of a student",
        "pairs.jsonl",
        (PAIR, {**PAIR, "question_id": "q1"}),
        ("question_id", "input", "part"),
        (HELD_OUT,),
    ),
    "answers": Lines(
        "a run",
        "answers.jsonl",
        (ANSWER, {**ANSWER, "question_id": "q2"}),
        ("question_id", "question", "gold_answers", "prediction", "trace", "cost"),
    ),
}
NO_ROW = {
    b"{oops": "not JSON", b"": "blank line", b"[1]": "a list; an object",
    b"null": "null; an object", b"\xff": "not UTF-8", b"[" * 100_000: "nested too deeply",
    b'{"id": "q2"': "not JSON",
}  # fmt: skip
BLANK: dict[type, tuple[Any, ...]] = {str: (" ",), list: ([], [7], [None]), dict: ()}


def second(one: Lines, here: Path, row: Any) -> Callable[[], object]:
    """Writes the file with another second line; returns what reads it."""
    here.mkdir()
    FILES[one.files].write(here)
    if one.files == "a run":
        (here / "metrics.json").unlink()  # a finished run has the hash of its answers
    lines(here / one.name, one.good[0], row, *one.others)
    return lambda: FILES[one.files].read(here)


@pytest.mark.parametrize("name", LINES)
def test_a_line_that_is_no_row_is_named(name: str, tmp_path: Path) -> None:
    one = LINES[name]
    twice = json.dumps(one.good[1])[:-1] + f', "{one.needs[0]}": "again"}}'
    words = {**NO_ROW, twice.encode(): "twice"}
    rows = dict.fromkeys(NO_ROW, "not a JSON object") if name == "answers" else words
    for number, (row, word) in enumerate(rows.items()):
        said = told(second(one, tmp_path / str(number), row), one.name, word)
        assert "line 2" in said or f"{one.name}:2" in said, said


@pytest.mark.parametrize(
    ("name", "field"), [(name, field) for name, one in LINES.items() for field in one.needs]
)
def test_a_field_that_is_missing_or_of_another_type_is_named(
    name: str, field: str, tmp_path: Path
) -> None:
    one = LINES[name]
    good = one.good[1]
    wrong: list[Any] = [None, 7, True, *([] if field == "answers" else [...])]
    wrong += [value for value in ("x", [], {}) if type(value) is not type(good[field])]
    if name != "answers":  # what a run has written may be empty
        wrong += BLANK[type(good[field])]
    for number, value in enumerate(wrong):
        row = {key: v for key, v in {**good, field: value}.items() if v is not ...}
        said = told(second(one, tmp_path / str(number), row), one.name, field)
        assert value is not ... or re.search("is missing|without", said), said
        assert "line 2" in said or f"{one.name}:2" in said, said


def test_passages_of_a_run_are_read_as_lines(tmp_path: Path) -> None:
    whole_run(tmp_path)
    lines(tmp_path / "passages.jsonl", {"id": "7", "tjtle": "T", "text": "t"})
    assert "remove the line" in told(lambda: read_passages(tmp_path), "passages.jsonl:1", "title")
