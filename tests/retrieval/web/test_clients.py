"""The clients of Brave and SearXNG against a server that speaks their formats and fails."""

import threading
import time
from email.utils import formatdate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.core import http
from jaxrag.retrieval.web.engines import BraveClient, SearxngClient, shortened
from jaxrag.retrieval.web.pages import (
    SearchRefusedError,
    WebPage,
    passage_of,
    plain,
    row_in,
    row_of,
    usable,
)
from jaxrag.types import EngineDown, InputError
from tests.retrieval.web.fake_search import KEY, brave, brave_error, searxng, serving


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(http, "_FIRST_PAUSE", 0.01)


def brave_client(server, **settings):
    options = {"key": KEY, "rate": 1000.0, "timeout": 5.0, "patience": 5.0}
    return BraveClient(server.url, **(options | settings))


def searxng_client(server, **settings):
    options = {"rate": 1000.0, "timeout": 5.0, "patience": 5.0}
    return SearxngClient(server.url, **(options | settings))


def test_searxng_asks_for_pages_until_there_are_enough() -> None:
    with serving() as server:
        client = searxng_client(server, key="proxy")
        assert [page.title for page in client.search("rome", 2)] == ["rome 0", "rome 1"]
        assert len(server.asked) == 1
        found = client.search("rome", 5)  # three a page
        assert found[4] == WebPage("https://x.org/rome/4", "rome 4", "about rome")
        assert len(server.asked) == 3
        assert len(client.search("rome", 50)) == 9  # the fourth page is empty
        assert len(server.asked) == 7
        assert client.search("nothing", 5) == []
        assert len(server.asked) == 8


@pytest.mark.parametrize(
    "given_text, tags, expected",
    [
        ("a <strong>b</strong>&#39;s  c\n", True, "a b's c"),
        ("1 < 2 &amp; 3 > 2", True, "1 < 2 & 3 > 2"),
        ("&lt;b&gt; is bold", True, "<b> is bold"),
        ("List<String> &amp; more", False, "List<String> &amp; more"),
        ("a\ud800b", False, "a?b"),
        (None, True, ""),
        (7, False, ""),
    ],
)
def test_html_becomes_plain_text(given_text, tags, expected) -> None:
    assert plain(given_text, tags=tags) == expected


def test_usable_pages_have_address_and_text_once() -> None:
    pages = [
        WebPage("", "t", "s"),
        WebPage("u", "", ""),
        WebPage("u", "t", "s"),
        WebPage("u", "t", "other"),
    ]
    assert usable([*pages, WebPage("v", "", "s"), WebPage("w", "t", "")], 2) == [
        WebPage("u", "t", "s"),
        WebPage("v", "", "s"),
    ]


@settings(max_examples=40, deadline=None)
@given(st.tuples(*[st.text()] * 3), st.tuples(*[st.text()] * 3))
def test_rows_depend_on_content(one, other) -> None:
    one, other = (WebPage(*(plain(text) for text in texts)) for texts in (one, other))
    assert (row_of(one) == row_of(other)) == (one == other)
    assert 0 <= row_of(one) < 2**63
    assert row_in(passage_of(one).id) == row_of(one)


def test_the_id_of_a_passage_is_its_address() -> None:
    passage = passage_of(WebPage("https://x.org/a#b", "T", "S"))
    assert (passage.title, passage.text) == ("T", "S")
    assert passage.id.startswith("https://x.org/a#b#passage-")
    for wrong in ("https://x.org/a", "https://x.org/a#passage-1", "p1"):
        with pytest.raises(KeyError):
            row_in(wrong)


def test_brave_queries_are_cut_to_50_words_and_400_characters() -> None:
    assert shortened(" a \n b ") == "a b"
    assert shortened("ab " * 60) == " ".join(["ab"] * 50)
    assert shortened("x" * 500) == "x" * 400
    long = shortened(" ".join(["x" * 99] * 5))  # 4 * 99 + 3 = 399
    assert long == " ".join(["x" * 99] * 4)
    with serving() as server:
        brave_client(server).search("ab " * 60, 1)
        assert server.asked == [" ".join(["ab"] * 50)]


FAULTS = {
    "lost": lambda handler: handler.drop() or True,
    "500": lambda handler: handler.send(500, b"oops"),
    "503": lambda handler: handler.send(503, {"detail": "starting"}),
    "429": lambda handler: handler.send(429, {}, Retry_After="0.02"),
    "a date": lambda handler: handler.send(429, {}, Retry_After=formatdate(time.time() - 9)),
    "brave's 429": lambda handler: handler.send(
        429,
        brave_error(429, "RATE_LIMITED", "Request rate limit exceeded for plan"),
        X_RateLimit_Remaining="0, 1000",
        X_RateLimit_Reset="0.02, 1419704",
    ),
    "bad headers": lambda handler: handler.send(
        429, {}, Retry_After="soon", X_RateLimit_Reset="x, y"
    ),
    "html": lambda handler: handler.send(200, b"<html>a proxy's page</html>"),
    "cut short": lambda handler: handler.send(200, b'{"query": {}, "web": {"resu'),
    "deep": lambda handler: handler.send(200, b"[" * 100_000),
    "no gzip": lambda handler: handler.send(200, b"{}", Content_Encoding="gzip"),
    "a list": lambda handler: handler.send(200, [1, 2]),
    "no results": lambda handler: handler.send(200, {"type": "search"}),
    "results of another type": lambda handler: handler.send(200, {"query": {}, "web": [1]}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_transient_failures_are_retried(fault) -> None:
    with serving(lambda handler, number, asked: number < 3 and FAULTS[fault](handler)) as server:
        assert len(brave_client(server).search("rome", 3)) == 3
        assert len(server.asked) == 4


def test_redirects_are_not_followed() -> None:
    def away(handler, number, asked):
        return handler.send(302, b"", Location="file:///etc/hostname")

    with serving(away) as server, pytest.raises(SearchRefusedError, match=r"refuses \(302\)"):
        brave_client(server).search("rome", 3)


def test_an_exhausted_plan_is_not_retried() -> None:
    """Of second and month, the month has nothing left, and begins anew in 16 days."""

    def spent(handler, number, asked):
        headers = {"X_RateLimit_Remaining": "1, 0", "X_RateLimit_Reset": "1, 1419704"}
        return handler.send(429, {}, Retry_After="1", **headers)

    with serving(spent) as server:
        with pytest.raises(EngineDown, match="asks to wait 1,419,704 s"):
            brave_client(server).search("rome", 3)
        assert len(server.asked) == 1


@pytest.mark.parametrize(
    "status, body",
    [
        (401, b""),
        (402, brave_error(402, "PAYMENT_REQUIRED", "")),
        (404, b"<html>"),
        (302, b""),
        (422, brave_error(422, "SUBSCRIPTION_TOKEN_INVALID", "The token is invalid")),
        (422, {"error": {"meta": {"pad": "." * 999, "loc": ["header", "x-subscription-token"]}}}),
    ],
)
def test_refusals_of_any_query_stop_the_run_at_once(status, body) -> None:
    with serving(lambda handler, number, asked: handler.send(status, body)) as server:
        with pytest.raises(SearchRefusedError, match=rf"refuses \({status}\).*key") as caught:
            brave_client(server).search("rome", 3)
        assert len(server.asked) == 1
    assert isinstance(caught.value, EngineDown) and isinstance(caught.value, InputError)


@pytest.mark.parametrize("status", [400, 422])
def test_a_refused_query_is_an_error_of_that_query(status) -> None:
    body = brave_error(status, "VALIDATION", "Unable to validate request parameter(s)")
    with serving(lambda handler, number, asked: handler.send(status, body)) as server:
        with pytest.raises(InputError, match=rf"refuses \({status}\).*VALIDATION.*this query") as e:
            brave_client(server).search("rome", 3)
        assert len(server.asked) == 1
    assert not isinstance(e.value, EngineDown)


def test_results_without_required_fields_are_dropped() -> None:
    answer = brave("rome", 4)
    results = answer["web"]["results"]
    del results[0]["url"], results[1]["title"], results[1]["description"]
    results[2]["title"] = None
    results += [results[3], "text", None]
    with serving(lambda handler, number, asked: handler.send(200, answer)) as server:
        found = brave_client(server).search("rome", 20)
    assert [(page.url[-1], page.title) for page in found] == [("2", ""), ("3", "rome 3")]


def test_searxng_without_json_names_the_setting() -> None:
    with (
        serving(lambda handler, number, asked: handler.send(403, b"<h1>Forbidden</h1>")) as server,
        pytest.raises(SearchRefusedError, match=r"\(403\).*settings.yml.*formats: \[html, json\]"),
    ):
        searxng_client(server).search("rome", 3)


def test_searxng_without_responding_engines_is_an_error() -> None:
    silent = searxng("nothing", 1) | {"unresponsive_engines": [["x", "Suspended: CAPTCHA"]]}
    with serving(lambda handler, number, asked: handler.send(200, silent)) as server:
        with pytest.raises(EngineDown, match="Suspended: CAPTCHA"):
            searxng_client(server, patience=0.5).search("rome", 3)
        assert len(server.asked) > 1
    some = searxng("rome", 1) | {"unresponsive_engines": [["x", "timeout"]]}
    with serving(lambda handler, number, asked: handler.send(200, some)) as server:
        assert len(searxng_client(server).search("rome", 3)) == 3


def test_the_rate_limits_all_threads_together() -> None:
    with serving() as server:
        client = brave_client(server, rate=50.0)
        threads = [threading.Thread(target=client.search, args=(f"q{i}", 1)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        times = sorted(server.times)
    assert times[-1] - times[0] >= 7 / 50 - 0.02  # seven spaces of 20 ms; arrivals jitter a little


def test_a_requested_pause_applies_to_all_threads() -> None:
    def limited(handler, number, asked):
        return number == 0 and handler.send(429, {}, Retry_After="0.3")

    with serving(limited) as server:
        client = brave_client(server)
        first = threading.Thread(target=client.search, args=("one", 1))
        first.start()
        while not server.asked:
            time.sleep(0.001)
        time.sleep(0.1)  # by now the answer is there
        client.search("two", 1)
        first.join()
        assert min(server.times[1:]) - server.times[0] >= 0.29
