"""The local engine on a tiny random model: what it computes and what must not matter."""

import gc
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.experimental.compilation_cache import compilation_cache

from jaxrag.engines.local import decoding, prefill
from jaxrag.engines.local.decoding import AnswerRows
from jaxrag.engines.local.engine import LocalModel, use_compile_cache
from jaxrag.engines.local.prefill import Sizes
from jaxrag.types import Generation, InputError, Message
from tests.engines.tiny_model import CHATS, SPECIAL, load_local, write_tiny_model
from tests.models.decoder.reference import CONFIGS, reference_logits


def encode(model: LocalModel, text: str) -> list[int]:
    return model.tokenizer.encode(text, add_special_tokens=False)


def rendered(model: LocalModel, prompt: Any) -> str:
    """A prompt as the model reads it."""
    if isinstance(prompt, str):
        return prompt
    messages = [{"role": m.role, "content": m.content} for m in prompt]
    chat = model.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return str(chat)


def test_greedy_tokens_and_logprobs_equal_the_reference(model: LocalModel, tmp_path: Path) -> None:
    tensors = write_tiny_model(tmp_path)
    prompt = "The cat sat on"
    found = model.generate([prompt], max_new_tokens=10)[0]
    config, tokens = {**CONFIGS["qwen2"], "vocab_size": 260}, encode(model, prompt)
    assert found.prompt_tokens == len(tokens) == 14
    for token, logprob in zip(found.tokens, found.logprobs, strict=True):
        logits = reference_logits(config, tensors, np.array(tokens))[-1]
        assert token == logits.argmax()
        assert logprob == pytest.approx(logits.max() - np.log(np.exp(logits).sum()), abs=2e-5)
        tokens.append(token)


def test_repetition_penalty_equals_the_reference(model: LocalModel, tmp_path: Path) -> None:
    tensors = write_tiny_model(tmp_path)
    config, penalty = {**CONFIGS["qwen2"], "vocab_size": 260}, 1.3
    prompts = ["The cat sat on", "a", "What is it? What is it?"]
    options: dict[str, Any] = {"max_new_tokens": 24, "repetition_penalty": penalty}
    found = model.generate(prompts, **options)
    plain = model.generate(prompts, max_new_tokens=24)
    assert [one.tokens for one in found] != [one.tokens for one in plain]
    for prompt, one in zip(prompts, found, strict=True):
        tokens = encode(model, prompt)
        for token, logprob in zip(one.tokens, one.logprobs, strict=True):
            logits = reference_logits(config, tensors, np.array(tokens))[-1]
            own, lower = sorted(set(tokens)), logits.copy()
            lower[own] = np.where(logits[own] > 0, logits[own] / penalty, logits[own] * penalty)
            assert token == lower.argmax()
            # the log-probability is the model's own
            wanted = logits[token] - np.log(np.exp(logits).sum())
            assert logprob == pytest.approx(wanted, abs=2e-5)
            tokens.append(token)
    assert model.generate(prompts[1:], **options) == found[1:]  # whatever else is in the batch
    with pytest.raises(InputError, match="repetition_penalty is 0"):
        model.generate(prompts, max_new_tokens=2, repetition_penalty=0.0)


def test_results_do_not_depend_on_the_batch(model: LocalModel, answers: list[Generation]) -> None:
    assert len({answer.text for answer in answers}) > 5  # or the test would see nothing
    assert model.generate(CHATS[::-1], max_new_tokens=12) == answers[::-1]
    assert [model.generate([chat], max_new_tokens=12)[0] for chat in CHATS[:3]] == answers[:3]
    assert model.generate([CHATS[4]] * 20 + CHATS[:2], max_new_tokens=12)[-2:] == answers[:2]


def test_sharing_prefixes_changes_no_bit(directory: Path, answers: list[Generation]) -> None:
    alone = load_local(directory, shared_bytes=0)
    assert alone.generate(CHATS, max_new_tokens=12) == answers
    forgetful = load_local(directory, shared_bytes=1)
    assert forgetful.generate(CHATS, max_new_tokens=12) == answers
    assert forgetful.generate(CHATS[2:], max_new_tokens=12) == answers[2:]


def test_a_partly_dropped_prefix_is_recomputed(directory: Path, answers: list[Generation]) -> None:
    model = load_local(directory)
    assert model.generate(CHATS, max_new_tokens=12) == answers
    block, count = next(iter(model._prefill._blocks.values())).nbytes, len(model._prefill._blocks)
    assert count > 1
    model._prefill._shared_bytes = (count - 1) * block  # room for all but one
    for _ in range(2):
        assert model.generate(CHATS, max_new_tokens=12) == answers
    shortest = min(model._prefill._blocks, key=lambda key: key.chunks)
    del model._prefill._blocks[shortest]  # and the other way round
    assert model.generate(CHATS, max_new_tokens=12) == answers


def tokens_read(monkeypatch: pytest.MonkeyPatch) -> list[range]:
    """Filled with the positions of the tokens that each step reads of each row."""
    read, real = [], prefill.PrefillGroup.step

    def step(self: Any) -> Any:
        found = real(self)
        read.extend(range(one.start, one.end) for one in found.rows)
        return found

    monkeypatch.setattr(prefill.PrefillGroup, "step", step)
    return read


def test_shared_prefixes_are_computed_once(model, monkeypatch) -> None:
    fresh = [(*chat[:-1], Message("user", chat[-1].content.upper())) for chat in CHATS]
    model.generate(CHATS, max_new_tokens=12)
    read = tokens_read(monkeypatch)
    model.generate(fresh, max_new_tokens=12)
    # demonstrations: 3 + 21 + 24 + 16 tokens or so; four whole chunks of 16 are shared by all
    assert min(one.start for one in read) == 64


def test_long_prefixes_of_few_prompts_are_computed_once(model, monkeypatch) -> None:
    read = tokens_read(monkeypatch)
    prompts = [f"{'long ' * 60}{word}" for word in ("one", "two", "six")]  # fewer than rows
    separate = [model.generate([prompt], max_new_tokens=2)[0] for prompt in prompts]
    length = len(encode(model, prompts[0]))
    model._prefill._blocks.clear()
    model._prefill.free = None
    read.clear()
    assert model.generate(prompts, max_new_tokens=2) == separate
    # the whole chunks of the prefix once, and three ends
    shared = (length - 3) // 16 * 16
    assert sum(map(len, read)) == shared + 3 * (length - shared)


@pytest.mark.parametrize(("backend", "stacked"), [("cpu", False), ("gpu", False), ("tpu", True)])
def test_layers_are_stacked_on_tpus_alone(backend, stacked, directory, monkeypatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    model = load_local(directory, dtype="float32")
    assert model._network.decoder.stacked == stacked
    assert json.loads(model.identity)["stacked"] == stacked


@pytest.mark.usefixtures("unprobed")
@pytest.mark.parametrize(
    "options",
    [
        {"chunk": 16, "prefill_rows": 2, "rows": 4},
        {"mesh": (2, 4), "stacked": True},  # shards rows, heads, and rows again: two heads by four
        pytest.param({"mesh": (1, 8), "stacked": True}, marks=pytest.mark.slow),
        pytest.param({"mesh": (2, 4)}, marks=pytest.mark.slow),
        pytest.param({"stacked": True}, marks=pytest.mark.slow),
    ],
    ids=lambda options: "-".join(f"{key}{value}" for key, value in options.items()),
)
def test_sizes_and_mesh_change_no_token(directory, answers, options) -> None:
    if "mesh" in options:
        devices = np.array(jax.devices()[:8]).reshape(options["mesh"])
        options = {**options, "mesh": jax.sharding.Mesh(devices, ("data", "model"))}
    found = load_local(directory, **options).generate(CHATS, max_new_tokens=12)
    for one, other in zip(found, answers, strict=True):
        assert one.tokens == other.tokens
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-5, rtol=0)


def test_rows_that_a_mesh_does_not_cut_evenly_are_refused(directory: Path) -> None:
    devices = np.array(jax.devices()[:8]).reshape(2, 4)
    mesh = jax.sharding.Mesh(devices, ("data", "model"))
    # 4 devices for 2 heads: 2 devices cut the rows of each head, on both halves of "data"
    with pytest.raises(InputError, match=r"prefill_rows is 2; .* a multiple of 4 "):
        load_local(directory, mesh=mesh, prefill_rows=2, rows=4)


def test_sampling_depends_on_prompt_and_seed_only(model: LocalModel) -> None:
    def draw(prompts: list[Any], seed: int) -> list[Generation]:
        return model.generate(prompts, max_new_tokens=8, temperature=1.5, seed=seed)

    drawn = draw(CHATS, 1)
    assert draw(CHATS, 1) == drawn
    assert draw(CHATS[3:5], 1) == drawn[3:5]
    assert draw(CHATS, 2) != drawn
    assert drawn != model.generate(CHATS, max_new_tokens=8)


def test_scores_equal_the_reference_and_do_not_depend_on_the_batch(model, tmp_path) -> None:
    tensors = write_tiny_model(tmp_path)
    prompts, texts = ["The sun is", "It", CHATS[0]], [" a star", "", " quite far away" * 9]
    found = model.logprob(prompts, texts)
    assert [len(row) for row in found] == [len(text) for text in texts]
    assert all(row.dtype == np.float32 for row in found)
    for number in (0, 2):
        prompt = rendered(model, prompts[number])
        tokens = np.array(encode(model, prompt + texts[number]))
        logits = reference_logits({**CONFIGS["qwen2"], "vocab_size": 260}, tensors, tokens)
        for i, score in enumerate(found[number], start=len(encode(model, prompt)) - 1):
            wanted = logits[i, tokens[i + 1]] - np.log(np.exp(logits[i]).sum())
            assert score == pytest.approx(wanted, abs=2e-5)
    again = model.logprob([CHATS[1], prompts[2], prompts[0]], ["x", texts[2], texts[0]])
    np.testing.assert_array_equal(again[1], found[2])
    np.testing.assert_array_equal(again[2], found[0])
    alike = [letter + texts[2] for letter in "abcdefghijkl"]  # side by side, in small pieces
    together = model.logprob([CHATS[0]] * len(alike), alike)
    np.testing.assert_array_equal(together[0], model.logprob([CHATS[0]], alike[:1])[0])


def test_a_prompt_is_prefilled_once_for_its_one_token_continuations(model, read) -> None:
    prompts = [CHATS[0], CHATS[1], CHATS[0], CHATS[0], CHATS[1], CHATS[0], CHATS[0]]
    texts = ["x", "y", "z", "x", "x", "xy", ""]
    alone = [
        model.logprob([prompt], [text])[0] for prompt, text in zip(prompts, texts, strict=True)
    ]
    del read[:]
    found = model.logprob(prompts, texts)
    for mine, one in zip(found, alone, strict=True):
        np.testing.assert_array_equal(mine, one)
    assert read == [3]  # the two prompts, and the first one with an x
    assert found[0][0] != found[2][0] and found[5].shape == (2,)


@pytest.mark.usefixtures("unprobed")
def test_caches_of_other_sizes_are_freed(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, held = load_local(directory, prefill_rows=1, rows=5), set()
    step = AnswerRows._step

    def noted(self: AnswerRows, wanted: int) -> int:
        shapes = {array.shape for array in jax.live_arrays() if array.ndim == 4}
        held.update(shape for shape in shapes if shape[0] == 5)
        return step(self, wanted)

    for text in ("a" * 20, "b" * 300):
        held.clear()
        monkeypatch.setattr(AnswerRows, "_step", noted)
        model.generate([f"{text} {i}" for i in range(5)], max_new_tokens=4)
        assert len(held) == 2  # keys and values of one number of slots


@pytest.mark.usefixtures("unprobed")
def test_a_model_that_nobody_holds_is_freed(directory: Path) -> None:
    model = load_local(directory)
    model.generate(["The cat"], max_new_tokens=2, stop=["x"])
    reference = weakref.ref(model)
    del model
    gc.collect()
    assert reference() is None


def test_stop_strings_cut_the_text_but_not_the_tokens(model, answers) -> None:
    """Of the tiny model each ASCII character is one token, so its place is easily found."""
    cases = 0
    for chat, whole in zip(CHATS, answers, strict=True):
        text = model.tokenizer.decode(whole.tokens)
        stop = next((c for c in text[1:] if c.isprintable() and c.isascii()), None)
        if stop is None:
            continue
        cases += 1
        place = whole.tokens.index(encode(model, stop)[0])
        found = model.generate([chat], max_new_tokens=12, stop=["not to be seen", stop])[0]
        assert found.finish_reason == "stop"
        assert found.text == text[: text.index(stop)]
        assert found.tokens == whole.tokens[: place + 1]
        assert found.logprobs == whole.logprobs[: place + 1]
    assert cases > 3


def test_decoding_ends_once_all_rows_have_met_a_stop_string(model, answers, monkeypatch) -> None:
    calls, real = [], decoding.decode
    monkeypatch.setattr(decoding, "decode", lambda *a, **b: calls.append(1) or real(*a, **b))
    stops = [a.text[2] for a in answers]
    model.generate(CHATS, max_new_tokens=60, stop=stops)
    assert len(calls) == 1  # of the 8 that 60 tokens take


def test_end_tokens_include_those_of_generation_config(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    first = load_local(tmp_path).generate(CHATS, max_new_tokens=12)
    ends = sorted({257, first[0].tokens[3]})
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    second = load_local(tmp_path).generate(CHATS, max_new_tokens=12)[0]
    length = first[0].tokens.index(first[0].tokens[3]) + 1
    assert second.finish_reason == "end"
    assert second.tokens == first[0].tokens[:length]
    assert second.logprobs == first[0].logprobs[:length]
    assert first[0].finish_reason == "length"


def test_prompts_that_do_not_fit_are_refused(model: LocalModel, directory: Path) -> None:
    with pytest.raises(InputError, match="505 tokens and 8 new tokens exceed the model's 512"):
        model.generate(["fine", "a" * 505], max_new_tokens=8)
    assert len(model.generate(["a" * 504], max_new_tokens=8)[0].tokens) <= 8
    short = load_local(directory, max_length=20)
    with pytest.raises(InputError, match="15 tokens and 6 tokens of continuation exceed"):
        short.logprob(["a" * 15], ["b" * 6])
    with pytest.raises(InputError, match="empty"):
        model.generate([""], max_new_tokens=8)
    with pytest.raises(InputError, match="max_new_tokens is 0"):
        model.generate(["a"], max_new_tokens=0)


def test_messages_without_a_chat_template_are_refused(model: LocalModel, tmp_path: Path) -> None:
    write_tiny_model(tmp_path, template=None)
    with pytest.raises(InputError, match="no chat template"):
        load_local(tmp_path).generate([CHATS[0]], max_new_tokens=2)
    strange: Any = (Message("tool", "x"),)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"refuses messages \(tool\): no tools"):
        model.generate([strange], max_new_tokens=2)


@pytest.mark.usefixtures("unprobed")
def test_identity_names_weights_and_settings(model, directory, tmp_path) -> None:
    assert load_local(directory).identity == model.identity
    assert load_local(directory, dtype="bfloat16").identity != model.identity
    write_tiny_model(tmp_path, template=SPECIAL[0])
    assert load_local(tmp_path).identity != model.identity


@pytest.mark.usefixtures("unprobed")
def test_float16_answers_as_float32_does(model, directory, answers) -> None:
    half = load_local(directory, dtype="float16")
    assert half.identity != model.identity
    found = half.generate(CHATS, max_new_tokens=12)
    assert [one.tokens[0] for one in found] == [one.tokens[0] for one in answers]
    scores, wanted = (one.logprob(CHATS[:3], ["Oslo"] * 3) for one in (half, model))
    for got, exact in zip(scores, wanted, strict=True):
        assert 0 < np.abs(got - exact).max() < 0.02


@pytest.mark.usefixtures("unprobed")
@pytest.mark.parametrize(
    ("dtype", "told"),
    [("float16", r"range of float16 \(65,504\): set config.model.dtype"), ("float32", "damaged")],
)
def test_results_that_are_not_numbers_are_refused(dtype, told, directory, monkeypatch) -> None:
    """A bias of infinity stands for an overflow: infinity less infinity is not a number."""
    half = load_local(directory, dtype=dtype)
    params = half._network.params["model"]["norm"]
    params["weight"] = jnp.full_like(params["weight"], jnp.inf)
    asks = (
        lambda: half.generate(CHATS[:1], max_new_tokens=2),
        lambda: half.logprob(CHATS[:1], ["Oslo"]),
        lambda: half.inspect(CHATS[:1], ["Oslo"]),
    )
    for ask in asks:
        with pytest.raises(InputError, match=told):
            ask()


@pytest.mark.parametrize(("decode", "prefill"), [(4, 4), (12, 4), (7, 1), (32, 8)])
def test_any_number_of_decode_rows_has_prefill_rows(decode: int, prefill: int) -> None:
    sizes = Sizes.choose(0, decode, 0, 0, usual=Sizes.fixed())
    assert (sizes.decode_rows, sizes.prefill_rows) == (decode, prefill)  # gcd with 8 on CPUs


def test_on_a_cpu_the_cache_grows_with_the_weights() -> None:
    of = {6_200_000_000: 4, 4 << 30: 4, (4 << 30) - 1: 2, 2_000_000_000: 1, 0: 1}  # bytes: GiB
    assert {size: Sizes.fixed(size).cache_bytes >> 30 for size in of} == of


def test_sizes_and_meshes_that_do_not_fit_are_refused(directory: Path) -> None:
    with pytest.raises(InputError, match="prefill_rows is 8, decode_rows 12"):
        load_local(directory, prefill_rows=8, rows=12)
    with pytest.raises(InputError, match="not 'tensor'"):
        load_local(directory, mesh=jax.make_mesh((8,), ("tensor",)))


def test_compiled_programs_are_cached_on_disk(tmp_path: Path, monkeypatch: Any) -> None:
    before = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    use_compile_cache(tmp_path / "other")  # the tests have told JAX of one
    assert jax.config.jax_compilation_cache_dir == before  # type: ignore[attr-defined]
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    try:
        use_compile_cache(tmp_path / "programs")
        jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda i, y: jax.numpy.sort(y @ y), x))(
            np.ones((64, 64))
        )
    finally:
        compilation_cache.reset_cache()
        jax.config.update("jax_compilation_cache_dir", before)
    assert list((tmp_path / "programs").iterdir()) and not (tmp_path / "other").exists()


@pytest.fixture
def failing(monkeypatch: Any) -> Callable[[str, Any, int], None]:
    """Makes a function run out of memory with more rows."""

    def failing(name: str, module: Any, most: int) -> None:
        real = getattr(module, name)

        def run(network: Any, params: Any, cache: Any, *args: Any, **settings: Any) -> Any:
            if len(cache[0][0]) > most:
                raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")
            return real(network, params, cache, *args, **settings)

        monkeypatch.setattr(module, name, run)

    return failing


@pytest.mark.usefixtures("unprobed")
@pytest.mark.parametrize("call", ["logprob", "inspect"])
def test_scores_go_on_in_smaller_batches(directory: Path, failing: Any, call: str) -> None:
    def scores(model: LocalModel) -> list[Any]:
        found = getattr(model, call)(CHATS, ["Oslo"] * len(CHATS))
        return [getattr(one, "logprobs", one) for one in found]

    wanted = scores(load_local(directory))
    failing("extend", prefill, most=2)
    model = load_local(directory)
    for found, right in zip(scores(model), wanted, strict=True):
        np.testing.assert_allclose(found, right, atol=1e-5)
    assert model._sizes.prefill_rows == 2
    failing("extend", prefill, most=0)
    with pytest.raises(InputError, match="does not hold even one row"):
        scores(model)


@pytest.mark.usefixtures("unprobed")
def test_out_of_device_memory_halves_the_batch(directory, answers, failing) -> None:
    failing("decode", decoding, most=8)
    model = load_local(directory, rows=32)
    found = model.generate(CHATS * 2, max_new_tokens=12)
    assert [one.tokens for one in found] == [one.tokens for one in answers] * 2
    assert (model._sizes.prefill_rows, model._sizes.decode_rows) == (8, 8)
    failing("extend", prefill, most=2)
    again = model.generate(CHATS, max_new_tokens=12)
    assert [one.tokens for one in again] == [one.tokens for one in answers]
    assert (model._sizes.prefill_rows, model._sizes.decode_rows) == (2, 2)
    scores = model.logprob(CHATS[:3], ["Oslo"] * 3)
    assert all(len(row) == 4 for row in scores)
    failing("extend", prefill, most=0)
    with pytest.raises(InputError, match="does not hold even one row"):
        model.generate(CHATS[:1], max_new_tokens=12)


@pytest.mark.usefixtures("unprobed")
def test_results_do_not_depend_on_when_rows_are_refilled(directory, answers) -> None:
    """Forty prompts in four rows, whose answers end at different times."""
    small = load_local(directory, prefill_rows=2, rows=4)
    asked = [CHATS[i % len(CHATS)] for i in range(40)]
    stops = [a.text[1:3] for a in answers[:4]]
    found = small.generate(asked, max_new_tokens=12, stop=stops)
    assert len({len(one.tokens) for one in found}) > 2
    for i, one in enumerate(found):
        assert one == found[i % len(CHATS)]
    wanted = load_local(directory).generate(CHATS, max_new_tokens=12, stop=stops)
    assert [one.text for one in wanted] == [one.text for one in found[: len(CHATS)]]


def test_long_prompts_have_fewer_rows(directory: Path) -> None:
    model = load_local(directory, rows=64, cache_gib=2**-10)
    config = model._network.decoder.config
    row = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * 4
    for slots in (128, 512):
        rows = model._decoding.rows(slots)
        assert rows * slots * row <= 1 << 20 or rows == 8
        assert 2 * rows * slots * row > 1 << 20 or rows == 64
    assert model._decoding.rows(128) > model._decoding.rows(512)


@given(
    length=st.integers(1, 9000), new=st.integers(0, 600), chunk=st.sampled_from([1, 16, 32, 128])
)
def test_cache_slots_are_sufficient_and_tight(length: int, new: int, chunk: int) -> None:
    sizes = Sizes(8, 64, chunk, 1 << 30)
    slots = sizes.slots(length, new)
    assert slots >= max(-(-length // chunk) * chunk, length + new)
    assert slots <= 1.5 * (length + chunk + new) + 128
