"""Chat templates are programs of checkpoints: they run in Jinja's sandbox, and may fail."""

import ast
import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from tokenizers.processors import TemplateProcessing

from jaxrag.core.bounded import LimitError
from jaxrag.engines import prompts
from jaxrag.engines.prompts import PromptEncoder, render_chat
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import InputError, Message
from tests.engines.tiny_model import write_tiny_model

PACKAGE = Path(__file__).parent.parent.parent / "jaxrag"
CHAT = (Message("user", "Where?"),)
TEMPLATES = {
    "classes": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "attributes of names": "{{ messages|attr('__class__') }}{{ ''|attr('__class__')|attr('x')() }}",
    "format strings": "{{ '{0.__class__.__init__.__globals__}'.format(raise_exception) }}",
    "changes": "{{ messages.append(1) }}",
    "files": "{% include '/etc/passwd' %}",
    "imports": "{% import 'os' as os %}{{ os.getcwd() }}",
    "a long loop": "{% for i in range(10**9) %}{% endfor %}",
    "division by zero": "{{ 1 / 0 }}",
    "words and numbers": "{{ 'a' + 1 }}",
    "endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "no Jinja": "{% for %}",
}


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    directory = tmp_path_factory.mktemp("model")
    write_tiny_model(directory)
    return load_tokenizer(directory)


@pytest.mark.parametrize("name", TEMPLATES)
def test_a_template_that_leaves_the_sandbox_or_fails_is_one_error(name, tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "chat_template", TEMPLATES[name])
    with pytest.raises(InputError, match=r"chat template refuses messages \(user\)"):
        render_chat(tokenizer, CHAT, {})


def test_a_template_that_fails_slowly_is_asked_once_for_each_form(tokenizer, monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(tokenizer, "chat_template", "{{ 1 / 0 }}{# slow #}")
    render = prompts._RENDER
    monkeypatch.setattr(prompts, "_RENDER", lambda **given: asked.append(1) or render(**given))
    for chat in [CHAT] * 3 + [(Message("system", "S"), *CHAT)] * 2:
        with pytest.raises(InputError, match="refuses messages"):
            render_chat(tokenizer, chat, {})
    assert len(asked) == 1 + 2


LIMITS = {
    "nested loops": ("{% for a in range(99999) %}" * 2 + "{% endfor %}" * 2, "0.5 s"),
    "recursion": ("{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}"
        "{{ f(60) }}", "0.5 s"),
    "doubling": ("{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s ~ n.s %}"
        "{% endfor %}", "512 MB"),
    "a wide format": ("{{ '%4000000000d' % 1 }}", "512 MB"),
    "only long chats": ("{{ messages[0].content * (1 if messages[0].content|length < 99 else 9) }}",
        "a million characters"),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_a_template_that_takes_too_much_stops_the_run_at_once(name, tokenizer, monkeypatch) -> None:
    template, said = LIMITS[name]
    monkeypatch.setattr(tokenizer, "chat_template", template)
    start = time.monotonic()
    with pytest.raises(LimitError, match=f"chat template of .* is refused: it .* {said}"):
        render_chat(tokenizer, (Message("user", "Where? " * 100_000),), {})
    assert time.monotonic() - start < 30
    if name != "only long chats":  # is refused when the model is loaded
        with pytest.raises(LimitError):
            _ = PromptEncoder(tokenizer, template_options={}, max_length=9).identity


@pytest.mark.parametrize(
    "call", ["strftime_now(format)", "strftime_now(format='%Y-%m-%d')", "(strftime_now)('%F')"]
)
def test_a_prompt_is_the_same_on_every_day(call, tokenizer, monkeypatch) -> None:
    template = "{% set format = '%Y-%m-%d' %}{{ messages[0].content }} {{ " + call + " }}"
    monkeypatch.setattr(tokenizer, "chat_template", template)
    assert render_chat(tokenizer, CHAT, {}) == "Where? 2024-07-26"
    assert render_chat(tokenizer, CHAT, {"date": "2020-02-03"}) == "Where? 2020-02-03"


def test_a_template_sees_no_globals(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        tokenizer, "chat_template", "<{{ raise_exception.__globals__ }}{{ messages[0].content }}>"
    )
    assert render_chat(tokenizer, CHAT, {}) == "<Where?>"


def test_content_is_no_template(tokenizer: Any) -> None:
    hostile = "{{ 7 * 7 }} {% raw %} {{ ''.__class__ }}"
    assert hostile in render_chat(tokenizer, (Message("user", hostile),), {})


def test_a_mark_of_the_template_is_text_in_data(tmp_path: Path) -> None:
    """Also where the tokenizer does not call it special, as DeepSeek's distilled models."""
    write_tiny_model(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    tokenizer.add_tokens(["<user>", "<p>"])
    tokenizer.chat_template = "<user>{{ messages[0].content }}"
    encode = PromptEncoder(tokenizer, template_options={}, max_length=99)
    found = tokenizer.convert_ids_to_tokens(encode.tokens((Message("user", "a<user><p>"),)))
    assert found == ["<user>", "a", *"<user>", "<p>"]


def test_a_begin_token_without_a_role_is_put_before_any_text(tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    tokenizer = load_tokenizer(tmp_path)
    begin = ("<|end|>", tokenizer.convert_tokens_to_ids("<|end|>"))
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|end|> $A", special_tokens=[begin]
    )
    encode = PromptEncoder(tokenizer, template_options={}, max_length=99)
    assert tokenizer.bos_token is None
    for text in ("None", "<|end|>None"):
        assert tokenizer.decode(encode.tokens(text)) == "<|end|>None"


def test_nothing_else_evaluates_jinja() -> None:
    """The one caller is transformers, whose environment is the sandbox, in a process of its own."""
    text = "".join(file.read_text() for file in PACKAGE.rglob("*.py"))
    assert "apply_chat_template" not in text
    assert text.count("render_jinja_template") == text.count("_compile_jinja_template") == 1
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not [name for name in names if name.split(".")[0] == "jinja2"], file


def test_code_of_a_checkpoint_is_never_run(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "model")
    ran = tmp_path / "ran"
    code = f"open({str(ran)!r}, 'w').close()\nclass Own: pass\n"
    (tmp_path / "model" / "own.py").write_text(code)
    for name in ("tokenizer_config.json", "config.json"):
        file = tmp_path / "model" / name
        config = json.loads(file.read_text())
        config["auto_map"] = {"AutoTokenizer": ["own.Own", "own.Own"], "AutoConfig": "own.Own"}
        config["tokenizer_class"] = "Own"
        file.write_text(json.dumps(config))
    with contextlib.suppress(InputError):
        load_tokenizer(tmp_path / "model")
    assert not ran.exists()
