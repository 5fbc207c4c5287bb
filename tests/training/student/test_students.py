"""Students: their tokens, their log-probabilities, what they write, and how they lie on disk."""

import functools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.engines.local.engine import Local
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.models.checkpoint.files import read_tensors, write_checkpoint
from jaxrag.training.student.checkpoint import load_student, new_t5, write_student
from jaxrag.training.student.engine import engine
from jaxrag.training.student.network import target_logprobs
from jaxrag.training.student.student import (
    NewT5,
    Student,
    TokenPairs,
    encode,
    source_tokens,
    truncate,
)
from jaxrag.types import InputError
from tests.engines.tiny_model import write_tiny_model
from tests.models.decoder.reference import CONFIGS
from tests.models.t5 import small_t5

INPUTS = ["who wrote the cat ?", "capital of chad", "who sat on the mat on a mat ?"]
TARGETS = ["the cat ;", "chad ; capital of chad **", "who"]


def load(path: Path, **more: Any) -> Student:
    told: dict[str, Any] = {"max_source": 40, "max_target": 30} | more
    return load_student(str(path), **told)


@pytest.fixture(scope="module", params=["t5", "decoder"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp(request.param)
    if request.param == "decoder":
        write_tiny_model(directory)
    else:
        small_t5.write(directory, small_t5.CONFIGS["1.1"])
    return directory


@pytest.fixture(scope="module")
def student(path: Path) -> Student:
    return load(path)


@functools.cache
def program(module: Any) -> Any:
    return jax.jit(lambda params, pairs, key: target_logprobs(
        module, params, pairs, key=key))  # fmt: skip


def logprobs(student: Student, pairs: TokenPairs, key: Any = None) -> np.ndarray:
    return np.asarray(program(student.module)(student.params, pairs, key)[0])


def there(pairs: TokenPairs) -> np.ndarray:
    return np.arange(pairs.target.shape[1]) < pairs.target_length[:, None]


def test_tokens_are_the_tokenizer_s_and_targets_have_an_end_token(student: Student) -> None:
    pairs = encode(student, INPUTS, TARGETS)
    assert pairs.source.shape == (3, 40) and pairs.target.shape == (3, 30)
    for row, (source, target) in enumerate(zip(INPUTS, TARGETS, strict=True)):
        wanted = student.tokenizer.encode(source)
        assert pairs.source[row, : pairs.source_length[row]].tolist() == wanted
        written = [*student.tokenizer.encode(target, add_special_tokens=False), student.end]
        assert pairs.target[row, : pairs.target_length[row]].tolist() == written
    assert student.end == (257 if student.kind == "decoder" else 1)
    assert pairs.source[0, pairs.source_length[0] :].sum() == 0


def test_long_texts_are_cut_and_logged(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    student = load(path, max_source=10, max_target=4)
    with caplog.at_level("WARNING", logger="jaxrag"):
        pairs = encode(student, ["who", *INPUTS[1:]], ["a", "on the cat the mat", "a"])
    # words of the T5, end tokens included: 2, 4 and 11 (a blank before "?"); bytes: 3, 15 and 29
    cut = 2 if student.kind == "decoder" else 1
    assert f"{cut} sources are cut to 10 tokens and 1 targets to 4" in caplog.text
    assert pairs.source_length.max() <= 10 and pairs.target_length[1] == 4
    assert student.end not in pairs.target[1]  # it is not taught to stop there
    assert pairs.target[0, pairs.target_length[0] - 1] == student.end
    caplog.clear()
    encode(student, ["who"], ["a"])
    assert not caplog.text
    short = truncate(student, INPUTS[2] * 9)
    assert (INPUTS[2] * 9).startswith(short)
    # the T5's tenth would be a blank at the end, which its tokenizer drops
    wanted = 10 if student.kind == "decoder" else 9
    assert len(source_tokens(student, short)) == wanted
    for inputs, targets, told in (([""], ["a"], "input"), (["a"], [""], "target")):
        with pytest.raises(InputError, match=f"1 of 1 pairs have an empty {told}"):
            encode(student, inputs, targets)


def test_logprobs_equal_the_engine_s(student: Student) -> None:
    """Teacher-forced in one program = scored by the engine, which reads prompts by another way."""
    pairs = encode(student, INPUTS, TARGETS)
    found, hidden = program(student.module)(student.params, pairs, None)
    assert hidden.shape[:2] == found.shape == (3, 30) and hidden.dtype == jnp.float32
    end = student.tokenizer.convert_ids_to_tokens(student.end)
    scored = engine(student, student.params).logprob(INPUTS, [t + end for t in TARGETS])
    for row, wanted in enumerate(scored):
        assert len(wanted) == pairs.target_length[row]
        np.testing.assert_allclose(found[row, : len(wanted)], wanted, atol=3e-5)


def test_padding_changes_nothing(student: Student) -> None:
    pairs = encode(student, INPUTS, TARGETS)
    padded, where = logprobs(student, pairs), there(pairs)
    filled = np.arange(40) < pairs.source_length[:, None]
    noisy = pairs._replace(
        source=np.where(filled, pairs.source, 7), target=np.where(where, pairs.target, 5)
    )
    np.testing.assert_array_equal(
        np.where(where, padded, 0), np.where(where, logprobs(student, noisy), 0)
    )
    n, m = int(pairs.source_length[1]), int(pairs.target_length[1])
    one = TokenPairs(
        pairs.source[1:2, :n], pairs.source_length[1:2],
        pairs.target[1:2, :m], pairs.target_length[1:2],
    )  # fmt: skip
    np.testing.assert_allclose(padded[1, :m], logprobs(student, one)[0], atol=2e-5)


def test_phi3_is_a_student_with_windows_over_padding_and_fused_matrices(tmp_path: Path) -> None:
    """Its window of 7 tokens reaches over the padding between a source and its target."""
    config = {**CONFIGS["phi3"], "rope_scaling": None, "num_hidden_layers": 1}
    write_tiny_model(tmp_path / "a", **config | {"vocab_size": 260, "eos_token_id": 257})
    student = load(tmp_path / "a")
    pairs = encode(student, INPUTS, TARGETS)
    padded, n, m = logprobs(student, pairs), pairs.source_length[1], pairs.target_length[1]
    one = TokenPairs(
        pairs.source[1:2, :n], pairs.source_length[1:2],
        pairs.target[1:2, :m], pairs.target_length[1:2],
    )  # fmt: skip
    np.testing.assert_allclose(padded[1, :m], logprobs(student, one)[0], atol=2e-5)
    written = read_tensors(write_student(tmp_path / "b", student, student.params))
    for name, array in read_tensors(tmp_path / "a").items():
        np.testing.assert_array_equal(written[name], array)
    write_tiny_model(tmp_path / "c", **CONFIGS["phi3"] | {"vocab_size": 260, "eos_token_id": 257})
    with pytest.raises(InputError, match=r"more than 32 tokens differently \(longrope\)"):
        load(tmp_path / "c")


@pytest.mark.slow
def test_remat_changes_no_gradient(student: Student) -> None:
    pairs = encode(student, INPUTS, TARGETS)

    def loss(params: Any, remat: bool) -> Any:
        found = target_logprobs(student.module, params, pairs, remat=remat)[0]
        return jnp.where(there(pairs), found, 0).sum()

    plain, again = (jax.jit(jax.grad(loss), static_argnums=1)(student.params, r) for r in (0, 1))
    for one, other in zip(jax.tree.leaves(plain), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(one, other, atol=2e-4, rtol=1e-4)


@pytest.mark.slow
def test_dropout_depends_on_the_key(student: Student) -> None:
    pairs = encode(student, INPUTS, TARGETS)
    none = logprobs(student, pairs)
    one, two = (logprobs(student, pairs, jax.random.key(seed)) for seed in (1, 2))
    np.testing.assert_array_equal(one, logprobs(student, pairs, jax.random.key(1)))
    differ = student.kind == "t5"  # our decoders have no dropout
    assert (np.abs(one - none).max() > 0.01) == differ == (np.abs(one - two).max() > 0.01)


def test_the_engine_uses_the_current_parameters(student: Student, tmp_path: Path) -> None:
    """Other parameters, other answers; and the checkpoint written answers as the engine does."""
    moved = jax.tree.map(lambda x: x * 1.05 + 0.02, student.params)
    first, second = (engine(student, p) for p in (student.params, moved))
    assert first.identity == engine(student, student.params).identity
    assert first.identity != second.identity
    assert first.identity != engine(student, student.params, "other").identity
    made = second.generate(INPUTS, max_new_tokens=12)
    before = first.generate(INPUTS, max_new_tokens=12)
    assert [one.tokens for one in made] != [one.tokens for one in before]
    where = write_student(tmp_path / "written", student, student.params)
    assert where == write_student(tmp_path / "written", student, moved)  # in its place
    assert [p.name for p in tmp_path.iterdir()] == ["written"]
    written = (Seq2Seq if student.kind == "t5" else Local)(str(where))
    assert written.load(tmp_path / "cache").generate(INPUTS, max_new_tokens=12) == made
    back = load(where)
    assert (back.end, back.ends, back.kind) == (student.end, student.ends, student.kind)
    for one, other in zip(jax.tree.leaves(back.params), jax.tree.leaves(moved), strict=True):
        np.testing.assert_array_equal(one, other)
    drawn = [second.generate(INPUTS, max_new_tokens=8, temperature=1.0, seed=s) for s in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.slow
def test_bfloat16_compute_keeps_float32_parameters(path: Path, student: Student) -> None:
    half = load(path, dtype="bfloat16")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(half.params)} == {"float32"}
    pairs = encode(half, INPUTS, TARGETS)
    apart = np.abs(logprobs(half, pairs) - logprobs(student, pairs))[there(pairs)]
    assert logprobs(half, pairs).dtype == np.float32 and 1e-4 < apart.max() < 1.0


def test_a_new_t5_with_a_given_tokenizer(tmp_path: Path) -> None:
    """The tiny decoder's: bytes, an end token, no pad token."""
    write_tiny_model(tmp_path / "tokens")
    sizes = NewT5(str(tmp_path / "tokens"), width=16, inner=24, heads=2, head_width=8, layers=1)
    student = new_t5(sizes, max_source=40, max_target=30)
    config = student.module.config
    assert config.vocab_size == len(student.tokenizer)
    assert (config.eos_token_id, student.end) == (257, 257)
    same = new_t5(sizes, max_source=40, max_target=30)
    other = new_t5(NewT5(**{**vars(sizes), "seed": 1}), max_source=40, max_target=30)
    assert student.identity == same.identity != other.identity
    tables = [one.params["shared"]["weight"] for one in (student, same, other)]
    np.testing.assert_array_equal(tables[0], tables[1])
    assert np.abs(tables[0] - tables[2]).max() > 1
    written = write_student(tmp_path / "new", student, student.params)
    assert json.loads((written / "config.json").read_text())["model_type"] == "t5"
    back = load(written)
    assert back.end == 257 and back.identity != student.identity


def test_a_new_t5_with_its_own_vocabulary(tmp_path: Path) -> None:
    texts = ["the capital of France", "the capital of Chad", "the area of Chad"]
    sizes = NewT5(vocabulary=270, width=16, inner=24, heads=2, head_width=8, layers=1)
    made = [
        new_t5(sizes, max_source=40, max_target=30, texts=iter(some))
        for some in (texts, texts, ["other words"])
    ]
    assert made[0].identity == made[1].identity != made[2].identity
    student = made[0]
    assert len(student.tokenizer) == student.module.config.vocab_size == 270
    assert (student.module.config.pad_token_id, student.end) == (0, 1)
    # any text comes back, also one with letters that were not among the texts
    for text in (texts[0], "Où est l'Île—de 日本?\n two  blanks"):
        ids = student.tokenizer.encode(text, add_special_tokens=False)
        assert student.tokenizer.decode(ids) == text
    assert len(student.tokenizer.encode(texts[0])) < len(texts[0]) / 1.5
    for wrong, told in (
        ({"vocabulary": 200}, "must be at least 258"),
        ({"vocabulary": -1}, "or more"),
    ):
        with pytest.raises(InputError, match=told):
            sizes = NewT5(**{**vars(sizes), **wrong})
            new_t5(sizes, max_source=40, max_target=30, texts=texts)
    with pytest.raises(InputError, match="There are no texts"):
        new_t5(NewT5(vocabulary=300), max_source=40, max_target=30)
    back = load(write_student(tmp_path / "new", student, student.params))
    assert back.end == 1 and back.tokenizer.encode(texts[1]) == student.tokenizer.encode(texts[1])


def test_invalid_checkpoints_are_refused(tmp_path: Path, path: Path, student: Student) -> None:
    with pytest.raises(InputError, match="No checkpoint at"):
        load(tmp_path / "nowhere")
    with pytest.raises(InputError, match="max_target 1; each must be"):
        load(path, max_target=1)
    whole, tensors = json.loads((path / "config.json").read_text()), dict(read_tensors(path))
    copy = tmp_path / "copy"
    student.tokenizer.save_pretrained(copy)
    if student.kind == "t5":
        changed = {"eos_token_id": 5}
        told = r"end token is \[1\] in its tokenizer and 5 in its config"
    else:
        changed, told = {"max_position_embeddings": 60}, "exceed the 60 tokens of"
    write_checkpoint(copy, {**whole, **changed}, tensors)
    with pytest.raises(InputError, match=told):
        load(copy)
    write_checkpoint(copy, {**whole, "model_type": "gpt2"}, tensors)
    with pytest.raises(InputError, match="gpt2"):
        load(copy)
    tokenizer = load(path).tokenizer
    tokenizer.add_tokens([f"more{i}" for i in range(9)])
    tokenizer.save_pretrained(copy)
    write_checkpoint(copy, whole, tensors)
    with pytest.raises(InputError, match="they are of different models"):
        load(copy)
