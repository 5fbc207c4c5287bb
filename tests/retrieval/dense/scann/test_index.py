import json
import logging
import pickle
import shutil

import numpy as np
import pytest

pytest.importorskip("scann", reason="ScaNN runs on Linux on x86-64 only")

from jaxrag.retrieval.dense.exact import ExactIndex
from jaxrag.retrieval.dense.scann import recall as recalls
from jaxrag.retrieval.dense.scann.index import ScannIndex, scann_footprint
from jaxrag.retrieval.dense.scann.recall import Recall
from jaxrag.retrieval.dense.scann.tree import ScannSettings
from jaxrag.types import InputError
from tests.retrieval.fakes import VectorEncoder, build_matrix, numbered

ROWS, DIMENSION = 5000, 64
TREE = ScannSettings(leaves=141)  # by default there would be no tree for so few rows


def clustered(
    rows: int, queries: int, seed: int = 0, spread: float = 0.6
) -> tuple[np.ndarray, np.ndarray]:
    """Unit vectors around 200 centres, and queries beside some of them."""
    rng = np.random.default_rng(seed)

    def noise(count: int) -> np.ndarray:
        return rng.standard_normal((count, DIMENSION), np.float32) / 8

    centres = noise(200)
    vectors = centres[rng.integers(0, 200, rows)] + spread * noise(rows)
    asked = vectors[rng.integers(0, rows, queries)] + 0.4 * noise(queries)
    return tuple(v / np.linalg.norm(v, axis=1, keepdims=True) for v in (vectors, asked))


def recall(found, truth) -> float:
    return float(
        np.mean([len({*f.ids} & {*t.ids}) / len(t.ids) for f, t in zip(found, truth, strict=True)])
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    directory = tmp_path_factory.mktemp("scann") / "i"
    vectors, queries = clustered(ROWS, 300, spread=1.2)
    passages, encoder = numbered(ROWS), VectorEncoder(vectors, queries)
    build_matrix(passages, encoder, directory)
    return directory, encoder, passages


@pytest.fixture(scope="module")
def scann(source):
    return ScannIndex.open(*source, settings=TREE, leaves_to_search=50)


def test_scores_are_those_of_exact_search_in_order(source, scann) -> None:
    queries = source[1].query_vectors[:8]
    exact = ExactIndex.open(*source).search(queries, ROWS)
    for found, every in zip(scann.search(queries, 10), exact, strict=True):
        score_of = dict(zip(every.ids, every.scores, strict=True))
        assert found.scores == tuple(score_of[row] for row in found.ids)
        pairs = list(zip((-s for s in found.scores), found.ids, strict=True))
        assert pairs == sorted(pairs)


def test_a_query_does_not_depend_on_the_batch(source, scann) -> None:
    queries = np.concatenate([source[1].query_vectors] * 2)
    together = scann.search(queries, 10)
    assert together[:300] == together[300:]
    for size in (1, 2, 3, 7, 31, 32, 33, 64, 100):
        blocks = [queries[start : start + size] for start in range(0, 300, size)]
        found = [ranking for block in blocks for ranking in scann.search(block, 10)]
        assert found == together[: len(found)]


@pytest.mark.parametrize("k", [1, 60, 150, 5000])
def test_every_k_gives_k_results(source, scann, k) -> None:
    for ranking in scann.search(source[1].query_vectors[:3], k):
        assert len(ranking.ids) == len({*ranking.ids}) == k
        assert all(0 <= row < ROWS for row in ranking.ids)


@pytest.mark.parametrize("count", [1, 2, 17, 300])
@pytest.mark.parametrize("settings", [ScannSettings(), ScannSettings(leaves=4)])
def test_tiny_corpora(tmp_path, count, settings) -> None:
    vectors, queries = clustered(count, 5)
    source = tmp_path, VectorEncoder(vectors), numbered(count)
    build_matrix(source[2], source[1], tmp_path)
    truth = ExactIndex.open(*source).search(queries, 10)
    found = ScannIndex.open(*source, settings=settings, leaves_to_search=4).search(queries, 10)
    assert [len(ranking.ids) for ranking in found] == [min(10, count)] * 5
    if settings.leaves is None:
        assert found == truth
    else:
        assert recall(found, truth) > 0.9


def test_settings_fit_the_corpus() -> None:
    assert ScannSettings().resolved(20_000).leaves == 0
    large = ScannSettings().resolved(1_000_000)
    assert (large.leaves, large.training_rows) == (4000, 250_000)  # 4 sqrt(10^6)
    assert ScannSettings(leaves=50).resolved(30) == ScannSettings(leaves=30, training_rows=30)
    assert ScannSettings(leaves=50).resolved(15).leaves == 0


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_l2_and_vectors_of_any_length(tmp_path, scale) -> None:
    vectors, queries = clustered(3000, 50)
    lengths = np.random.default_rng(1).uniform(1, scale, (3000, 1)).astype(np.float32)
    source = tmp_path, VectorEncoder(vectors * lengths), numbered(3000)
    build_matrix(source[2], source[1], tmp_path)
    for metric in ("l2", "inner_product"):
        truth = ExactIndex.open(*source, metric=metric).search(queries, 10)
        settings = ScannSettings(metric=metric, leaves=100)
        found = ScannIndex.open(*source, settings=settings, leaves_to_search=60)
        assert recall(found.search(queries, 10), truth) > 0.9


def test_identity_depends_on_training_and_search_settings(source, scann) -> None:
    identity = json.loads(scann.identity)
    assert identity["content"] == scann.content
    assert identity["scann"]["leaves"] == 141
    assert scann.identity != ScannIndex.open(*source, settings=TREE, leaves_to_search=3).identity


@pytest.fixture
def copy(source, scann, tmp_path):
    directory = tmp_path / "copy"
    shutil.copytree(source[0], directory)
    (folder,) = directory.glob("scann-*")
    return directory, *source[1:], folder


def test_a_damaged_tree_is_trained_again_and_rows_are_coded_again(copy, scann) -> None:
    *source, folder = copy
    (folder / "tree" / "ah_codebook.pb").write_bytes(b"")
    assert ScannIndex.open(*source, settings=TREE).content == scann.content  # the same bytes


def test_pickles_beside_the_index_are_not_loaded(copy, scann) -> None:
    *source, folder = copy
    for place in (folder, folder / "tree", folder / "codes"):
        (place / "scann_docids.pkl").write_bytes(pickle.dumps(_Bomb()))
    assert ScannIndex.open(*source, settings=TREE).content == scann.content


class _Bomb:
    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle was loaded')",)


def test_a_matrix_that_has_changed_gets_another_index(copy, scann) -> None:
    directory, encoder, passages, _ = copy
    changed = VectorEncoder(encoder.passage_vectors[::-1].copy())
    for path in [*directory.glob("vectors-*"), directory / "manifest.json"]:
        path.unlink()
    elsewhere = directory.parent / "elsewhere"
    build_matrix(passages, changed, elsewhere)
    for path in elsewhere.iterdir():
        shutil.copy(path, directory)
    assert ScannIndex.open(directory, changed, passages, settings=TREE).content != scann.content
    with pytest.raises(InputError, match="made from something else"):
        ScannIndex.open(directory, encoder, passages, settings=TREE)


def test_copies_of_a_passage_are_found_in_the_order_of_rows(tmp_path) -> None:
    """More copies than candidates: neither ScaNN's choice among them nor the batch matters."""
    vectors, queries = clustered(2000, 40)
    copies = np.random.default_rng(3).choice(2000, 400, replace=False)
    vectors[copies] = vectors[copies[0]]
    queries[:20] = vectors[copies[0]] + queries[:20] / 4
    source = tmp_path, VectorEncoder(vectors), numbered(2000)
    build_matrix(source[2], source[1], tmp_path)
    settings = ScannSettings(leaves=60, shard_rows=700)
    index = ScannIndex.open(*source, settings=settings, leaves_to_search=60)
    together = index.search(queries, 10)
    assert together[:20] == ExactIndex.open(*source).search(queries, 10)[:20]
    assert {*together[0].ids} <= {*copies.tolist()}
    assert together == [ranking for query in queries for ranking in index.search(query[None], 10)]


def test_default_leaves_reach_the_recall(source, scann) -> None:
    truth = ExactIndex.open(*source).search(source[1].query_vectors, 10)
    leaves = []
    for target in (0.8, 0.95, 0.99):
        index = ScannIndex.open(*source, settings=TREE, recall=target)
        leaves.append(index.leaves_to_search)
        # queries lie further from the passages than the passages' own, which stand for titles
        assert recall(index.search(source[1].query_vectors, 10), truth) > target - 0.1
    assert leaves == sorted(leaves)
    assert leaves[0] < leaves[2] < 141


def test_recall_is_measured_once_and_only_for_default_leaves(copy, monkeypatch) -> None:
    *source, folder = copy
    (folder / "recall.json").unlink(missing_ok=True)
    assert ScannIndex.open(*source, settings=TREE, leaves_to_search=9).leaves_to_search == 9
    assert not (folder / "recall.json").exists()
    leaves = ScannIndex.open(*source, settings=TREE).leaves_to_search
    assert leaves < 141
    with monkeypatch.context() as patch:
        patch.setattr(recalls, "measure", None)
        assert ScannIndex.open(*source, settings=TREE).leaves_to_search == leaves
    (folder / "recall.json").write_text("[]")
    with pytest.raises(InputError, match=r"recall\.json is damaged"):
        ScannIndex.open(*source, settings=TREE)


def test_warns_of_a_recall_out_of_reach(copy, caplog, monkeypatch) -> None:
    *source, folder = copy
    (folder / "recall.json").unlink(missing_ok=True)
    monkeypatch.setattr(recalls, "measure", lambda *_, **__: Recall({1: 0.5, 141: 0.9}))
    monkeypatch.setattr(logging.getLogger("jaxrag"), "propagate", True)
    assert ScannIndex.open(*source, settings=TREE).leaves_to_search == 141
    assert "recall@10 reaches 0.900 of 0.950 with all 141 leaves searched" in caplog.text


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (ScannSettings(metric="cosine"), "metric"),
        (ScannSettings(leaves=-1), "leaves"),
        (ScannSettings(reorder=0), "at least 1"),
    ],
)
def test_refuses_settings_out_of_range(source, settings, message) -> None:
    with pytest.raises(InputError, match=message):
        ScannIndex.open(*source, settings=settings)
    with pytest.raises(InputError, match="leaves_to_search"):
        ScannIndex.open(*source, settings=TREE, leaves_to_search=0)
    with pytest.raises(InputError, match="recall must be"):
        ScannIndex.open(*source, settings=TREE, recall=1.5)


def test_footprint() -> None:
    # codes: 1.5 bytes (held and read) x 192 a row
    leaves = ScannSettings().resolved(1_000_000).leaves
    found = scann_footprint(1_000_000, 384, ScannSettings())
    assert found.memory == 1_000_000 * 192 * 3 // 2 + leaves * 384 * 8
    assert found.disk == 1_000_000 * (2 * 384 + 192 + 4)
