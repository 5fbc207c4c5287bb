import logging
import threading
from functools import partial
from types import SimpleNamespace

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh

from jaxrag.retrieval import buckets
from jaxrag.retrieval.buckets import Batching, Tokens, batches, bucket_width, tokenize
from jaxrag.types import InputError
from tests.models.bert import small_bert


def test_widths_are_few_and_not_wasteful():
    widths = [bucket_width(n, limit=8192) for n in range(1, 8193)]
    assert len(set(widths)) == 8 + 7 * 4  # eight to 64, then four for each doubling
    assert all(width >= n for n, width in enumerate(widths, start=1))
    assert all(width <= max(1.25 * n, n + 7) for n, width in enumerate(widths, start=1))


def texts(lengths):
    return [Tokens(list(range(i, i + n)), [i % 2] * n) for i, n in enumerate(lengths)]


ONE = Mesh(np.array(jax.devices()[:1]), ("data",))


def cut(*windows, mesh=ONE):
    return batches(windows, limit=100, batching=Batching(64, mesh), pad_id=-1)


@hypothesis.settings(deadline=None, max_examples=50)
@hypothesis.given(
    st.lists(st.integers(1, 100), max_size=60), st.integers(1, 20), st.sampled_from([1, 8])
)
def test_every_text_comes_once_in_a_batch_of_its_width(lengths, size, devices):
    inputs, seen = texts(lengths), []
    windows = [inputs[i : i + size] for i in range(0, len(inputs), size)]
    mesh = Mesh(np.array(jax.devices()[:devices]), ("data",))
    for batch in cut(*windows, mesh=mesh):
        height, width = batch.ids.shape
        one = max(4, 64 // width)
        assert height == (one if len(batch.rows) <= one else devices * one) or (
            height == devices * one  # once a width was spread, it is always
        )
        for place, row in enumerate(batch.rows):
            length = lengths[row]
            assert width == bucket_width(length, limit=100) <= 100
            assert batch.lengths[place] == length
            assert batch.ids[place].tolist() == [*inputs[row].ids, *[-1] * (width - length)]
            assert batch.segments[place, :length].tolist() == inputs[row].segments
        empty = len(batch.rows)
        assert (batch.ids[empty:] == -1).all() and not batch.lengths[empty:].any()
        seen += batch.rows
    assert sorted(seen) == list(range(len(lengths)))


def test_a_text_waits_two_windows_for_others_of_its_width():
    # the first text, of width 24, goes with the second window's; the text of width 56 alone after
    # its second window, since no other comes; those of width 16 fill batches of four over windows
    windows = [texts(lengths) for lengths in ([20, 50, 9], [10, 21, 11], [12, 13], [14], [9])]
    assert [b.rows for b in cut(*windows)] == [[2, 3, 5, 6], [0, 4], [1], [7, 8, 9]]


def test_rows_are_spread_over_devices_in_batches_of_one_shape():
    mesh = jax.make_mesh((8,), ("data",))
    (batch,) = cut(texts([9] * 4), mesh=mesh)
    assert batch.ids.shape == (4, 16)  # one device holds them
    (batch,) = cut(texts([9] * 5), mesh=mesh)
    assert batch.ids.shape == (32, 16)  # four rows for each device
    full, rest = cut(texts([9] * 33), mesh=mesh)
    assert len(full.rows) == 32 and len(rest.rows) == 1
    assert rest.ids.shape == (32, 16)  # the program for all devices is there already
    (batch,) = cut(texts([9]), mesh=jax.make_mesh((8,), ("model",)))
    assert batch.ids.shape == (4, 16)


@partial(jax.jit, static_argnames="scale")
def total(params, ids, lengths, *, scale):
    """Sum of a text's ids, and the number of its tokens, times the scale: [b 2]."""
    where = jnp.arange(ids.shape[1]) < lengths[:, None]
    found = jnp.stack([jnp.where(where, ids, 0).sum(1), lengths], axis=1)
    return params["one"] * scale * found.astype(jnp.float32)


class Numbers:
    """A network whose texts are written as numbers, their tokens."""

    module = SimpleNamespace(config=SimpleNamespace(pad_token_id=-1))

    def __init__(self, batching, broken=None):
        self.batching, self.broken, self.threads = batching, broken, set()

    def tokenizer(self, some, _, **options):
        assert options["max_length"] == 100
        self.threads.add(threading.current_thread())
        if self.broken in some:
            raise self.error
        return {"input_ids": [[*map(int, text.split())] for text in some]}

    error: BaseException = RuntimeError("no such text")

    def run(self, some, function=total):
        params = {"one": jnp.ones(())}
        return [
            *buckets.stream(function, params, some, self, limit=100, features=2, scale=2)
        ]  # fmt: skip


def numbers(count, seed=0):
    """Texts, and twice their sums and lengths."""
    random = np.random.default_rng(seed)
    rows = [random.integers(0, 1000, random.integers(1, 30)) for _ in range(count)]
    some = [" ".join(map(str, row)) for row in rows]
    return some, 2 * np.array([[row.sum(), len(row)] for row in rows], np.float32)


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("count", [0, 1, 255, 256, 257, 1000])
def test_results_come_in_order_in_blocks_of_a_window(devices, count, monkeypatch):
    monkeypatch.setattr(buckets, "_LEAST_WINDOW", 128)
    some, wanted = numbers(count)
    network = Numbers(Batching(64, Mesh(np.array(jax.devices()[:devices]), ("data",))))
    blocks = network.run(iter(some))
    assert [len(block) for block in blocks] == [128] * (count // 128) + [count % 128] * (
        count % 128 > 0
    )
    if count:
        np.testing.assert_array_equal(np.concatenate(blocks), wanted)
    others = network.threads - {threading.current_thread()}
    assert len(others) == (count > 128)  # the first window is tokenized here, others beside


def test_cpu_devices_share_one_copy_of_the_parameters():
    params = {"one": jnp.arange(1000.0), "two": np.ones((3, 100), np.float32)}
    batching = Batching(64)
    placed = batching.place(params, spread=True)
    for name, array in placed.items():
        addresses = {shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards}
        assert len(array.addressable_shards) == 8 and len(addresses) == 1
        np.testing.assert_array_equal(array, params[name])
    assert batching.place(params, spread=True) is placed
    # a training may go on with the parameters that were placed, and overwrite its own
    step = jax.jit(lambda array: array * 0 - 7, donate_argnums=0)
    assert float(step(params["one"])[5]) == -7
    np.testing.assert_array_equal(placed["one"], np.arange(1000.0))


def test_an_error_of_the_tokenizer_comes_through_and_ends_the_thread(monkeypatch):
    monkeypatch.setattr(buckets, "_LEAST_WINDOW", 16)
    some, wanted = numbers(200)
    network = Numbers(Batching(64, ONE), broken=some[150])
    before = threading.active_count()
    with pytest.raises(RuntimeError, match="no such text"):
        network.run(some)
    network.error = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        network.run(some)
    # whoever stops reading stops the thread
    network.broken = None
    stopped = buckets.stream(
        total, {"one": jnp.ones(())}, some, network, limit=100, features=2, scale=2
    )
    np.testing.assert_array_equal(next(stopped), wanted[:16])
    stopped.close()
    assert threading.active_count() == before


class Memory:
    """A network function that fails as a device does whose memory holds so many rows."""

    def __init__(self, most):
        self.most, self.heights = most, []

    def __call__(self, params, ids, lengths, *, scale):
        self.heights.append(len(lengths))
        if len(lengths) > self.most:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating")
        return total(params, ids, lengths, scale=scale)


def test_out_of_memory_halves_the_batches_and_remembers(caplog):
    some, wanted = numbers(300)
    network, memory = Numbers(Batching(128, ONE)), Memory(most=5)
    with caplog.at_level(logging.WARNING):
        blocks = network.run(some, memory)
    np.testing.assert_array_equal(np.concatenate(blocks), wanted)
    # 128 tokens of width 8 are 16 texts: 8 and then 4 after the second time
    assert "going on with" in caplog.text and len(caplog.records) == 2
    assert network.batching.rows(8) == 4 and network.batching.rows(32) == 1
    memory.heights.clear()
    np.testing.assert_array_equal(np.concatenate(network.run(some, memory)), wanted)
    assert max(memory.heights) <= 5  # no batch is tried again that did not fit


def test_a_text_that_does_not_fit_alone_is_an_error():
    some, _ = numbers(20)
    with pytest.raises(InputError, match=r"does not hold one text of \d+ tokens"):
        Numbers(Batching(128, ONE)).run(some, Memory(most=0))


def test_another_error_of_the_device_is_raised():
    def fail(*_, **__):
        raise jax.errors.JaxRuntimeError("INTERNAL: something else")

    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        Numbers(Batching(128, ONE)).run(["1 2"], fail)


def test_pairs_are_cut_in_the_longer_part():
    tokenizer = small_bert.tokenizer(small_bert.BERT)
    (tokens,) = tokenize(tokenizer, [("cat mat", "rug rug rug rug rug rug")], limit=8)
    words = tokenizer.convert_ids_to_tokens(list(tokens.ids))
    assert words == ["[CLS]", "cat", "mat", "[SEP]", "rug", "rug", "rug", "[SEP]"]
    assert list(tokens.segments) == [0, 0, 0, 0, 1, 1, 1, 1]
    (roberta,) = tokenize(small_bert.tokenizer(small_bert.XLM_ROBERTA), [("cat", "mat")], limit=8)
    assert len(roberta.ids) == 6 and not any(roberta.segments)
    assert tokenize(tokenizer, [], limit=8) == []
