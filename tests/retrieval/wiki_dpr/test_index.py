"""Published vectors: parquet and FAISS's flat files, what is refused, and their indexes."""

import json
import struct

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jaxrag.retrieval.corpus.manifest import read_manifest
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.settings import Footprint
from jaxrag.retrieval.wiki_dpr.index import FaissFlat, WikiDpr, import_flat, import_published
from jaxrag.retrieval.wiki_dpr.sources import FlatVectors, ParquetVectors, fingerprint
from jaxrag.types import InputError, Passage
from tests.retrieval.fakes import FakeEncoder, FakePassages, VectorEncoder

D, N = 8, 55


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


def parquet(folder, sizes=(30, 25), *, kind=None, every=None):
    """Shards of made-up passages, in the order of the numbers in their names; all vectors."""
    folder.mkdir()
    every, start = vectors_of(sum(sizes)) if every is None else every, 0
    for number, size in zip((2, 10), sizes, strict=False):
        part = table(texts_of(size, start), every[start : start + size], kind)
        pq.write_table(part, folder / f"train-{number}.parquet", row_group_size=10)
        start += size
    return every


KINDS = [
    pa.list_(pa.float32()),
    pa.list_(pa.float64()),
    pa.list_(pa.float16()),
    pa.large_list(pa.float32()),
    pa.list_(pa.float32(), D),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_what_was_imported_is_what_was_published(tmp_path, kind) -> None:
    every = parquet(tmp_path / "source", kind=kind)
    import_published(tmp_path / "source", tmp_path / "to", dimension=D, shard_rows=17)
    passages = Passages.open(tmp_path / "to/passages")
    expected = [Passage(name, title, text) for name, text, title in texts_of(len(every))]
    assert list(passages) == expected
    manifest = read_manifest(tmp_path / "to/vectors", "matrix")
    assert manifest.complete and len(manifest.files) == 4  # of 17, 17, 17 and 4 rows
    files = [np.load(tmp_path / "to/vectors" / f.name) for f in sorted(manifest.files)]
    assert np.array_equal(np.concatenate(files), every.astype(np.float16))


def test_any_range_of_rows_can_be_read(tmp_path) -> None:
    every = parquet(tmp_path / "source")
    published = ParquetVectors.open(tmp_path / "source")
    assert (published.count, published.dimension) == (N, D)
    spans = [(0, 4), (4, 9), (40, 55), (0, 55), (29, 31), (31, 32), (54, 55), (9, 10), (10, 30)]
    for first, last in spans:
        assert np.array_equal(published.vectors(range(first, last)), every[first:last])


def test_a_directory_of_something_else_is_refused(tmp_path) -> None:
    parquet(tmp_path / "source")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    (tmp_path / "killed").mkdir()  # while the first record was written
    (tmp_path / "killed" / "manifest.json.new").write_text("{")
    import_published(tmp_path / "source", tmp_path / "killed", dimension=D)
    with pytest.raises(InputError, match="holds something else"):
        import_published(tmp_path / "source", tmp_path / "full", dimension=D)


def test_the_fingerprint_covers_both_ends_of_a_file(tmp_path) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(bytes(5 << 20))
    before = fingerprint(tmp_path)
    for at in (0, (5 << 20) - 1):
        data = bytearray(5 << 20)
        data[at] = 1
        path.write_bytes(data)
        assert fingerprint(tmp_path) != before


def refused(tmp_path, said, dimension=D):
    """The import is refused."""
    with pytest.raises(InputError, match=said):
        import_published(tmp_path / "source", tmp_path / "to", dimension=dimension)


def test_vectors_of_another_model_are_refused(tmp_path) -> None:
    parquet(tmp_path / "source")
    refused(tmp_path, "have 8 numbers, and the encoder of questions makes 768", dimension=768)
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e6])
def test_non_finite_vectors_are_refused(tmp_path, bad) -> None:
    every = vectors_of(N)
    every[41, 3] = bad  # of float16 the largest number is 65,504
    parquet(tmp_path / "source", every=every)
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


@pytest.mark.parametrize("kind", [None, pa.string(), pa.list_(pa.int64())], ids=str)
def test_a_column_missing_or_of_another_type_is_refused(tmp_path, kind) -> None:
    (tmp_path / "source").mkdir()
    whole = table(texts_of(5), vectors_of(5)).drop_columns(["embeddings"])
    if kind is not None:
        whole = whole.append_column("embeddings", pa.nulls(5, kind))
    pq.write_table(whole, tmp_path / "source" / "a.parquet")
    refused(tmp_path, "it must be lists of floats" if kind else "has no column embeddings; it has")


def test_folders_without_published_files_are_refused(tmp_path) -> None:
    refused(tmp_path, r"is no folder of \*\.parquet files")
    parquet(tmp_path / "source")
    for path in (tmp_path / "source").iterdir():
        pq.write_table(table(texts_of(1), vectors_of(1)).slice(0, 0), path)
    refused(tmp_path, "have no rows")


def imported(tmp_path, *, metric, unit=False):
    every = vectors_of(N)
    if unit:
        every /= np.linalg.norm(every, axis=1, keepdims=True)
    tmp_path.mkdir()
    parquet(tmp_path / "source", every=every)
    import_published(tmp_path / "source", tmp_path / "to", dimension=D, dtype="float32")
    return opened(tmp_path / "to", VectorEncoder(np.zeros((1, D)), vectors_of(40, seed=1)), metric)


def opened(directory, queries, metric="l2"):
    passages = Passages.open(directory / "passages")
    return WikiDpr(exact=True)._open(directory, passages, queries, metric)


def test_identity_includes_index_and_question_encoder(tmp_path) -> None:
    index = imported(tmp_path / "a", metric="l2")
    told = json.loads(index.identity)
    assert told["index"]["exact"] == "l2" and "vectors" in told["questions"]
    assert told["index"]["matrix"]["encoder"]["published"][0]["name"] == "train-2.parquet"
    other = opened(tmp_path / "a/to", VectorEncoder(np.ones((1, D)), vectors_of(2)))
    assert other.identity != index.identity
    with pytest.raises(InputError, match="have 8 numbers, and the encoder of questions makes 3"):
        opened(tmp_path / "a/to", VectorEncoder(np.ones((1, 3))))


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
    again = settings.open(None, tmp_path)
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


def corpus(count=N):
    """Passages with titles; FlashRAG's text of one is its title in quotes, a newline, its text."""
    passages = FakePassages(count)
    passages.rows = [Passage(str(i), f"Title {i}", f"text {i}") for i in range(count)]
    return passages


def flat(count=N):
    return FakeEncoder(16).embed([f'"Title {i}"\ntext {i}' for i in range(count)])


def file_of(vectors, kind=b"IxFI", *, metric=0, count=None, numbers=None):
    """The bytes of the file, by hand: kind, d, ntotal, 2^20 twice, is_trained, metric, length."""
    n, d = vectors.shape
    header = struct.pack("<4siqqqBi", kind, d, count or n, 1 << 20, 1 << 20, 1, metric)
    return header + struct.pack("<Q", numbers or n * d) + vectors.astype("<f4").tobytes()


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source" / "e5_Flat.index"
    path.parent.mkdir()
    path.write_bytes(file_of(flat()))
    return path


def test_vectors_of_a_flat_file(source) -> None:
    for path in (source, source.parent):
        vectors = FlatVectors.open(path)
        assert (vectors.count, vectors.dimension, vectors.path) == (N, 16, source)
        for rows in (range(N), range(3, 9), range(54, 55), range(5, 5)):
            assert np.array_equal(vectors.vectors(rows), flat()[rows.start : rows.stop])


def test_faiss_writes_the_same_bytes(source, tmp_path) -> None:
    faiss = pytest.importorskip("faiss", reason="needs faiss: pip install 'jaxrag[bench]'")
    index = faiss.IndexFlatIP(16)
    index.add(flat())
    faiss.write_index(index, str(tmp_path / "faiss.index"))
    assert (tmp_path / "faiss.index").read_bytes() == source.read_bytes()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (file_of(flat(), b"IxF2"), "is no IndexFlatIP of faiss.*it begins b'IxF2'"),
        (file_of(flat())[:40], "or cut short"),
        (file_of(flat())[:-1], "has 3,564 bytes; 55 vectors of 16 numbers take 3,565"),
        (file_of(flat()) + b"x", "has 3,566 bytes"),
        (file_of(flat(), metric=1), "metric 1"),
        (file_of(flat(), count=54), "54 vectors of 16 numbers, 880 numbers in all"),
    ],
)
def test_damaged_flat_files_are_refused(tmp_path, data, said) -> None:
    (tmp_path / "a.index").write_bytes(data)
    with pytest.raises(InputError, match=said):
        FlatVectors.open(tmp_path / "a.index")


def test_missing_flat_files_are_refused(tmp_path) -> None:
    (tmp_path / "a.index").touch()
    (tmp_path / "b.index").touch()
    with pytest.raises(InputError, match=r"there: a\.index, b\.index"):
        FlatVectors.open(tmp_path)


def test_flat_vectors_of_something_else_are_refused(source, tmp_path) -> None:
    shuffled = corpus()
    shuffled.rows = shuffled.rows[::-1]
    for passages, encoder, said in (
        (corpus(54), FakeEncoder(16), "has 55 vectors and the corpus 54 passages.*wiki18_100w"),
        (corpus(), FakeEncoder(8), "have 16 numbers, and the encoder of questions makes 8"),
        (shuffled, FakeEncoder(16), "median cosine .* below 0.95. .* in another order"),
    ):
        with pytest.raises(InputError, match=said):
            import_flat(source, tmp_path / "to", passages, encoder)
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("exact", [True, False])
def test_settings_of_flat_vectors(source, tmp_path, monkeypatch, exact) -> None:
    encoder, passages, cache = FakeEncoder(16), corpus(), tmp_path / "cache"
    monkeypatch.setattr(BiEncoder, "load", lambda self: encoder)
    settings = FaissFlat(exact=exact)
    assert settings.status(passages, cache).state == "not imported yet"
    index = FaissFlat(str(source), exact=exact).open(passages, cache)
    assert index.passages is passages and index.encoder is encoder
    (found,) = index.search(flat()[9:10], 3)
    assert found.ids[0] == 9 and found.scores[0] == pytest.approx(1, abs=1e-3)
    assert np.array_equal(index.vectors([3, 1]), flat()[[3, 1]].astype(np.float16))
    source.unlink()  # it is needed no more
    again = settings.open(passages, cache)
    assert again.identity == index.identity and again.search(flat()[9:10], 3) == [found]
    state = settings.status(passages, cache)
    assert (state.state, state.dimension) == ("built", 16)


def test_footprint_of_flat_vectors(monkeypatch) -> None:
    described = FakeEncoder(16)
    monkeypatch.setattr(BiEncoder, "describe", lambda self: described)
    exact = FaissFlat(exact=True, memory_gb=1).footprint(corpus())
    assert exact == Footprint(2 * N * 16, 4 * N * 16)
    assert FaissFlat().footprint(corpus()).disk == 2 * N * 16
    assert FaissFlat().encoder.passage_prefix == "passage: "  # E5


def test_the_default_question_encoder_is_dpr() -> None:
    encoder = WikiDpr().encoder
    assert (encoder.pooling, encoder.normalise) == ("cls", False)
    with pytest.raises(InputError, match="metric must be"):
        WikiDpr(metric="cosine")
