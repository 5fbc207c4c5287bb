"""Web search as a retriever: what is asked, what is kept, and what is answered without the web."""

import datetime
import json
import sqlite3
import time

import pytest

from jaxrag.core import http
from jaxrag.core.hashing import canonical
from jaxrag.core.store import Store
from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.retrieval.web import cache as web_cache
from jaxrag.retrieval.web.cache import WebCache
from jaxrag.retrieval.web.index import Web
from jaxrag.retrieval.web.pages import SearchRefusedError, WebPage, row_of
from jaxrag.types import EngineDown, InputError, Passage, Ranking
from tests.retrieval.web.fake_search import KEY, brave_error, serving

NONE = Ranking((), ())


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(http, "_FIRST_PAUSE", 0.01)
    monkeypatch.setenv("BRAVE_API_KEY", KEY)


def opened(cache, server, **settings):
    options = {"url": server.url, "rate": 1000.0, "patience": 5.0, "count": 4}
    return Web(**(options | settings)).open(None, cache)


def test_web_index_is_a_text_retriever(tmp_path) -> None:
    with serving() as server:
        web = opened(tmp_path, server)
        assert isinstance(web, TextRetriever) and not len(web.passages)
        rome, nothing, oslo, again = web.search_texts(["rome", "nothing", "oslo", " rome "], 3)
    assert again == rome and nothing == NONE
    assert rome.scores == oslo.scores == (1, 1 / 2, 1 / 3)
    rows = [
        row_of(WebPage(f"https://x.org/rome/{i}", f"rome {i}", "about rome & more")) for i in "012"
    ]
    assert list(rome.ids) == rows
    first, *_ = passages = web.passages.get(rome.ids)
    assert first == Passage(
        f"https://x.org/rome/0#passage-{rome.ids[0]:016x}", "rome 0", "about rome & more"
    )
    assert web.passages.find([p.id for p in passages[::-1]]) == passages[::-1]
    assert len(web.passages) == 8  # four of each that found some
    assert sorted(server.asked) == ["nothing", "oslo", "rome"]


def test_stored_searches_are_reused_and_available_offline(tmp_path) -> None:
    with serving() as server:
        web = opened(tmp_path, server)
        assert server.asked == []  # opening asks nobody
        found = web.search_texts(["rome", "nothing"], 4)
        assert web.search_texts(["rome", "nothing"], 2)[0].ids == found[0].ids[:2]
        again = opened(tmp_path, server)
        assert again.search_texts(["nothing", "rome"], 4) == found[::-1]
        assert len(server.asked) == 2
    alone = opened(tmp_path, server, offline=True)
    assert alone.identity == web.identity
    assert alone.search_texts(["rome", "nothing", " "], 4) == [*found, NONE]
    assert alone.passages.get(found[0].ids) == web.passages.get(found[0].ids)
    with pytest.raises(SearchRefusedError, match=r"2 of its queries are not in .*'oslo', 'paris'"):
        alone.search_texts(["rome", "oslo", "paris", "oslo"], 4)


def test_a_missing_key_and_offline_without_searches_are_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("BRAVE_API_KEY")
    with pytest.raises(InputError, match=r"BRAVE_API_KEY holds no key for Brave.*offline=True"):
        Web().open(None, tmp_path)
    with pytest.raises(InputError, match=r"holds no searches with these settings.*offline=False"):
        Web(offline=True).open(None, tmp_path)
    monkeypatch.setenv("MY_KEY", "two words")
    with pytest.raises(InputError, match="value of MY_KEY is not a key") as caught:
        Web(key_variable="MY_KEY").open(None, tmp_path)
    assert "two words" not in str(caught.value)


@pytest.mark.parametrize("k", [0, 5])
def test_k_above_count_is_refused(tmp_path, k) -> None:
    with serving() as server:
        with pytest.raises(InputError, match=rf"k is {k}, but a search requests 4"):
            opened(tmp_path, server).search_texts(["rome"], k)
        assert server.asked == []


def test_searxng(tmp_path) -> None:
    with serving() as server:
        web = opened(tmp_path, server, engine="searxng")
        (found,) = web.search_texts(["rome"], 4)
        assert [p.title for p in web.passages.get(found.ids)] == [f"rome {i}" for i in range(4)]
    assert (tmp_path / "web" / "searxng.sqlite").is_file()


def test_identity_depends_on_settings_but_not_on_the_key(tmp_path) -> None:
    with serving() as server:
        one = opened(tmp_path, server)
        same = opened(tmp_path, server, rate=7.0, concurrency=1, patience=1.0, timeout=1.0)
        other = opened(tmp_path, server, count=5)
        one.search_texts(["rome"], 1)
    assert one.identity == same.identity != other.identity
    told = json.loads(one.identity)
    assert told["web"] | {"numerics": ""} == {
        "engine": "brave",
        "url": server.url,
        "count": 4,
        "numerics": "",
    }
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or KEY.encode() not in path.read_bytes()


def test_concurrent_requests_are_limited(tmp_path) -> None:
    def slow(handler, number, asked):
        time.sleep(0.02)

    with serving(slow) as server:
        web = opened(tmp_path, server, concurrency=3)
        assert len(set(web.search_texts([f"q{i}" for i in range(12)], 1))) == 12
        assert 1 < server.most <= 3


def test_a_crash_keeps_returned_searches(tmp_path) -> None:
    def dies(handler, number, asked):
        return number >= 5 and handler.send(503, b"")

    queries = [f"q{i}" for i in range(9)]
    with serving(dies) as server:
        web = opened(tmp_path, server, concurrency=1, patience=0.05)
        with pytest.raises(EngineDown, match="same command again"):
            web.search_texts(queries, 2)
        answered = server.asked[:5]
        server.fault = lambda *_: False
        assert len(web.search_texts(queries, 2)) == 9
    assert sorted(server.asked[-4:] + answered) == queries  # each answered once


def test_an_interrupt_keeps_returned_searches(tmp_path, monkeypatch) -> None:
    keep, kept = WebCache.keep, []

    def interrupted(self, source, edition, query, pages):
        kept.append(query)
        if len(kept) == 3:
            raise KeyboardInterrupt
        return keep(self, source, edition, query, pages)

    with serving() as server:
        web = opened(tmp_path, server)
        monkeypatch.setattr(WebCache, "keep", interrupted)
        with pytest.raises(KeyboardInterrupt):
            web.search_texts([f"q{i}" for i in range(6)], 2)
        monkeypatch.undo()
        alone = opened(tmp_path, server, offline=True)
        kept.pop(2)
        assert len(alone.search_texts(kept, 2)) == len(kept) >= 2


def test_a_refused_key_stops_at_once(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("BRAVE_API_KEY", "wrong")
    with serving() as server:
        web = opened(tmp_path, server, concurrency=2)
        with pytest.raises(SearchRefusedError, match=r"\(422\).*does not accept the key"):
            web.search_texts([f"q{i}" for i in range(50)], 2)
        assert len(server.asked) < 10  # what was under way, and no more


def test_a_refused_query_is_sent_once_and_others_succeed(tmp_path) -> None:
    def refuses(handler, number, asked):
        return asked["q"] == "bad" and handler.send(422, brave_error(422, "VALIDATION", "no"))

    with serving(refuses) as server:
        web = opened(tmp_path, server)
        for _ in range(3):  # as a scheduler does that looks for the request at fault
            with pytest.raises(InputError, match="refuses this query"):
                web.search_texts(["a", "bad", "c"], 2)
        assert len(web.search_texts(["a", "c"], 2)) == 2
        assert sorted(server.asked) == ["a", "bad", "c"]


def test_the_newest_edition_is_used(tmp_path, monkeypatch) -> None:
    """Earlier versions began further ones; a new file begins one."""
    with serving() as server:
        first = opened(tmp_path, server)
        assert opened(tmp_path, server).identity == first.identity
        cache, source = WebCache(tmp_path / "web" / "brave.sqlite"), first._settings.source
        cache._put("web-edition", source, {"1": {"began": "2026-11-08T00:00:00+00:00"}})
        second = opened(tmp_path, server, offline=True)
        assert json.loads(second.identity)["edition"] == "2026-11-08T00:00:00+00:00"
        (tmp_path / "web" / "brave.sqlite").unlink()
        monkeypatch.setattr(web_cache, "now", lambda: datetime.datetime(2030, 1, 1))
        assert json.loads(opened(tmp_path, server).identity)["edition"] == "2030-01-01T00:00:00"


def test_the_first_process_to_store_a_search_wins(tmp_path) -> None:
    one, two = (WebCache(tmp_path / "web.sqlite") for _ in range(2))
    edition = one.edition("{}", offline=False)
    assert two.edition("{}", offline=False) == edition
    pages = [WebPage("u", "t", "s")], [WebPage("u", "t", "other")]
    kept = one.keep("{}", edition, "q", pages[0])
    assert two.keep("{}", edition, "q", pages[1]) == kept
    assert one.pages(kept) == pages[0]
    stored = one._get("web-search", canonical(["{}", edition]), "q")
    assert stored is not None and stored["asked"].startswith("20")
    assert stored["asked"].endswith("+00:00")


def test_passages_of_another_file(tmp_path) -> None:
    with serving() as server:
        web = opened(tmp_path / "a", server)
        (found,) = web.search_texts(["rome"], 2)
        other = opened(tmp_path / "b", server)
    name = web.passages.get(found.ids)[0].id
    with pytest.raises(SearchRefusedError, match=r"has no passage .* give the run a new store"):
        other.passages.get(found.ids)
    for wrong in (name, "p1", name.replace("rome", "oslo")):
        with pytest.raises(KeyError):
            (web if "oslo" in wrong else other).passages.find([wrong])


def test_damaged_files(tmp_path) -> None:
    file = tmp_path / "web" / "brave.sqlite"
    file.parent.mkdir()
    file.write_bytes(b"not SQLite" * 1000)
    with serving() as server:
        with pytest.raises(InputError, match="not a usable store"):
            opened(tmp_path, server)
        assert "not a usable store" in Web(url=server.url).status(None, tmp_path).state
        file.unlink()
        web = opened(tmp_path, server)
        (found,) = web.search_texts(["rome"], 2)
        connection = sqlite3.connect(file)
        connection.execute("UPDATE entries SET value = X'00' WHERE length(value) > 40")
        connection.commit()
        connection.close()
        with pytest.raises(InputError, match=r"damaged.*store verify"):
            web.passages.get(found.ids)


def test_a_full_disk_stops_the_run_without_repeating_requests(tmp_path, monkeypatch) -> None:
    put = Store.put

    def full(self, operation, identity, values):
        raise InputError("The disk is full")

    with serving() as server:
        web = opened(tmp_path, server, concurrency=1)
        monkeypatch.setattr(Store, "put", full)
        with pytest.raises(SearchRefusedError, match="The disk is full"):
            web.search_texts(["a", "b", "c"], 2)
        monkeypatch.setattr(Store, "put", put)
        assert len(server.asked) <= 3
        assert len(web.search_texts(["a", "b", "c"], 2)) == 3


def test_the_plan_sends_no_request(tmp_path) -> None:
    with serving() as server:
        settings = Web(url=server.url)
        assert not settings.gives_vectors
        assert (
            settings.name == "Brave"
            and "no search is stored" in settings.status(None, tmp_path).state
        )
        assert not (tmp_path / "web").exists()
        opened(tmp_path, server).search_texts(["rome", "nothing"], 1)
        told = settings.status(None, tmp_path).state
        assert "2 searches, 4 passages stored" in told
        assert len(server.asked) == 2
