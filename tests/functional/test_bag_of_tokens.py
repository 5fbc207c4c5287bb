import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh

from jaxrag.functional import bag_of_tokens as bags
from jaxrag.functional.bag_of_tokens import BLOCK, LEVELS, PAD, STEP
from tests.functional.token_blocks import check_selected, random_blocks, unpacked

V = 12


def part(passages: list[list[int]], tile: int) -> bags.Part:
    """Tiles in the order given, each as wide as it must be."""
    starts, widths, rows = [], [], []
    for first in range(0, len(passages), tile):
        here = passages[first : first + tile]
        width = -(-max(map(len, here)) // STEP) * STEP
        columns = np.full((tile, width), PAD, np.uint16)
        for column, passage in enumerate(here):
            columns[column, : len(passage)] = passage
        starts.append(sum(widths))
        widths.append(width)
        rows.append(columns.T)
    slots = np.concatenate([*rows, np.full((1, tile), PAD, np.uint16)])
    arrays = slots, np.array(starts, np.int32), np.array(widths, np.int32), np.int32(len(passages))
    return bags.Part(*map(jnp.asarray, arrays))


def table(queries: np.ndarray) -> jax.Array:
    largest = queries.max(axis=1)
    inverse = np.where(largest > 0, LEVELS / np.maximum(largest, 1e-30), 0).astype(np.float32)
    return bags.level_table(queries, inverse)


def sums(levels: np.ndarray, passages: list[list[int]]) -> np.ndarray:
    """Exact sums [n q] of levels."""
    return np.array([levels[passage].sum(axis=0) for passage in passages]).reshape(
        -1, levels.shape[1]
    )


def test_levels_worked_by_hand() -> None:
    # 126 levels below the largest weight, rounded up: 2 -> 127 (126 and a trifle), 1 -> 64 (63 and
    # a trifle), 0.001 -> 1, 0 -> 0.
    found = np.asarray(table(np.array([[2.0, 1.0, 0.001, 0.0]], np.float32)))
    assert found.shape == (1 << 16, 1)
    assert found[:5, 0].tolist() == [127, 64, 1, 0, 0]
    assert not found[4:].any()


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 2.0**127, width=32), min_size=V, max_size=V))
def test_quantised_weights_are_upper_bounds(weights) -> None:
    query = np.array([weights], np.float32)
    levels = np.asarray(table(query))[:V, 0].astype(float)
    largest = float(query.max())
    if largest >= 1e-30:
        assert (levels * (largest / LEVELS) * (1 + 1e-12) >= query[0].astype(float)).all(), query
        assert ((levels == 0) == (query[0] == 0)).all()
        assert levels.max() <= LEVELS + 1


passages_ = st.lists(
    st.lists(st.integers(0, V - 1), unique=True, max_size=V), min_size=1, max_size=90
)


@settings(max_examples=25, deadline=None)
@given(passages_, st.integers(0, 2**32 - 1), st.sampled_from([32, 64]), st.sampled_from([0, 3]))
def test_blocks_hold_their_two_best(passages, seed, tile, q) -> None:
    rng = np.random.default_rng(seed)
    queries = rng.choice([0.0, 0.5, 1.0, 7.0], (q or 1, V)).astype(np.float32)
    levels = table(queries)
    found = bags.block_bounds(part(passages, tile), levels if q else levels[:, 0])
    best, lanes, second = unpacked(found)
    exact = sums(np.asarray(levels).astype(int), passages)
    apart = tile // BLOCK
    assert best.shape == (-(-len(passages) // tile) * apart, q or 1)
    for block in range(len(best)):
        first = block // apart * tile + block % apart
        columns = [c for c in range(first, first + tile, apart) if c < len(passages)]
        columns = [c for c in columns if c // tile == block // apart]
        for query in range(q or 1):
            order = sorted(columns, key=lambda c: (-exact[c, query], c))
            if not order:
                assert np.asarray(found)[block, query] == 0
                continue
            column = first + lanes[block, query] * apart
            assert (best[block, query], column) == (exact[order[0], query], order[0])
            runner_up = exact[order[1], query] if len(order) > 1 else -1
            assert second[block, query] == runner_up


def test_bounds_of_the_longest_passages_fit_16_bits() -> None:
    levels = jnp.full((1 << 16, 2), LEVELS + 1, jnp.uint8)
    slots = jnp.zeros((bags.LONGEST // STEP * STEP, 32), jnp.uint16)
    one = bags.Part(slots, jnp.array([0]), jnp.array([slots.shape[0]]), jnp.int32(32))
    best, _, second = unpacked(bags.block_bounds(one, levels))
    assert (best == slots.shape[0] * (LEVELS + 1)).all()
    assert (second == best).all()


def test_a_lead_beyond_12_bits_leaves_an_upper_bound_of_the_second() -> None:
    # Blocks of columns 0 and 2, ..., 1 and 3, ...: the first column has 40 tokens of level 127,
    # 5080, and the others of its block none: a lead of 5080 counts as 4095. In a block of one
    # passage there is a second too, then.
    levels = jnp.zeros((1 << 16, 1), jnp.uint8).at[:40].set(LEVELS + 1)
    columns = np.full((40, 32), PAD, np.uint16)
    columns[:, 0] = range(40)
    for count, second in ((32, [985, 0]), (2, [985, -1])):
        one = bags.Part(jnp.asarray(columns), jnp.array([0]), jnp.array([40]), jnp.int32(count))
        found = unpacked(bags.block_bounds(one, levels))
        assert [x[:, 0].tolist() for x in found] == [[5080, 0], [0, 0], second]


@pytest.mark.parametrize("wanted", [1, 30])
def test_eight_devices_select_the_blocks_of_one(wanted) -> None:
    mesh = Mesh(np.asarray(jax.devices()), ("rows",))
    blocks = random_blocks(240)
    check_selected(
        bags.sharded_select(blocks, wanted=wanted, mesh=mesh, axis="rows"), blocks, wanted
    )


def random_parts(rng: np.random.Generator) -> list[bags.Part]:
    """Parts of two tiles of several widths; in half of them the second tile has one passage."""
    found = []
    for longest, passages in zip((8, 39, 20, 30, 39, 9, 17, 25), 4 * (60, 33), strict=True):
        lengths = np.sort(rng.integers(1, longest, passages))
        found.append(part([rng.permutation(40)[:length].tolist() for length in lengths], 32))
    height = max(len(one.slots) for one in found)
    # as on a device, where rows beyond a file's last tile are zeros
    return [
        one._replace(slots=jnp.pad(one.slots, ((0, height - len(one.slots)), (0, 0))))
        for one in found
    ]


@pytest.mark.parametrize("queries", [0, 3, 4])
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("devices", [1, 8])
def test_any_number_of_devices_gives_the_bounds_of_each_part_alone(queries, at_once, devices):
    rng = np.random.default_rng(0)
    parts = random_parts(rng)
    assert len({tuple(one.widths.tolist()) for one in parts}) > 2
    levels = table(rng.random((queries or 1, 40)).astype(np.float32))
    levels = levels if queries else levels[:, 0]
    found = bags.sharded_block_bounds(
        jax.tree.map(lambda *x: jnp.stack(x), *parts),
        levels,
        mesh=Mesh(np.asarray(jax.devices()[:devices]), ("rows",)),
        axis="rows",
        at_once=at_once,
    )
    alone = [bags.block_bounds(one, levels) for one in parts]
    np.testing.assert_array_equal(found, np.concatenate(alone))


def test_sums_at_once_of_the_longest_passages_fit_16_bits() -> None:
    levels = jnp.full((1 << 16, 2), LEVELS + 1, jnp.uint8)
    slots = jnp.zeros((1, bags.LONGEST // STEP * STEP, 32), jnp.uint16)
    widths = jnp.array([[slots.shape[1]]])
    one = bags.Part(slots, jnp.array([[0]]), widths, jnp.array([32]))
    mesh = Mesh(np.asarray(jax.devices()[:1]), ("rows",))
    found = bags.sharded_block_bounds(one, levels, mesh=mesh, axis="rows", at_once=True)
    best, _, second = unpacked(found)
    assert (best == slots.shape[1] * (LEVELS + 1)).all()
    assert (second == best).all()
