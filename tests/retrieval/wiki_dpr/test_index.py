"""Published vectors: both forms, everything that can be wrong with them, and their index."""

import gzip
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxrag.retrieval.corpus.manifest import read_manifest, state_of
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.matrix import KIND
from jaxrag.retrieval.dense.published_encoders import dpr_questions
from jaxrag.retrieval.wiki_dpr.index import WikiDpr, import_published
from jaxrag.retrieval.wiki_dpr.sources import fingerprint, open_published
from jaxrag.types import InputError, Passage
from tests.retrieval.fakes import VectorEncoder

D = 8


def imported_state(directory):
    return state_of(directory / "to" / "vectors", KIND, verify=True)


def vectors_of(count, dimension=D, seed=0):
    return np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)


def texts_of(count, start=0):
    rows = range(start, start + count)
    return [(str(row + 1), f'text {row} of "x"\tand é', f"Title {row}") for row in rows]


def table(rows, vectors, kind=None):
    columns = dict(zip(("id", "text", "title"), map(list, zip(*rows, strict=True)), strict=True))
    kind = kind or pa.list_(pa.float32())
    numbers = np.float16 if kind.value_type == pa.float16() else float
    embeddings = pa.array([[*map(numbers, vector)] for vector in vectors], kind)
    return pa.table({**columns, "embeddings": embeddings})


def parquet(folder, sizes=(30, 25), *, group=10, kind=None):
    """Shards of made-up passages; returns all vectors."""
    folder.mkdir()
    every, start = vectors_of(sum(sizes)), 0
    for number, size in enumerate(sizes):
        part = table(texts_of(size, start), every[start : start + size], kind)
        name = f"train-{number:05d}-of-{len(sizes):05d}.parquet"
        pq.write_table(part, folder / name, row_group_size=group)
        start += size
    return every


def npy(folder, sizes=(30, 25), *, dtype=np.float32, rows=None, zipped=False, ids=None):
    folder.mkdir()
    every, start = vectors_of(sum(sizes)).astype(dtype), 0
    for number, size in zip((2, 10, 11), sizes, strict=False):  # in the order of numbers
        np.save(folder / f"vectors-{number}.npy", every[start : start + size])
        start += size
    lines = ["id\ttext\ttitle"]
    for name, text, title in rows if rows is not None else texts_of(sum(sizes)):
        quoted = '"' + text.replace('"', '""') + '"'
        lines.append(f"{name}\t{quoted}\t{title}")
    data = ("\n".join(lines) + "\n").encode()
    if zipped:
        (folder / "psgs_w100.tsv.gz").write_bytes(gzip.compress(data))
    else:
        (folder / "psgs_w100.tsv").write_bytes(data)
    if ids is not None:
        np.save(folder / "ids.npy", ids)
    return every


def check(directory, every, dtype="float16"):
    """What was imported is what was published."""
    passages = Passages.open(directory / "passages")
    expected = [Passage(name, title, text) for name, text, title in texts_of(len(every))]
    assert list(passages) == expected
    manifest = read_manifest(directory / "vectors", "matrix")
    assert manifest.complete and manifest.settings["dtype"] == dtype
    files = [np.load(directory / "vectors" / f.name) for f in sorted(manifest.files)]
    assert np.array_equal(np.concatenate(files), every.astype(dtype))
    return manifest


KINDS = [
    pa.list_(pa.float32()),
    pa.list_(pa.float64()),
    pa.list_(pa.float16()),
    pa.large_list(pa.float32()),
    pa.list_(pa.float32(), D),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_parquet(tmp_path, kind) -> None:
    every = parquet(tmp_path / "source", kind=kind)
    every = every.astype(np.float16) if "half" in str(kind) else every
    import_published(tmp_path / "source", tmp_path / "to", dimension=D, shard_rows=17)
    manifest = check(tmp_path / "to", every)
    assert len(manifest.files) == 4  # of 17, 17, 17 and 4 rows


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("zipped", [True, False])
def test_npy(tmp_path, dtype, zipped) -> None:
    ids = np.arange(1, 56)
    every = npy(tmp_path / "source", dtype=dtype, zipped=zipped, ids=ids)
    import_published(
        tmp_path / "source", tmp_path / "to", dimension=D, dtype="float32", shard_rows=20
    )
    check(tmp_path / "to", every.astype(np.float32), "float32")


def test_both_forms_give_the_same_index(tmp_path) -> None:
    parquet(tmp_path / "a")
    npy(tmp_path / "b")
    for name in "ab":
        import_published(tmp_path / name, tmp_path / f"to-{name}", dimension=D)
    a, b = (read_manifest(tmp_path / f"to-{name}" / "vectors", "matrix") for name in "ab")
    assert a.files == b.files and a.settings["passages"] == b.settings["passages"]
    assert a.settings["encoder"] != b.settings["encoder"]


@pytest.mark.parametrize("write", [parquet, npy])
def test_any_range_of_rows_can_be_read(tmp_path, write) -> None:
    every = write(tmp_path / "source")
    published = open_published(tmp_path / "source")
    assert (published.count, published.dimension) == (55, D)
    spans = [(0, 4), (4, 9), (40, 55), (0, 55), (29, 31), (31, 32), (54, 55), (9, 10), (10, 30)]
    for first, last in spans:
        assert np.array_equal(published.vectors(range(first, last)), every[first:last])


def test_a_directory_of_something_else_is_refused(tmp_path) -> None:
    npy(tmp_path / "source")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "killed").mkdir()  # while the first record was written
    (tmp_path / "killed" / "manifest.json.new").write_text("{")
    import_published(tmp_path / "source", tmp_path / "killed", dimension=D)
    with pytest.raises(InputError, match="holds something else"):
        import_published(tmp_path / "source", tmp_path / "full", dimension=D)


def test_the_fingerprint_covers_both_ends_of_a_file(tmp_path) -> None:
    (tmp_path / "source").mkdir()
    path = tmp_path / "source" / "a.npy"
    path.write_bytes(bytes(5 << 20))
    before = fingerprint(tmp_path / "source")
    for at in (0, (5 << 20) - 1):
        data = bytearray(5 << 20)
        data[at] = 1
        path.write_bytes(data)
        assert fingerprint(tmp_path / "source") != before


def refused(tmp_path, said, dimension=D):
    """The import is refused, and leaves nothing that would be taken for one."""
    with pytest.raises(InputError, match=said):
        import_published(tmp_path / "source", tmp_path / "to", dimension=dimension)
    assert imported_state(tmp_path) != "built"


@pytest.mark.parametrize("write", [parquet, npy])
def test_vectors_of_another_model_are_refused(tmp_path, write) -> None:
    write(tmp_path / "source")
    refused(tmp_path, "have 8 numbers, and the encoder of questions makes 768", dimension=768)
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e6])
@pytest.mark.parametrize("write", [parquet, npy])
def test_non_finite_vectors_are_refused(tmp_path, write, bad, monkeypatch) -> None:
    make = vectors_of

    def with_bad(count, *args, **kwargs):
        every = make(count, *args, **kwargs)
        every[41, 3] = bad  # of float16 the largest number is 65,504
        return every

    monkeypatch.setitem(globals(), "vectors_of", with_bad)
    write(tmp_path / "source")
    refused(tmp_path, r"passage '42' \(row 41\) is not finite in float16")


def test_vectors_of_different_lengths_are_refused(tmp_path) -> None:
    (tmp_path / "source").mkdir()
    vectors = [list(v) for v in vectors_of(20)]
    vectors[13] = vectors[13][:5]
    pq.write_table(table(texts_of(20), vectors), tmp_path / "source" / "a.parquet")
    refused(tmp_path, r"row 13 .* has 5 numbers, others have 8")
    vectors[13] = None
    names = [vector or [] for vector in vectors]
    whole = table(texts_of(20), names).set_column(
        3, "embeddings", pa.array(vectors, pa.list_(pa.float32()))
    )
    pq.write_table(whole, tmp_path / "source" / "a.parquet", row_group_size=5)
    refused(tmp_path, r"row 13 .* has nan numbers")


def test_shards_of_different_dimensions_are_refused(tmp_path) -> None:
    parquet(tmp_path / "source", (20,))
    other = table(texts_of(5, 20), vectors_of(5, 6))
    pq.write_table(other, tmp_path / "source" / "z.parquet")
    refused(tmp_path, "vectors of 8 and of 6 numbers")
    npy(tmp_path / "npy", (20,))
    np.save(tmp_path / "npy" / "vectors-9.npy", vectors_of(5, 6))
    with pytest.raises(InputError, match=r"vectors-2.npy of 8, vectors-9.npy of 6"):
        open_published(tmp_path / "npy")


@pytest.mark.parametrize("name", ["id", "text", "title", "embeddings"])
def test_a_missing_column_is_refused(tmp_path, name) -> None:
    (tmp_path / "source").mkdir()
    whole = table(texts_of(5), vectors_of(5)).drop_columns([name])
    pq.write_table(whole, tmp_path / "source" / "a.parquet")
    refused(tmp_path, f"has no column {name}; it has")


@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.int64()), pa.float32()], ids=str)
def test_a_column_of_another_type_is_refused(tmp_path, kind) -> None:
    (tmp_path / "source").mkdir()
    whole = table(texts_of(5), vectors_of(5)).drop_columns(["embeddings"])
    whole = whole.append_column("embeddings", pa.nulls(5, kind))
    pq.write_table(whole, tmp_path / "source" / "a.parquet")
    refused(tmp_path, "it must be lists of floats")


@pytest.mark.parametrize("rows", [54, 56])
def test_mismatched_counts_are_refused(tmp_path, rows) -> None:
    npy(tmp_path / "source", rows=texts_of(rows))
    refused(tmp_path, "there are 55 vectors and (more|only 54) passages")
    assert not (tmp_path / "to" / "passages").exists()


def test_ids_in_another_order_are_refused(tmp_path) -> None:
    npy(tmp_path / "source", ids=np.r_[1:20, 21, 20, 22:56].astype(str))
    refused(tmp_path, "row 20 of .* is passage '20', and of ids.npy '21'")
    np.save(tmp_path / "source" / "ids.npy", np.arange(54))
    (tmp_path / "to").rename(tmp_path / "old")
    refused(tmp_path, "must hold 55 ids")


def test_invalid_arrays_are_refused(tmp_path) -> None:
    npy(tmp_path / "source")
    path = tmp_path / "source" / "vectors-10.npy"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    refused(tmp_path, "vectors-10.npy is not an array of numbers, or is cut short")
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    refused(tmp_path, "vectors-10.npy is not an array of numbers")  # pickles are not read
    for wrong in (np.zeros((3, D), np.int8), np.zeros(3, np.float32), np.zeros((0, D), "f")):
        np.save(path, wrong)
        refused(tmp_path, "vectors are float16 or float32")


@pytest.mark.parametrize(
    "data, said",
    [
        (b"text\tid\ttitle\n1\tone\tx\n", "line 1: the columns are"),
        (b"id\ttext\ttitle\n1\tone\n", "line 2: 2 columns; 3 are needed"),
        (b"id\ttext\ttitle\n1\t\xff\xfe\tx\n", "line 2: not UTF-8"),
        (b"", "only 0 passages"),
    ],
)
def test_invalid_tables_are_refused(tmp_path, data, said) -> None:
    npy(tmp_path / "source")
    (tmp_path / "source" / "psgs_w100.tsv").write_bytes(data)
    refused(tmp_path, said)


def test_folders_without_published_files_are_refused(tmp_path) -> None:
    refused(tmp_path, "is no folder")
    (tmp_path / "source").mkdir()
    refused(tmp_path, "has 0 parquet, 0 npy and 0 tsv files")
    (tmp_path / "source").rmdir()
    parquet(tmp_path / "source")
    np.save(tmp_path / "source" / "a.npy", vectors_of(3))
    refused(tmp_path, "has 2 parquet, 1 npy and 0 tsv files")
    (tmp_path / "source" / "a.npy").unlink()
    for path in (tmp_path / "source").iterdir():
        pq.write_table(table(texts_of(1), vectors_of(1)).slice(0, 0), path)
    refused(tmp_path, "have no rows")


def test_duplicate_ids_are_refused(tmp_path) -> None:
    npy(tmp_path / "source", rows=[*texts_of(54), *texts_of(1)])
    refused(tmp_path, "'1' is the id of rows 1 and 55")


def imported(tmp_path, *, metric, unit=False):
    every = vectors_of(55)
    if unit:
        every /= np.linalg.norm(every, axis=1, keepdims=True)
    (tmp_path / "source").mkdir()
    pq.write_table(table(texts_of(55), every), tmp_path / "source" / "a.parquet")
    directory = tmp_path / "to"
    import_published(tmp_path / "source", directory, dimension=D, dtype="float32")
    queries = VectorEncoder(np.zeros((1, D)), vectors_of(40, seed=1))
    return every, opened(directory, queries, metric)


def opened(directory, queries, metric="l2"):
    passages = Passages.open(directory / "passages")
    return WikiDpr(exact=True)._open(directory, passages, queries, metric)


@pytest.mark.parametrize("metric", ["l2", "inner_product"])
def test_search_against_float64(tmp_path, metric) -> None:
    every, index = imported(tmp_path, metric=metric)
    queries = index.embed([f"q{i}" for i in range(40)])
    p, q = every.astype(np.float64), queries.astype(np.float64)
    # -|q - p|^2 = 2 <q, p> - |q|^2 - |p|^2
    scores = {
        "inner_product": q @ p.T,
        "l2": 2 * q @ p.T - (q**2).sum(1)[:, None] - (p**2).sum(1)[None],
    }[metric]
    best = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    found = index.search(queries, 5)
    assert [ranking.ids for ranking in found] == list(map(tuple, best.tolist()))
    wanted = np.take_along_axis(scores, best, axis=1)
    np.testing.assert_allclose([r.scores for r in found], wanted, rtol=2e-6)
    first = index.passages[found[0].ids[0]]
    assert first.title == f"Title {found[0].ids[0]}"
    assert np.array_equal(index.vectors([3, 1]), every[[3, 1]])


def test_nearest_and_largest_product_agree_on_unit_vectors_only(tmp_path) -> None:
    for unit in (True, False):
        found = {}
        for metric in ("l2", "inner_product"):
            (tmp_path / f"{unit}{metric}").mkdir()
            _, index = imported(tmp_path / f"{unit}{metric}", metric=metric, unit=unit)
            queries = index.embed([f"q{i}" for i in range(40)])
            found[metric] = [ranking.ids for ranking in index.search(queries, 10)]
        assert (found["l2"] == found["inner_product"]) == unit


def test_identity_includes_index_and_question_encoder(tmp_path) -> None:
    _, index = imported(tmp_path, metric="l2")
    told = json.loads(index.identity)
    assert told["index"]["exact"] == "l2" and "vectors" in told["questions"]
    assert told["index"]["matrix"]["encoder"]["published"][0]["name"] == "a.parquet"
    other = opened(tmp_path / "to", VectorEncoder(np.ones((1, D)), vectors_of(2)))
    assert other.identity != index.identity
    with pytest.raises(InputError, match="have 8 numbers, and the encoder of questions makes 3"):
        opened(tmp_path / "to", VectorEncoder(np.ones((1, 3))))


@pytest.mark.parametrize("exact", [True, False])
def test_settings(tmp_path, monkeypatch, exact) -> None:
    parquet(tmp_path / "source")
    queries = VectorEncoder(np.zeros((1, D)), vectors_of(4, seed=1))
    monkeypatch.setattr(BiEncoder, "load", lambda self: queries)
    settings = WikiDpr(exact=exact, metric="inner_product")
    assert "not imported yet" in settings.status(None, tmp_path).state
    with pytest.raises(InputError, match=r"no complete import \(not built yet\)\. Give"):
        settings.open(None, tmp_path)
    with_source = WikiDpr(str(tmp_path / "source"), exact=exact, metric="inner_product")
    index = with_source.open(None, tmp_path)
    assert settings.status(None, tmp_path).state == "not searched, but 55 that are imported"
    (tmp_path / "source").rename(tmp_path / "gone")  # it is needed no more
    again = WikiDpr(exact=exact, metric="inner_product", verify=True).open(None, tmp_path)
    assert again.identity == index.identity
    (found,) = again.search(again.embed(["q2"]), 3)
    assert found == index.search(index.embed(["q2"]), 3)[0] and len(found.ids) == 3
    assert again.encoder is queries and len(again.passages) == 55
    shard = tmp_path / "wiki_dpr" / "vectors" / "vectors-00000.npy"
    shard.write_bytes(shard.read_bytes()[:-2])
    assert "vectors-00000.npy has" in settings.status(None, tmp_path).state
    with pytest.raises(InputError, match=r"no complete import \(the index is damaged.*source="):
        settings.open(None, tmp_path)
    repaired = WikiDpr(str(tmp_path / "gone"), exact=exact, metric="inner_product")
    assert repaired.open(None, tmp_path).identity == index.identity


def test_a_missing_pyarrow_is_named(tmp_path, monkeypatch) -> None:
    parquet(tmp_path / "source")
    monkeypatch.setitem(__import__("sys").modules, "pyarrow.parquet", None)
    refused(tmp_path, "pip install pyarrow")


def test_the_default_question_encoder_is_dpr(tmp_path) -> None:
    encoder = dpr_questions()
    assert (encoder.pooling, encoder.normalise, encoder.query_checkpoint) == ("cls", False, "")
    assert "question_encoder" in encoder.checkpoint and WikiDpr().encoder == encoder
    with pytest.raises(InputError, match="metric must be"):
        WikiDpr(metric="cosine")
