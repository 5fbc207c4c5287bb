import numpy as np
import pytest

pytest.importorskip("scann", reason="ScaNN runs on Linux on x86-64 only")

from jaxrag.retrieval.dense.scann import searchers
from jaxrag.retrieval.dense.scann.index import ScannIndex
from jaxrag.retrieval.dense.scann.searchers import Searchers
from jaxrag.retrieval.dense.scann.tree import ScannSettings, Tree, library
from tests.retrieval.dense.scann.test_index import clustered
from tests.retrieval.fakes import VectorEncoder, build_matrix, numbered

ROWS = 3000


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A tree, the leaves and codes of its rows, and queries."""
    directory = tmp_path_factory.mktemp("tree")
    vectors, queries = clustered(ROWS, 500, spread=1.2)
    source = directory, VectorEncoder(vectors), numbered(ROWS)
    build_matrix(source[2], source[1], directory)
    settings = ScannSettings(leaves=100)
    ScannIndex.open(*source, settings=settings)
    (folder,) = directory.glob("scann-*/tree")
    tree = Tree.open(folder, settings)
    leaves = tree.leaves(vectors)
    return tree, vectors, leaves, tree.codes(vectors, leaves), queries


def of_shards(trained, folder, size: int) -> Searchers:
    tree, _, leaves, codes, _ = trained
    starts = range(0, ROWS, size)
    for start in starts:
        np.save(folder / f"leaves-{size}-{start}.npy", leaves[start : start + size])
        np.save(folder / f"codes-{size}-{start}.npy", codes[start : start + size])
    shards = tuple(
        tree.searcher(folder / f"leaves-{size}-{s}.npy", folder / f"codes-{size}-{s}.npy")
        for s in starts
    )
    return Searchers(shards, tuple(min(size, ROWS - s) for s in starts), "inner_product")


def as_sets(rows: np.ndarray) -> list[set[int]]:
    return [{*found} - {-1} for found in rows.tolist()]


@pytest.mark.parametrize("leaves", [1, 7, 100])
def test_shards_give_what_one_searcher_gives(trained, tmp_path, leaves) -> None:
    queries = trained[4]
    whole = of_shards(trained, tmp_path, ROWS).candidates(queries, 40, leaves)
    for size in (700, 1000):
        found = of_shards(trained, tmp_path, size).candidates(queries, 40, leaves)
        assert as_sets(found) == as_sets(whole)


def test_codes_lose_no_more_than_those_of_scann(trained) -> None:
    """The anisotropic loss, and how many leaves agree, against ScaNN's own assignment."""
    tree, vectors, *_ = trained
    own = library().builder(vectors, 10, "dot_product")
    own = own.tree(100, 10, training_sample_size=ROWS, min_partition_size=7, spherical=True)
    own = own.score_ah(2, anisotropic_quantization_threshold=0.2, training_sample_size=ROWS)
    theirs = own.build()
    folder = tree.directory.parent / "scanns"
    folder.mkdir()
    theirs.serialize(str(folder), relative_path=True)
    same = Tree.open(folder, tree.settings)
    scanns_leaves = np.load(folder / "datapoint_to_token.npy")
    scanns_codes = np.load(folder / "hashed_dataset.npy")
    assert (same.leaves(vectors)[:, 0] == scanns_leaves).mean() > 0.95
    ours = same.codes(vectors, scanns_leaves[:, None])
    weight = 63 * 0.04 / 0.96 - 1

    def loss(codes: np.ndarray) -> float:
        reached = same.code_centers[np.arange(codes.shape[1]), codes].reshape(ROWS, -1)
        errors = vectors - same.leaf_centers[scanns_leaves] - reached
        along = (errors * vectors).sum(axis=1)
        return float(((errors**2).sum(axis=1) + weight * along**2).mean())

    assert loss(ours) < 1.01 * loss(scanns_codes)
    assert (ours == scanns_codes).mean() > 0.9


def test_codes_do_not_depend_on_the_chunk(trained) -> None:
    tree, vectors, leaves, codes, _ = trained
    for part in (slice(0, 1), slice(100, 777), slice(2990, None)):
        assert np.array_equal(tree.leaves(vectors[part]), leaves[part])
        assert np.array_equal(tree.codes(vectors[part], leaves[part]), codes[part])


def test_where_the_list_ends() -> None:
    none = -np.inf
    scores = np.array(
        [
            [9, 8, 7, 6, 5.9, 3],  # falls by 0.1 and 2.9 after the fourth: five are kept
            [9, 8, 7, 6, 5, 4.9],  # four
            [9, 8, 7, 6, 6, 6],  # nowhere
            [9, 8, 7, 6, 6, 6 - 1e-5],  # rounding
            [9, 8, 7, 6, 5, 4 - 1e-6],  # equal falls but for rounding: the first
            [9, 8, 7, 6, 6, none],  # there are no others
            [none] * 6,
        ]
    )
    assert searchers._last(scores, 4).tolist() == [5, 4, 0, 0, 4, 6, 6]
