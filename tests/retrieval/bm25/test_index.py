import dataclasses
import importlib.metadata
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("bm25s", reason="needs bm25s: pip install 'jaxrag[bm25]'")

from jaxrag.retrieval.bm25 import building
from jaxrag.retrieval.bm25 import index as bm25
from jaxrag.retrieval.bm25.index import Bm25, Bm25Index
from jaxrag.retrieval.bm25.words import split_words
from jaxrag.types import InputError, Passage, Ranking
from tests.retrieval.fakes import FakePassages

PLAIN = Bm25(k1=1.0, b=0.0, stopwords="none", stemmer="none")
TEXTS = ["the cat and a cat", "a dog saw the cat", "dogs run", "bird bird bird fish", "", "dog cat"]


def titled(*pairs: tuple[str, str]) -> FakePassages:
    passages = FakePassages(len(pairs))
    passages.rows = [Passage(str(i), *pair) for i, pair in enumerate(pairs)]
    return passages


def test_the_bytes_of_the_postings_are_known_before_they_are_made(tmp_path) -> None:
    """the cat and | dog saw the cat | dogs run | bird fish | | dog cat: 13 words of 8 bytes."""
    passages = titled(*(("", text) for text in TEXTS))
    found = PLAIN.footprint(passages)
    assert found.disk == 13 * 8 and "by the words of 6 passages" in found.note
    assert found.memory == 6 * 4 * (os.cpu_count() or 1)  # a score a passage for each thread
    index = Bm25Index.open(tmp_path, passages, settings=PLAIN)
    assert sum(index.searcher.scores[name].nbytes for name in ("data", "indices")) == found.disk
    # of 1,500 passages every second is looked at
    some = titled(*(("", "dog cat" if row % 2 == 0 else "dog") for row in range(1500)))
    assert PLAIN.footprint(some).disk == 1500 * 2 * 8


def reference(texts: list[str], query: str, s: Bm25) -> np.ndarray:
    """Every passage's score in float64, word by word, for texts of plain words."""
    words = [text.split() for text in texts]
    count, mean = len(texts), sum(map(len, words)) / len(texts)
    scores = np.zeros(count)
    for word in query.split():
        f = sum(word in text for text in words)
        if not f:
            continue
        idf = math.log(1 + (count - f + 0.5) / (f + 0.5))
        for row, text in enumerate(words):
            tf = text.count(word)
            part = tf / (tf + s.k1 * (1 - s.b + s.b * len(text) / mean)) if tf else 0.0
            scores[row] += idf * part
    return scores


WORD = st.sampled_from(["ant", "bee", "cow", "dog", "elk"])
LINE = st.lists(WORD, max_size=9).map(" ".join)


@settings(max_examples=20, deadline=None)
@given(
    texts=st.lists(LINE, min_size=1, max_size=12).filter(any),
    query=LINE,
    k1=st.sampled_from([0.0, 0.9, 2.5]),
    b=st.sampled_from([0.0, 0.4, 1.0]),
)
def test_scores_are_those_of_the_formula(tmp_path_factory, texts, query, k1, b) -> None:
    chosen = Bm25(k1, b, stopwords="none", stemmer="none")
    passages = FakePassages(len(texts), texts)
    index = Bm25Index.open(tmp_path_factory.mktemp("bm25"), passages, settings=chosen)
    (ranking,) = index.search_texts([query], len(texts) + 3)
    want = reference(texts, query, chosen)
    shared = {row for row, text in enumerate(texts) if {*text.split()} & {*query.split()}}
    assert {*ranking.ids} == shared
    np.testing.assert_allclose(ranking.scores, want[list(ranking.ids)], rtol=1e-5, atol=1e-6)
    pairs = list(zip((-score for score in ranking.scores), ranking.ids, strict=True))
    assert pairs == sorted(pairs)


def test_words_of_texts() -> None:
    texts = ["The cats' running: X-15, naïve_2", "  ", "NO"]
    # "the" and "no" are Lucene's stop words; one letter is no word.
    assert split_words(texts, Bm25(stemmer="none")) == [
        ["cats", "running", "15", "naïve_2"], [], []
    ]  # fmt: skip
    assert split_words(texts, Bm25())[0] == ["cat", "run", "15", "naïve_2"]
    assert split_words(["Katzen die"], Bm25(stopwords="german", stemmer="german")) == [["katz"]]
    assert split_words(["the no"], PLAIN) == [["the", "no"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\u5229\u9a6c 2024\u5e74", ["\u5229", "\u9a6c", "\u5229\u9a6c", "2024", "\u5e74"]),
        ("\u30d5\u30fb\u30bf", ["\u30d5", "\u30bf"]),  # a dot between kana
        ("\uac00\ubc29 AB", ["\uac00", "\ubc29", "\uac00\ubc29", "ab"]),
        ("\u0e01\u0e23\u0e38\u0e07", ["\u0e01", "\u0e23\u0e38", "\u0e07",
                                      "\u0e01\u0e23\u0e38", "\u0e23\u0e38\u0e07"]),
        ("\u0928\u092e\u0938\u094d\u0924\u0947", ["\u0928\u092e\u0938\u094d\u0924\u0947"]),
        ("\u0130zmir", ["izmir"]),  # two characters in lower case
        ("\uff2c\uff49\uff4d\uff41 \uff98\uff8f", ["lima", "\u30ea", "\u30de", "\u30ea\u30de"]),
        ("\ufb01n Li\u00adma", ["fin", "lima"]),
        ("\u0628\u0650\u064a \u05dc\u05b4\u05d9", ["\u0628\u064a", "\u05dc\u05d9"]),  # vowel signs
        ("\ua26f\ua278", ["\ua26f", "\ua278", "\ua26f\ua278"]),  # Yi
        ("Sa\u0303o Tome\u0301", ["s\u00e3o", "tom\u00e9"]),
        ("\U00020bb7\u91ce", ["\U00020bb7", "\u91ce", "\U00020bb7\u91ce"]),
    ],
)  # fmt: skip
def test_words_of_other_scripts(text: str, words: list[str]) -> None:
    assert split_words(["plain", text, "one two"], PLAIN) == [["plain"], words, ["one", "two"]]


def test_titles_are_indexed_and_words_stemmed(tmp_path) -> None:
    passages = titled(("Zebra", "has stripes"), ("", "stripes of zebras"), ("Horse", "runs"))
    whole = Bm25Index.open(tmp_path / "a", passages).search_texts(["zebra"], 3)[0]
    assert set(whole.ids) == {0, 1}
    exact = Bm25Index.open(tmp_path / "c", passages, settings=Bm25(stemmer="none"))
    assert exact.search_texts(["zebra"], 3)[0].ids == (0,)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (directory / "bm25").iterdir()}


def test_identity_depends_on_corpus_and_settings(tmp_path) -> None:
    passages = FakePassages(len(TEXTS), TEXTS)
    changes = [{}, {"k1": 1.2}, {"b": 0.5}, {"stemmer": "none"}, {"stopwords": "none"}]
    found = {
        Bm25Index.open(tmp_path / str(i), passages, settings=Bm25(**change)).identity
        for i, change in enumerate(changes)
    }
    found.add(Bm25Index.open(tmp_path / "o", FakePassages(len(TEXTS), TEXTS, "other")).identity)
    assert len(found) == 6
    told = json.loads(found.pop())["bm25"]
    assert told["passages"]["count"] == 6 and told["settings"]["rules"] == bm25.RULES


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"stopwords": "klingon"}, "stopwords is 'klingon': .*[Ff]rench"),
        ({"stemmer": "klingon"}, "stemmer is 'klingon'; allowed are none, .*porter"),
    ],
)
def test_invalid_settings_are_refused(tmp_path, changes, said) -> None:
    with pytest.raises(InputError, match=said):
        Bm25Index.open(tmp_path, FakePassages(3), settings=Bm25(**changes))


@pytest.mark.parametrize("package, chosen", [("bm25s", PLAIN), ("PyStemmer", Bm25())])
def test_a_missing_package_is_named(tmp_path, monkeypatch, package, chosen) -> None:
    def version(name: str) -> str:
        if name == package:
            raise importlib.metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(importlib.metadata, "version", version)
    with pytest.raises(InputError, match=rf"{package}: pip install 'jaxrag\[bm25\]'"):
        Bm25Index.open(tmp_path, FakePassages(3), settings=chosen)


def test_corpora_without_words_and_k_below_one_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="the corpus is empty"):
        Bm25Index.open(tmp_path / "a", FakePassages(0))
    with pytest.raises(InputError, match="none of the 2 passages has a word that counts"):
        Bm25Index.open(tmp_path / "b", FakePassages(2, ["the", "? !"]))
    with pytest.raises(InputError, match="k is 0; it must be at least 1"):
        Bm25Index.open(tmp_path / "c", FakePassages(2)).search_texts(["text"], 0)


def library_files(directory: Path, passages: FakePassages, s: Bm25) -> dict[str, bytes]:
    """The files that bm25s writes for the same words."""
    import bm25s

    vocabulary: dict[str, int] = {}
    numbers = [
        [vocabulary.setdefault(word, len(vocabulary)) for word in words]
        for words in split_words([f"{p.title} {p.text}" for p in passages.rows], s)
    ]
    searcher = bm25s.BM25(k1=s.k1, b=s.b, method="lucene", backend="numpy")
    searcher.index((numbers, vocabulary), create_empty_token=False, show_progress=False)
    searcher.save(directory, show_progress=False)
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def drawn(count: int) -> FakePassages:
    """Passages of 0 to 40 of 300 words, few of them frequent."""
    rng = np.random.default_rng(0)
    draw = (rng.zipf(1.3, rng.integers(0, 41)) % 300 for _ in range(count))
    return FakePassages(count, [" ".join(f"w{word}" for word in words) for words in draw])


@pytest.mark.parametrize("sizes", [(4096, 1 << 22, 1 << 27), (7, 50, 60), (1, 1, 1)])
def test_files_are_those_of_the_library(tmp_path, monkeypatch, sizes) -> None:
    """To the bit, whatever is held in memory at a time: passages, words, postings."""
    for name, size in zip(("_CHUNK", "_WORDS", "_POSTINGS"), sizes, strict=True):
        monkeypatch.setattr(building, name, size)
    passages, chosen = drawn(60), dataclasses.replace(PLAIN, k1=0.9, b=0.4)
    Bm25Index.open(tmp_path / "ours", passages, settings=chosen)
    found = files(tmp_path / "ours")
    del found["manifest.json"]
    assert found == library_files(tmp_path / "theirs", passages, chosen)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=40),
    st.integers(1, 45),
    st.sampled_from([1, 2, 3, 128]),
)
def test_best_scores(scores, k, block) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bm25, "_BLOCK", block)
        found = bm25._best(np.array(scores, np.float32), k)
    rows = sorted((row for row, score in enumerate(scores) if score), key=lambda r: (-scores[r], r))
    assert found == Ranking(tuple(rows[:k]), tuple(float(scores[row]) for row in rows[:k]))


def test_any_number_of_threads_gives_the_same(tmp_path, monkeypatch) -> None:
    index = Bm25Index.open(tmp_path, drawn(50), settings=PLAIN)
    queries = [f"w{i} w{2 * i}" for i in range(11)]
    found = []
    for cores in (1, 3, 64):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        found.append(index.search_texts(queries, 5))
    assert found[0] == found[1] == found[2]
