"""The server engine against faults; what a real server answers is tested by make test-vllm."""

import json
import re
import shutil
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from jaxrag.core import http
from jaxrag.engines.server import Server, ServerModel
from jaxrag.types import EngineDown, InputError, Message
from tests.engines.fake_server import END, faulty, serving, slowly
from tests.engines.tiny_model import write_tiny_model

KEY = "sk-not-to-be-seen"


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: Any) -> str:
    directory = tmp_path_factory.mktemp("tiny")
    write_tiny_model(directory)
    return str(directory)


CONNECTED: list[ServerModel] = []


@pytest.fixture(autouse=True)
def quick(monkeypatch: Any) -> Any:
    monkeypatch.setattr(http, "_FIRST_PAUSE", 0.01)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    yield
    while CONNECTED:
        CONNECTED.pop().close()


def connect(tokenizer: str, *servers: Any, **settings: Any) -> ServerModel:
    settings = {"timeout": 5.0, "patience": 5.0, **settings}
    urls = ",".join(server.url for server in servers)
    CONNECTED.append(Server("tiny", urls, tokenizer=tokenizer, **settings).load(Path()))
    return CONNECTED[-1]


def texts(model: ServerModel, count: int = 20) -> list[str]:
    found = model.generate([f"{i:02}" for i in range(count)], max_new_tokens=3)
    return [generation.text for generation in found]


EXPECTED = [f"{i:02}"[::-1] for i in range(20)]


def test_generations_are_parsed_as_by_the_local_engine(tokenizer: str) -> None:
    with serving() as server:
        model = connect(tokenizer, server)
        (found,) = model.generate(["abc"], max_new_tokens=4)
        (cut,) = model.generate(["abc"], max_new_tokens=4, stop=("b",))
        _, body, key = server.bodies[0]
    letters = {c: i for i, c in enumerate("abc")}
    a = found.tokens[2]
    assert [token - a for token in found.tokens[:3]] == [letters[c] for c in "cba"]
    assert (found.text, found.tokens[3], found.finish_reason) == ("cba", END, "end")
    assert found.logprobs == (-0.1,) * 4
    assert found.prompt_tokens == 3
    assert (cut.text, len(cut.tokens), cut.finish_reason) == ("c", 2, "stop")
    assert body["logprobs"] == 1  # vLLM on TPUs answers 500 for 0
    assert "seed" not in body
    assert key == f"Bearer {KEY}"


def test_draws_depend_on_prompt_and_seed(tokenizer: str) -> None:
    with serving() as server:
        model = connect(tokenizer, server)
        for prompt, seed in (("a", 1), ("a", 1), ("a", 2), ("b", 1)):
            model.generate([prompt], max_new_tokens=2, temperature=0.5, seed=seed)
        seeds = [body["seed"] for _, body, _ in server.bodies]
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 3


def test_settings_that_a_server_would_fill_in_are_sent(tokenizer: str) -> None:
    with serving() as server:
        model = connect(tokenizer, server)
        model.generate(["Hi"], max_new_tokens=2)
        model.generate(["Hi"], max_new_tokens=2, repetition_penalty=1.1)
        first, second = (body for _, body, _ in server.bodies)
    neutral = {"top_p": 1.0, "top_k": -1, "min_p": 0.0, "typical_p": 1.0, "repetition_penalty": 1.0}
    neutral["repeat_penalty"] = 1.0
    assert {name: first[name] for name in neutral} == neutral
    assert (second["repetition_penalty"], second["repeat_penalty"]) == (1.1, 1.1)


def test_transient_faults_lose_no_results(tokenizer: str) -> None:
    with serving(faulty) as server:
        assert texts(connect(tokenizer, server, concurrency=3)) == EXPECTED


def test_a_dead_replica_is_replaced_by_the_other(tokenizer: str) -> None:
    with serving() as alive, serving(lambda handler, *_: handler.drop()) as dead:
        model = connect(tokenizer, alive, dead, concurrency=4)
        assert texts(model) == EXPECTED
        assert len(alive.bodies) == 20
        assert len(dead.bodies) < 10


def test_requests_go_to_the_least_busy_replica(tokenizer: str) -> None:
    with serving(slowly(0.02)) as fast, serving(slowly(0.2)) as slow:
        model = connect(tokenizer, fast, slow, concurrency=4)
        assert texts(model) == EXPECTED
        assert len(fast.bodies) > len(slow.bodies) > 0
        assert fast.most + slow.most <= 8


def test_concurrency_limits_open_requests(tokenizer: str) -> None:
    with serving(slowly(0.1)) as server:
        texts(connect(tokenizer, server, concurrency=3))
        assert server.most == 3


def test_a_recovered_server_is_used_again(tokenizer: str) -> None:
    with serving() as server:
        model, port = connect(tokenizer, server), server.server_port
    future = model.submit("ab", max_new_tokens=3)
    time.sleep(0.2)
    assert not future.done()
    with serving(port=port):
        assert future.result().text == "ba"


@pytest.mark.parametrize(("value", "pause"), [("3", 3.0), ("0", None), ("-1", None), ("so", None)])
def test_no_pause_is_requested_by_0(value: str, pause: float | None) -> None:
    assert http.retry_after(httpx.Response(429, headers={"Retry-After": value})) == pause


@pytest.mark.parametrize("tokens", [["Li", "ma", "\n", "It"], ["\n", "It"], ["Li", "ma\n", "It"]])
def test_a_token_that_met_a_stop_string_counts_where_a_server_does_not_list_it(tokens) -> None:
    """As llama.cpp, which leaves out as many tokens as the stop string has."""

    def unlisted(handler: Any, number: int, body: Any) -> None:
        made = tokens
        if body.get("stop"):
            time.sleep(0.3 * (number == 1))  # read when another answer has shown what is missing
            made = tokens[: next(i for i, token in enumerate(tokens) if "\n" in token)]
        rows = [{"token": token, "logprob": -0.5} for token in made]
        text = "".join(tokens).split("\n")[0] if body.get("stop") else "".join(tokens)
        choice = {"message": {"content": text}, "logprobs": {"content": rows} if rows else None}
        usage = {"completion_tokens": len(made) + bool(body.get("stop"))}
        handler.send(200, {"choices": [choice | {"finish_reason": "stop"}], "usage": usage})

    with serving(unlisted) as server:
        model, asked = connect("", server), [(Message("user", "Capital?"),)]
        found = [
            one
            for prompts in (asked * 3, asked, asked)
            for one in model.generate(prompts, max_new_tokens=5, stop=("\n",))
        ]
    text = "".join(tokens).split("\n")[0]
    assert [(one.text, len(one.logprobs)) for one in found] == [(text, len(tokens) - 1)] * 5


def test_refusals_name_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def ways(status: int, text: str) -> str:
        refuses = lambda handler, number, body: handler.send(status, {"error": text})  # noqa: E731
        with serving(refuses) as server, pytest.raises((EngineDown, InputError)) as raised:
            connect("", server).generate([(Message("user", "Capital?"),)], max_new_tokens=5)
        return str(raised.value)

    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert "read from $OPENAI_API_KEY, which is not set" in ways(401, "no key")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another-key-of-hers")
    told = ways(401, "not sk-another-key-of-hers")
    assert "$OPENAI_API_KEY, which is set" in told and "of-hers" not in told
    assert "ends in /v1" in ways(404, "page not found")
    assert "logprobs=False" in ways(400, "logprobs are not supported")
    assert "$OPENAI_API_KEY" not in ways(403, "your input was flagged")  # OpenRouter's, of one


def test_a_server_without_logprobs_is_refused_unless_disabled(tokenizer: str) -> None:
    def bare(handler: Any, number: int, body: Any) -> None:
        choice = {"text": "yes", "token_ids": [1, 2], "finish_reason": "length"}
        handler.send(200, {"choices": [choice]})

    with serving(bare) as server:
        with pytest.raises(InputError, match="logprobs=False"):
            texts(connect(tokenizer, server), 1)
        (found,) = connect(tokenizer, server, logprobs=False).generate(["a"], max_new_tokens=2)
        assert "logprobs" not in server.bodies[-1][1]
    assert (len(found.tokens), found.logprobs) == (2, ())


THINKING = [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}]}]
BLANK = [{"token": "\u010a", "logprob": -0.5}]
XAI = {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 41}


@pytest.mark.parametrize(
    ("choice", "usage", "expected"),
    [
        ({"message": {"content": "ab"}}, {}, ("ab", "", 32, "stop")),
        ({"message": {"content": "ab"}}, XAI, ("ab", "", 2, "stop")),
        (
            {"message": {"content": [*THINKING, {"type": "text", "text": "ab"}]}},
            {},
            ("ab", "Hm", 32, "stop"),
        ),
        ({"text": "ab", "token_ids": [64, 65, 256], "stop_reason": 256}, {}, ("ab", "", 3, "end")),
        ({"message": {"content": "\n"}, "logprobs": {"content": BLANK}}, {}, ("", "", 1, "stop")),
    ],
)
def test_what_some_servers_write_otherwise(choice, usage, expected, tokenizer: str) -> None:
    """Usage as of xAI, thoughts as of Mistral, an end token of vLLM's that no file names."""
    details = {"completion_tokens_details": {"reasoning_tokens": 30}}
    usage = {"prompt_tokens": 9, "completion_tokens": 62, "total_tokens": 71} | details | usage
    response = {"choices": [{"finish_reason": "stop", **choice}], "usage": usage}
    with serving(lambda handler, *_: handler.send(200, response)) as server:
        where, named = "" if "message" in choice else tokenizer, "logprobs" in choice
        model = connect(where, server, logprobs=named)
        (found,) = model.generate([(Message("user", "Hi"),)], max_new_tokens=9, stop=("\n",))
    assert (found.text, found.reasoning, len(found.tokens), found.finish_reason) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "other"}, "no model 'other'; nearest: tiny. It has tiny."),
        ({"urls": ""}, "no server"),
        ({"urls": "localhost:8000"}, "http://"),
        ({"urls": "http://me:secret@localhost/v1"}, "as a key instead"),
        ({"concurrency": 0}, "concurrency is 0"),
    ],
)
def test_invalid_settings_are_refused(changes: dict[str, Any], message: str) -> None:
    with serving() as server:
        given = {"urls": server.url, "model": "tiny", **changes}
        with pytest.raises(InputError, match=message) as raised:
            Server(**given).load(Path())
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize("listed", [{}, {"data": None}, {"data": {}}, {"error": "no"}])
def test_only_an_empty_list_of_models_is_no_answer_about_them(listed: dict[str, Any]) -> None:
    find = Server("tiny")._find  # pyright: ignore[reportPrivateUsage]
    assert find({"data": []}) == {}
    with pytest.raises(InputError, match=re.escape(f"no model 'tiny'; {listed}")):
        find(listed)


def test_a_prompt_that_does_not_fit_is_refused_before_sending(tokenizer: str) -> None:
    with serving() as server:
        model = connect(tokenizer, server)
        with pytest.raises(InputError, match="60 tokens and 5 new tokens exceed the model's 64"):
            model.generate(["a" * 60], max_new_tokens=5)
        assert server.bodies == []


def test_identity_does_not_contain_addresses(tokenizer: str, tmp_path: Path) -> None:
    with serving() as one, serving() as two:
        assert connect(tokenizer, one).identity == connect(tokenizer, one, two).identity
        assert connect(tokenizer, one).identity != connect("", one).identity
        assert connect(tokenizer, one, revision="2").identity != connect(tokenizer, one).identity


TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"


@pytest.mark.parametrize(
    ("file", "change"),
    [
        (TOKENIZER, {"normalizer": {"type": "Lowercase"}}),
        (TOKENIZER, {"decoder": {"type": "Fuse"}}),
        (TOKENIZER, {"added_tokens": []}),
        (SETTINGS, {"bos_token": "<|end|>"}),
        (SETTINGS, {"split_special_tokens": True}),
        (SETTINGS, {"chat_template": "{{ messages[0].content }}"}),
        ("chat_template.jinja", "{{ messages[0].content }}"),
        ("generation_config.json", {"eos_token_id": 51}),
        ("config.json", {"eos_token_id": 51}),
    ],
)
def test_all_of_a_tokenizer_is_part_of_the_identity(file, change, tokenizer, tmp_path) -> None:
    first = shutil.copytree(tokenizer, tmp_path / "first")
    # a named architecture would bring parts of its own
    (first / "config.json").write_text('{"eos_token_id": 257}')
    if "chat_template" in change:  # the other would hide it
        (first / "chat_template.jinja").unlink()
    same, changed = (shutil.copytree(first, tmp_path / name) for name in ("same", "changed"))
    path = changed / file
    if isinstance(change, dict):
        change = json.dumps({**json.loads(path.read_text()), **change})
    path.write_text(change)
    with serving() as server:
        known, again, other = (connect(str(one), server).identity for one in (first, same, changed))
    assert known == again != other
