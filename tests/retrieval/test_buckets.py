import hypothesis
import hypothesis.strategies as st
import jax
import pytest

from jaxrag.retrieval.buckets import Tokens, batches, bucket_width, tokenize
from tests.models.bert import small_bert


@pytest.mark.parametrize(
    ("length", "limit", "width"),
    [
        (1, 512, 8),
        (8, 512, 8),
        (9, 512, 16),
        (17, 512, 24),
        (65, 512, 80),  # steps of 16 from 64 to 128
        (113, 512, 128),
        (128, 512, 128),
        (129, 512, 160),  # steps of 32 from 128 to 256, of 64 to 512
        (250, 512, 256),
        (257, 512, 320),
        (500, 512, 512),
        (42, 45, 45),  # never past the limit
    ],
)
def test_bucket_widths_by_hand(length, limit, width):
    assert bucket_width(length, limit=limit) == width


def test_widths_are_few_and_not_wasteful():
    widths = [bucket_width(n, limit=8192) for n in range(1, 8193)]
    assert len(set(widths)) == 8 + 7 * 4  # eight to 64, then four for each doubling
    assert all(width >= n for n, width in enumerate(widths, start=1))
    assert all(width <= max(1.25 * n, n + 7) for n, width in enumerate(widths, start=1))


def texts(lengths):
    return [Tokens(list(range(i, i + n)), [i % 2] * n) for i, n in enumerate(lengths)]


def cut(inputs, mesh=None):
    return batches(inputs, limit=100, batch_tokens=64, pad_id=-1, mesh=mesh)


@hypothesis.settings(deadline=None, max_examples=50)
@hypothesis.given(st.lists(st.integers(1, 100), max_size=40))
def test_every_text_comes_once_in_the_batch_of_its_width(lengths):
    inputs, seen, shapes = texts(lengths), [], {}
    for batch in cut(inputs):
        height, width = batch.ids.shape
        assert shapes.setdefault(width, height) == height  # one shape a width
        for place, row in enumerate(batch.rows):
            length = lengths[row]
            assert width == bucket_width(length, limit=100)
            assert batch.lengths[place] == length
            assert batch.ids[place].tolist() == [*inputs[row].ids, *[-1] * (width - length)]
            assert batch.segments[place, :length].tolist() == inputs[row].segments
        empty = len(batch.rows)
        assert (batch.ids[empty:] == -1).all() and not batch.lengths[empty:].any()
        seen += batch.rows
    assert sorted(seen) == list(range(len(lengths)))


def test_batches_by_hand():
    # 64 tokens a batch and at least four rows: eight of 8, four of 16, and four of 24 and of 56,
    # where two and one would do. Widths go up, orders stay.
    found = [(b.rows, b.ids.shape) for b in cut(texts([20, 13, 50, 14, 9, 16, 15, 5]))]
    assert found == [
        ([7], (8, 8)),
        ([1, 3, 4, 5], (4, 16)),
        ([6], (4, 16)),
        ([0], (4, 24)),
        ([2], (4, 56)),
    ]


def test_rows_are_spread_over_devices():
    mesh = jax.make_mesh((8,), ("data",))
    (batch,) = cut(texts([9]), mesh)
    assert batch.ids.shape == (8, 16)  # four would do, but every device gets as many
    assert len(batch.ids.sharding.device_set) == 8
    assert batch.lengths.addressable_shards[0].data.shape == (1,)
    (batch,) = cut(texts([9]), jax.make_mesh((8,), ("model",)))
    assert batch.ids.shape == (4, 16) == batch.ids.addressable_shards[0].data.shape


def test_pairs_are_cut_in_the_longer_part():
    tokenizer = small_bert.tokenizer(small_bert.BERT)
    (tokens,) = tokenize(tokenizer, [("cat mat", "rug rug rug rug rug rug")], limit=8)
    words = tokenizer.convert_ids_to_tokens(list(tokens.ids))
    assert words == ["[CLS]", "cat", "mat", "[SEP]", "rug", "rug", "rug", "[SEP]"]
    assert list(tokens.segments) == [0, 0, 0, 0, 1, 1, 1, 1]
    (roberta,) = tokenize(small_bert.tokenizer(small_bert.XLM_ROBERTA), [("cat", "mat")], limit=8)
    assert len(roberta.ids) == 6 and not any(roberta.segments)
    assert tokenize(tokenizer, [], limit=8) == []
