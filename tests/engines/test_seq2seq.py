"""The engine over a T5: what it computes and what must not matter."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.engines.local.prefill import padded_length
from jaxrag.engines.seq2seq import Seq2Seq, Seq2SeqModel, source_batches
from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import Generation, InputError, Message
from tests.models.t5 import small_t5
from tests.models.t5.small_t5 import CONFIGS, reference_logits

PROMPTS = [
    "who wrote the cat",
    "the capital of chad ?",
    "a mat",
    "on the mat the cat sat : " * 4,  # more than 32 tokens
    "chad of chad",
    "the cat sat on a mat ; who wrote it ? " * 2,
    "x",
    "it",
    "who , who , who",
    "capital",
]


def load(directory: Path, **settings: Any) -> Seq2SeqModel:
    return Seq2Seq(str(directory), **settings).load(directory / "cache")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("t5")
    small_t5.write(path, CONFIGS["1.1"])
    return path


@pytest.fixture(scope="module")
def model(directory: Path) -> Seq2SeqModel:
    return load(directory, rows=4)


@pytest.fixture(scope="module")
def answers(model: Seq2SeqModel) -> list[Generation]:
    return model.generate(PROMPTS, max_new_tokens=10)


def logprobs_after(tensors: Any, source: list[int], answer: tuple[int, ...]) -> np.ndarray:
    logits = reference_logits(CONFIGS["1.1"], tensors, source, (0, *answer))[-1]
    return logits - np.log(np.exp(logits).sum())


def test_greedy_answers_equal_the_reference(model: Seq2SeqModel, answers: list[Generation]) -> None:
    tensors = small_t5.random_tensors(CONFIGS["1.1"])
    reasons = set()
    for prompt, found in zip(PROMPTS[:5], answers[:5], strict=True):
        source = model.tokenizer.encode(prompt)
        assert source[-1] == 1 and found.prompt_tokens == len(source)
        for i, (token, logprob) in enumerate(zip(found.tokens, found.logprobs, strict=True)):
            every = logprobs_after(tensors, source, found.tokens[:i])
            assert token == every.argmax()
            assert logprob == pytest.approx(every.max(), abs=3e-5)
        ended = found.tokens[-1] == 1
        assert found.finish_reason == ("end" if ended else "length")
        assert ended or len(found.tokens) == 10
        assert found.text == model.tokenizer.decode(found.tokens, skip_special_tokens=True)
        assert "</s>" not in found.text
        reasons.add(found.finish_reason)
    assert reasons == {"end", "length"}


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 1.4, "seed": 3}, {"stop": ["cat", "a"]}], ids=str
)
def test_results_do_not_depend_on_the_batch(model: Seq2SeqModel, settings: dict[str, Any]) -> None:
    whole = model.generate(PROMPTS, max_new_tokens=10, **settings)
    assert len({answer.tokens for answer in whole}) > 4  # or the test would see nothing
    assert model.generate(PROMPTS[::-1], max_new_tokens=10, **settings) == whole[::-1]
    assert model.generate(PROMPTS[3:4], max_new_tokens=10, **settings) == whole[3:4]
    assert model.generate(PROMPTS[6:7] * 3, max_new_tokens=10, **settings) == whole[6:7] * 3


@pytest.mark.slow
def test_beam_search_does_not_depend_on_the_batch_and_finds_likelier_answers(directory, answers):
    beams = load(directory, rows=4, beams=4)
    whole = beams.generate(PROMPTS, max_new_tokens=10)
    assert beams.generate(PROMPTS[5:1:-1], max_new_tokens=10) == whole[5:1:-1]
    assert [w.tokens for w in whole] != [a.tokens for a in answers]
    assert all(len(one.tokens) == len(one.logprobs) for one in whole)
    # it looks for the answers with the highest mean log-probability of a token
    assert sum(np.mean(a.logprobs) for a in whole) > sum(np.mean(a.logprobs) for a in answers)
    with pytest.raises(InputError, match=r"temperature is 0\.7 and beams 4"):
        beams.generate(PROMPTS, max_new_tokens=3, temperature=0.7)


def test_draws_depend_on_prompt_and_seed_only(model, answers) -> None:
    def draw(prompts: list[str], seed: Any) -> list[Generation]:
        return model.generate(prompts, max_new_tokens=10, temperature=1.2, seed=seed)

    drawn = draw(PROMPTS, 1)
    assert draw(PROMPTS, 1) == drawn
    assert draw(PROMPTS[3:5], 1) == drawn[3:5]
    assert draw(PROMPTS[:4], [2, 1, 2, 1])[1::2] == drawn[1:4:2]
    assert draw(PROMPTS, 2) != drawn
    assert drawn != answers


def test_scores_equal_the_reference_and_do_not_depend_on_the_batch(model: Seq2SeqModel) -> None:
    tensors = small_t5.random_tensors(CONFIGS["1.1"])
    texts = ["the cat", "", "a mat on " * 9]
    found = model.logprob(PROMPTS[:3], texts)
    tokens = [model.tokenizer.encode(text, add_special_tokens=False) for text in texts]
    assert [len(row) for row in found] == [len(row) for row in tokens]
    assert all(row.dtype == np.float32 for row in found)
    for prompt, answer, row in zip(PROMPTS[:3], tokens, found, strict=True):
        source = model.tokenizer.encode(prompt)
        for i, token in enumerate(answer[:6]):
            want = logprobs_after(tensors, source, tuple(answer[:i]))[token]
            assert row[i] == pytest.approx(want, abs=3e-5)
    again = model.logprob([PROMPTS[5], PROMPTS[2], PROMPTS[0]], ["cat", texts[2], texts[0]])
    np.testing.assert_array_equal(again[1], found[2])
    np.testing.assert_array_equal(again[2], found[0])


def test_stop_strings_cut_the_text_but_not_the_tokens(model, answers) -> None:
    cases = 0
    for prompt, whole in zip(PROMPTS, answers, strict=True):
        texts = [model.tokenizer.decode(whole.tokens[:n]) for n in range(1, len(whole.tokens) + 1)]
        stop = next((c for c in texts[-1][1:] if c.isalnum()), None)
        if stop is None or stop not in whole.text:
            continue
        cases += 1
        found = model.generate([prompt], max_new_tokens=10, stop=["never", stop])[0]
        assert found.finish_reason == "stop"
        assert found.text == whole.text[: whole.text.index(stop)]
        taken = next(n for n, text in enumerate(texts, start=1) if stop in text)
        assert found.tokens == whole.tokens[:taken]
        assert found.logprobs == whole.logprobs[:taken]
    assert cases > 3


def test_decoding_ends_once_all_rows_have_met_a_stop_string(model, answers, monkeypatch) -> None:
    from jaxrag.engines import seq2seq

    calls, real = [], seq2seq.extend_answers
    monkeypatch.setattr(seq2seq, "extend_answers", lambda *a: calls.append(1) or real(*a))
    prompt = next(p for p, a in zip(PROMPTS, answers, strict=True) if a.finish_reason == "length")
    model.generate([prompt], max_new_tokens=40)
    assert len(calls) == 1
    model.generate([prompt], max_new_tokens=40, stop=["never to be seen"])
    whole = len(calls) - 1
    text = answers[PROMPTS.index(prompt)].text
    model.generate([prompt], max_new_tokens=40, stop=[text[:2].strip()])
    assert len(calls) - 1 - whole == 1
    assert whole > 1


def test_messages_are_joined_to_one_text(model: Seq2SeqModel) -> None:
    chat = (
        *(Message("system", "the cat"), Message("user", "a mat ?")),
        *(Message("assistant", "on"), Message("user", "who wrote")),
    )
    found = model.generate([chat], max_new_tokens=5)
    assert found == model.generate(["the cat a mat ? on who wrote"], max_new_tokens=5)
    assert found[0].prompt_tokens == len(model.tokenizer.encode("the cat a mat ? on who wrote"))


def test_long_prompts_are_refused_before_anything_is_computed(directory: Path) -> None:
    model = load(directory, rows=2, max_length=8)
    tokens = len(model.tokenizer.encode(PROMPTS[3]))
    message = rf"A prompt of {tokens} tokens .* exceed the model's 8: shorten.*larger max_length"
    with pytest.raises(InputError, match=message):
        model.generate(["cat", PROMPTS[3]], max_new_tokens=2)
    with pytest.raises(InputError, match=message):
        model.logprob([PROMPTS[3]], ["cat"])
    # the answer's length is its own affair
    assert len(model.generate(["the cat sat on a mat"], max_new_tokens=20)[0].tokens) > 0
    room = LanguageModelTool(model).room("the cat", max_new_tokens=0)
    assert room == 8 - len(model.tokenizer.encode("the cat"))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(8, 1), (2, 4)])
def test_eight_devices_give_the_tokens_of_one(directory, answers, shape) -> None:
    model = load(directory, rows=8, data_parallel=shape[0], tensor_parallel=shape[1])
    for one, other in zip(
        model.generate(PROMPTS, max_new_tokens=10, stop=["never"]), answers, strict=True
    ):
        assert one.tokens == other.tokens
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=2e-5, rtol=0)


def test_identity_depends_on_weights_and_settings(directory: Path, tmp_path: Path) -> None:
    base = load(directory, rows=4).identity
    assert load(directory, rows=4, max_length=99).identity == base
    others = [
        load(directory, rows=4, dtype="bfloat16"),
        load(directory, rows=8),
        load(directory, rows=4, beams=2),
    ]
    small_t5.write(tmp_path, CONFIGS["1.1"], seed=1)
    others.append(load(tmp_path, rows=4))
    assert len({base, *(other.identity for other in others)}) == 5
    assert json.loads(base)["engine"].startswith("jaxrag-seq2seq-")


def test_invalid_settings_are_refused(directory: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No checkpoint of an encoder-decoder is named"):
        Seq2Seq().load(tmp_path)
    with pytest.raises(InputError, match="rows is -1"):
        load(directory, rows=-1)
    with pytest.raises(InputError, match="dtype is 'float16'"):
        load(directory, dtype="float16")
    with pytest.raises(InputError, match="beams is 0"):
        load(directory, beams=0)
    with pytest.raises(InputError, match="max_new_tokens is 0"):
        load(directory).generate(["cat"], max_new_tokens=0)
    with pytest.raises(InputError, match=r"repetition_penalty is 1\.1, and encoder-decoders"):
        options: Any = {"max_new_tokens": 2, "repetition_penalty": 1.1}
        load(directory).generate(["cat"], **options)
    small_t5.write(tmp_path, CONFIGS["1.1"])
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    (tmp_path / "spiece.model").write_bytes(b"")
    with pytest.raises(InputError, match=r"holds no tokenizer: one of tokenizer\.json"):
        load(tmp_path)


def test_widths_and_batches_worked_by_hand() -> None:
    # multiples of 32; above 128 of a quarter of the next power of two
    assert [padded_length(n, 32) for n in (1, 32, 33, 128, 129, 200, 257, 300)] == [
        *(32, 32, 64, 128, 192, 256),
        *(384, 384),
    ]
    assert [padded_length(n, 16) for n in (1, 17, 64, 65, 81)] == [16, 32, 64, 96, 96]
    found = list(source_batches([[7] * 40, [8], [9, 9], [5]], 2))
    assert [batch.jobs for batch in found] == [(0,), (1, 2), (3,)]
    assert [batch.tokens.shape for batch in found] == [(2, 64), (2, 32), (2, 32)]
    assert found[1].where.sum(1).tolist() == [1, 2]
    assert found[1].tokens[1, :3].tolist() == [9, 9, 0]
    assert not found[2].where[1].any() and found[0].targets.shape == (2, 0)
    given = list(source_batches([[7], [8], [9]], 2, targets=[[1] * 17, [], [2]]))
    assert [(b.jobs, b.targets.shape) for b in given] == [
        ((0,), (2, 32)),
        ((2,), (2, 16)),
        ((1,), (2, 0)),
    ]
