"""A key that a server sends back, however it is spelt, is neither shown nor read."""

import base64
import re
from collections.abc import Callable
from typing import Any

import pytest

from jaxrag.core.http import HttpClient, check_address
from jaxrag.types import InputError
from tests import local_http

KEY = "sk-VeryS3cret0123456789abcdefXYZ"
SPELT: dict[str, Callable[[str], str]] = {
    "base64": lambda key: base64.b64encode(key.encode()).decode(),
    "base64 of a header": lambda key: base64.b64encode(f"Bearer {key}".encode()).decode(),
    "spaced": " ".join,
    "in two lines": lambda key: key[:9] + "\n" + key[9:],
    "entities": lambda key: "".join(f"&#{ord(c):04d};" for c in key),
    "hexadecimal entities": lambda key: "".join(f"&amp;#x{ord(c):x};" for c in key),
    "a named entity": lambda key: key.replace("-", "&hyphen;"),
    "hexadecimal": lambda key: key.encode().hex(),
    "decimal codes": lambda key: str(list(key.encode())),
    "octal escapes": lambda key: "".join(f"\\{ord(c):03o}" for c in key),
    "hexadecimal codes": lambda key: " ".join(f"0x{ord(c):02x}" for c in key),
    "escaped twice": lambda key: "".join(f"%25{ord(c):02x}" for c in key),
    "invisible blanks": "\u200b".join,
    "entities without an end": lambda key: "".join(f"&#{ord(c)}" for c in key),
    "marked up": lambda key: "".join(f"<b>{c}</b>" for c in key),
    "escaped tags": lambda key: "".join(f"&lt;b class=x&gt;{c}" for c in key),
    "long tags": lambda key: "<b title='&gt;{}'>".format("x" * 999).join(key),
}


class Handler(local_http.Handler):
    def do_GET(self) -> None:
        self.send(int(self.path[1:4]), {"error": f"bad key {self.server.said} - ask again"})


def shown(text: str, key: str) -> bool:
    return re.sub("[^A-Za-z0-9]", "", key) in re.sub("[^A-Za-z0-9]", "", text)


@pytest.mark.parametrize("name", SPELT)
def test_a_key_in_any_spelling(name: str) -> None:
    said = SPELT[name](KEY)
    with local_http.serving(Handler, None, said=said) as server:
        client = HttpClient([server.url], headers={}, secrets=[KEY], timeout=9.0, patience=9.0)
        for path in ("/401", "/200"):
            with pytest.raises(InputError, match="has the request's key in it") as refused:
                client.request("GET", path)
            assert not shown(str(refused.value), said)
        client.close()


def test_a_key_that_looks_like_an_escape_itself() -> None:
    key = KEY.replace("0123", "0x41u+0042")
    with local_http.serving(
        Handler, None, said=" ".join(key[at : at + 8] for at in range(0, 48, 8))
    ) as server:
        client = HttpClient([server.url], headers={}, secrets=[key], timeout=9.0, patience=9.0)
        with pytest.raises(InputError, match="has the request's key in it"):
            client.request("GET", "/401")
        client.close()


@pytest.mark.parametrize(("key", "read"), [(KEY, "***"), ("EMPTY", "EMPTY")])
def test_a_key_as_it_is(key: str, read: str) -> None:
    """A short one, such as EMPTY for servers that need none, may be a word of an answer."""
    with local_http.serving(Handler, None, said=key) as server:
        client = HttpClient([server.url], headers={}, secrets=[key], timeout=9.0, patience=9.0)
        with pytest.raises(InputError, match=r"bad key \*\*\* - ask again"):
            client.request("GET", "/401")
        assert client.request("GET", "/200") == {"error": f"bad key {read} - ask again"}
        client.close()


@pytest.mark.parametrize(
    "url",
    ["http://[::1", "http://h:99999999", "http://h:abc", "http://a b/", "http://..", "http://h\n",
     "http://h: 80", "http://h/?api_key=secret", "http://h/v1#secret", "http://u:secret@h",
     "http://u:secret%40h", "http://h:9" + "9" * 5000],
)  # fmt: skip
def test_addresses(url: str) -> None:
    with pytest.raises(InputError, match="address") as refused:
        check_address(url)
    assert "secret" not in str(refused.value) and len(str(refused.value)) < 300


@pytest.mark.parametrize("wrong", [{"timeout": float("nan")}, {"patience": float("inf")},
                                   {"timeout": 10**400}, {"rate": 1e-320}])  # fmt: skip
def test_numbers_are_finite(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="all finite"):
        HttpClient(["http://h"], headers={}, **{"timeout": 1.0, "patience": 1.0, **wrong})


@pytest.mark.parametrize("data", ["\\" * 1_000_000, "&#" + "9" * 1_000_000, "<" * 1_000_000])
def test_a_long_run_of_escapes_ends(data: str) -> None:
    """A pattern that tries each of them as the first would take hours."""
    client = HttpClient(["http://h"], headers={}, secrets=[KEY], timeout=1.0, patience=0)
    assert client._quote(data).startswith(data[:9])
