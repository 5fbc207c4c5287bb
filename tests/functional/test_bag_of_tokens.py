import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh

from jaxrag.functional import bag_of_tokens as bags
from jaxrag.functional.bag_of_tokens import BLOCK, LEVELS, PAD, STEP

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
    best, second = np.asarray(found.best).astype(int), np.asarray(found.second).astype(int)
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
                assert best[block, query] == second[block, query] == 0
                continue
            bound, lane = best[block, query] // BLOCK - 1, BLOCK - 1 - best[block, query] % BLOCK
            assert (bound, first + lane * apart) == (exact[order[0], query], order[0])
            runner_up = exact[order[1], query] if len(order) > 1 else -1
            assert second[block, query] - 1 == runner_up


def test_bounds_of_the_longest_passages_fit_16_bits() -> None:
    levels = jnp.full((1 << 16, 2), LEVELS + 1, jnp.uint8)
    slots = jnp.zeros((bags.LONGEST // STEP * STEP, 32), jnp.uint16)
    one = bags.Part(slots, jnp.array([0]), jnp.array([slots.shape[0]]), jnp.int32(32))
    bound = np.asarray(bags.block_bounds(one, levels).best) // BLOCK - 1
    assert (bound == slots.shape[0] * (LEVELS + 1)).all()


def random_blocks(rows: int, q: int = 3) -> bags.Blocks:
    rng = np.random.default_rng(rows)
    best = rng.integers(0, 50, (rows, q)) * BLOCK  # many ties
    best = np.where(best > 0, best + rng.integers(0, BLOCK, (rows, q)), 0)
    second = rng.integers(0, best // BLOCK + 1)
    return bags.Blocks(jnp.array(best, jnp.uint32), jnp.array(second, jnp.uint16))


def check_selected(found: bags.Selected, blocks: bags.Blocks, wanted: int) -> None:
    best, second = (np.asarray(x).astype(int) for x in blocks)
    for query in range(best.shape[1]):
        expected = np.sort(best[best[:, query] > 0, query])[::-1][:wanted]
        number = len(expected)
        at = np.asarray(found.blocks)[query]
        assert len(at) == wanted and (at[number:] == -1).all() and len({*at[:number]}) == number
        packed = (np.asarray(found.bounds)[query] + 1) * BLOCK + BLOCK - 1
        packed -= np.asarray(found.lanes)[query]
        assert packed[:number].tolist() == expected.tolist() == best[at[:number], query].tolist()
        assert (np.asarray(found.lanes)[query, number:] == -1).all()
        seconds = np.asarray(found.seconds)[query, :number]
        assert seconds.tolist() == (second[at[:number], query] - 1).tolist()


@pytest.mark.parametrize("rows", [1, 7, 8, 200, 1600])
@pytest.mark.parametrize("wanted", [1, 5, 150])
def test_the_best_blocks_are_selected(rows, wanted) -> None:
    blocks = random_blocks(rows)
    check_selected(bags.select(blocks, wanted=wanted), blocks, wanted)


@pytest.mark.parametrize("wanted", [1, 5, 300])
def test_blocks_are_selected_over_all_parts(wanted) -> None:
    parts = [random_blocks(rows) for rows in (24, 200, 9)]
    whole = bags.Blocks(*(jnp.concatenate(x) for x in zip(*parts, strict=True)))
    check_selected(bags.select(*parts, wanted=wanted), whole, wanted)


@pytest.mark.parametrize("wanted", [1, 30])
def test_eight_devices_select_the_blocks_of_one(wanted) -> None:
    mesh = Mesh(np.asarray(jax.devices()), ("rows",))
    blocks = random_blocks(240)
    check_selected(
        bags.sharded_select(blocks, wanted=wanted, mesh=mesh, axis="rows"), blocks, wanted
    )


def test_eight_devices_give_the_bounds_of_one() -> None:
    rng = np.random.default_rng(0)
    mesh = Mesh(np.asarray(jax.devices()), ("rows",))
    parts = [
        part([rng.permutation(V)[: rng.integers(1, V)].tolist() for _ in range(64)], 32)
        for _ in range(8)
    ]
    height = max(len(one.slots) for one in parts)
    parts = [
        one._replace(slots=jnp.pad(one.slots, ((0, height - len(one.slots)), (0, 0))))
        for one in parts
    ]
    levels = table(rng.random((4, V)).astype(np.float32))
    spread = jax.tree.map(lambda *x: jnp.stack(x), *parts)
    found = bags.sharded_block_bounds(spread, levels, mesh=mesh, axis="rows")
    alone = [bags.block_bounds(one, levels) for one in parts]
    for together, apart in zip(found, zip(*alone, strict=True), strict=True):
        np.testing.assert_array_equal(together, np.concatenate(apart))
