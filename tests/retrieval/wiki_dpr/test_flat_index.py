"""FAISS's flat files: by hand and by faiss, what is refused, and the index of a corpus."""

import struct

import numpy as np
import pytest

from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.settings import Footprint
from jaxrag.retrieval.wiki_dpr.flat_index import FaissFlat, import_flat
from jaxrag.retrieval.wiki_dpr.sources import FlatVectors
from jaxrag.types import InputError, Passage
from tests.retrieval.fakes import FakeEncoder, FakePassages

D, N = 16, 55


def corpus(count=N):
    """Passages with titles; FlashRAG's text of one is its title in quotes, a newline, its text."""
    passages = FakePassages(count)
    passages.rows = [Passage(str(i), f"Title {i}", f"text {i}") for i in range(count)]
    return passages


def published(count=N):
    return FakeEncoder(D).embed([f'"Title {i}"\ntext {i}' for i in range(count)])


def file_of(vectors, kind=b"IxFI", *, metric=0, count=None, numbers=None):
    """The bytes of the file, by hand: kind, d, ntotal, 2^20 twice, is_trained, metric, length."""
    n, d = vectors.shape
    header = struct.pack("<4siqqqBi", kind, d, count or n, 1 << 20, 1 << 20, 1, metric)
    return header + struct.pack("<Q", numbers or n * d) + vectors.astype("<f4").tobytes()


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source" / "e5_Flat.index"
    path.parent.mkdir()
    path.write_bytes(file_of(published()))
    return path


def test_vectors_of_a_file(source) -> None:
    assert len(source.read_bytes()) == 37 + 8 + 4 * N * D
    for path in (source, source.parent):
        flat = FlatVectors.open(path)
        assert (flat.count, flat.dimension, flat.path) == (N, D, source)
        for rows in (range(N), range(3, 9), range(54, 55), range(5, 5)):
            assert np.array_equal(flat.vectors(rows), published()[rows.start : rows.stop])


def test_faiss_writes_the_same_bytes(source, tmp_path) -> None:
    faiss = pytest.importorskip("faiss", reason="needs faiss: pip install 'jaxrag[bench]'")
    index = faiss.IndexFlatIP(D)
    index.add(published())
    faiss.write_index(index, str(tmp_path / "faiss.index"))
    assert (tmp_path / "faiss.index").read_bytes() == source.read_bytes()


@pytest.mark.parametrize("factory", ["L2", "IVF2,Flat", "HNSW4", "SQ8", "IDMap,Flat", "PCA4,Flat"])
def test_faiss_files_of_other_kinds_are_refused(tmp_path, factory) -> None:
    faiss = pytest.importorskip("faiss", reason="needs faiss: pip install 'jaxrag[bench]'")
    if factory == "L2":
        index = faiss.IndexFlatL2(D)
    else:
        index = faiss.index_factory(D, factory, faiss.METRIC_INNER_PRODUCT)
    vectors = np.random.default_rng(0).standard_normal((700, D), np.float32)
    index.train(vectors)
    faiss.write_index(index, str(tmp_path / "a.index"))
    with pytest.raises(InputError, match=r"a\.index is no IndexFlatIP .*; only whole vectors"):
        FlatVectors.open(tmp_path)


GOOD = published()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (file_of(GOOD, b"IxF2"), "is no IndexFlatIP of faiss .it begins b'IxF2'"),
        (b"PK\x03\x04 a zip file", "is no IndexFlatIP of faiss"),
        (b"", "is no IndexFlatIP of faiss"),
        (file_of(GOOD)[:40], "has 40 bytes: it is cut short"),
        (file_of(GOOD)[:-1], "has 3,564 bytes; 55 vectors of 16 numbers take 3,565"),
        (file_of(GOOD) + b"x", "has 3,566 bytes"),
        (file_of(GOOD, metric=1), "metric 1"),
        (file_of(GOOD, count=54), "54 vectors of 16 numbers, 880 numbers in all"),
        (file_of(GOOD, numbers=879), "55 vectors of 16 numbers, 879 numbers in all"),
    ],
)
def test_damaged_files_are_refused(tmp_path, data, said) -> None:
    (tmp_path / "a.index").write_bytes(data)
    with pytest.raises(InputError, match=said):
        FlatVectors.open(tmp_path / "a.index")


def test_missing_files_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="is no file of faiss"):
        FlatVectors.open(tmp_path / "nowhere")
    (tmp_path / "a.index").touch()
    (tmp_path / "b.index").touch()
    with pytest.raises(InputError, match=r"there: a\.index, b\.index"):
        FlatVectors.open(tmp_path)


def test_vectors_of_something_else_are_refused(source, tmp_path) -> None:
    shuffled = corpus()
    shuffled.rows = shuffled.rows[::-1]
    for passages, encoder, said in (
        (corpus(54), FakeEncoder(D), "has 55 vectors and the corpus 54 passages.*wiki18_100w"),
        (corpus(), FakeEncoder(8), "have 16 numbers, and the encoder of questions makes 8"),
        (shuffled, FakeEncoder(D), "median cosine .* below 0.95. .* in another order"),
    ):
        with pytest.raises(InputError, match=said):
            import_flat(source, tmp_path / "to", passages, encoder)
    assert not (tmp_path / "to").exists()
    import_flat(source, tmp_path / "to", shuffled, FakeEncoder(D), compared=0)


@pytest.mark.parametrize(("bad", "told"), [(np.nan, "row 7"), (7e4, "row 7")])
def test_vectors_that_are_not_finite_are_refused(tmp_path, bad, told) -> None:
    vectors = published()
    vectors[7, 3] = bad  # 70,000 is beyond float16
    (tmp_path / "a.index").write_bytes(file_of(vectors))
    with pytest.raises(InputError, match=rf"passage '7' \({told}\) is not finite in float16"):
        import_flat(tmp_path / "a.index", tmp_path / "to", corpus(), FakeEncoder(D))


@pytest.mark.parametrize("exact", [True, False])
def test_settings(source, tmp_path, monkeypatch, exact) -> None:
    encoder, passages, cache = FakeEncoder(D), corpus(), tmp_path / "cache"
    monkeypatch.setattr(BiEncoder, "load", lambda self: encoder)
    settings = FaissFlat(exact=exact, leaves=2, leaves_to_search=2)
    assert settings.status(passages, cache).state == "not imported yet"
    with pytest.raises(InputError, match=r"no complete import \(not built yet\)\. Give"):
        settings.open(passages, cache)
    index = FaissFlat(str(source), exact=exact, leaves=2, leaves_to_search=2).open(passages, cache)
    assert index.passages is passages and index.encoder is encoder
    (found,) = index.search(published()[9:10], 3)
    assert found.ids[0] == 9 and found.scores[0] == pytest.approx(1, abs=1e-3)
    assert np.array_equal(index.vectors([3, 1]), published()[[3, 1]].astype(np.float16))
    source.unlink()  # it is needed no more
    again = settings.open(passages, cache)
    assert again.identity == index.identity and again.search(published()[9:10], 3) == [found]
    state = settings.status(passages, cache)
    assert (state.state, state.dimension) == ("built", D)


def test_footprint(monkeypatch) -> None:
    described = FakeEncoder(D)
    monkeypatch.setattr(BiEncoder, "describe", lambda self: described)
    assert FaissFlat(exact=True, memory_gb=1).footprint(corpus()) == Footprint(2 * N * D, 4 * N * D)
    assert FaissFlat().footprint(corpus()).disk == 2 * N * D
    assert FaissFlat().encoder.passage_prefix == "passage: "  # E5
