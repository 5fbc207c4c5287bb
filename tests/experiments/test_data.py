"""The command that builds published sets and corpora, and lists them."""

from __future__ import annotations

import dataclasses
import json

import pytest

from jaxrag.data.benchmark import Benchmark
from jaxrag.data.corpora import CORPORA, open_corpus
from jaxrag.data.sets import SETS
from jaxrag.experiments import data
from jaxrag.types import InputError
from tests.data.published_sets import CASES, write
from tests.local_http import Handler, serving

WIKI = [{"id": n, "contents": f'"Title {n}"\ntext "{n}" of a café'} for n in range(20)]


@pytest.fixture
def run(tmp_path, capsys, monkeypatch):
    """Runs the command with the workdir "cache" and the files in "source"."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")

    def call(*arguments: str) -> str:
        assert data.main(["data", *arguments, "--workdir=cache"]) == 0
        return capsys.readouterr().out

    return call


def test_builds_a_set_and_prints_its_table(run, tmp_path):
    write(CASES["nq"].files, tmp_path / "source")
    out = run("nq", "--source", "source", "--any_size")
    rows = {
        line.split("│")[1].strip(): line.split("│")[2:] for line in out.splitlines() if "│" in line
    }
    # two questions, one with four answers of which two are equal, one with one
    assert [cell.strip() for cell in rows["train"]][:5] == [
        "2",
        "79,168 (differs)",
        "2 (psgs_w100)",
        "0",
        "2.00",
    ]
    assert "train/test: 2 questions in both" in out
    assert "psgs_w100 (not built): 21,015,324 passages" in out
    assert "takes about 16 min at 22,000 passages/s" in out  # 21,015,324 / 22,000 = 955 s
    assert "CC BY-SA 3.0" in out
    again = run("--source=source", "nq", "--any_size")
    assert again.splitlines()[-8:] == out.splitlines()[-8:]


def test_contexts_are_built_with_their_set(run, tmp_path):
    write(CASES["boolq"].files, tmp_path / "source")
    out = run("boolq-contexts", "--source=source", "--any_size")
    assert "boolq-contexts" in out and "cache/corpora/boolq-contexts" in out
    assert len(Benchmark("boolq").load(tmp_path / "cache").passages) == 2


def test_builds_corpora_and_parts_of_them(run, tmp_path):
    (tmp_path / "source").mkdir()
    text = "".join(f"{json.dumps(row)}\n" for row in WIKI)
    (tmp_path / "source" / "wiki18_100w.jsonl").write_text(text)
    with pytest.raises(InputError, match="20 passages, the published corpus 21,015,324"):
        run("wiki18_100w", "--source=source")
    out = run("wiki18_100w", "--source=source", "--any_size")
    with pytest.raises(InputError, match=r"wiki18_100w has 20 passages, the published corpus 21,"):
        run("wiki18_100w", "--source=source")
    assert "built: 20 passages" in out and "licence" in out
    assert len(open_corpus("wiki18_100w", tmp_path / "cache")) == 20
    run("wiki18_100w", "--source=source", "--first=7")
    assert len(open_corpus("wiki18_100w-first7", tmp_path / "cache")) == 7
    run("wiki18_100w", "--source=source", "--others=5", "--seed=1", "--any_size")
    assert len(open_corpus("wiki18_100w-5seed1", tmp_path / "cache")) == 5


def test_a_part_with_the_gold_passages_of_a_set(run, tmp_path):
    """nq's gold passages are 9 and 7 of psgs_w100; two others are drawn."""
    write(CASES["nq"].files, tmp_path / "source")
    run("nq", "--source=source", "--any_size")
    rows = "".join(f"{n}\ttext {n}\tTitle\n" for n in range(20))
    (tmp_path / "source" / "psgs_w100.tsv").write_text(f"id\ttext\ttitle\n{rows}")
    run("psgs_w100", "--source=source", "--gold_of=nq", "--others=2", "--any_size")
    part = open_corpus("psgs_w100-nq+2", tmp_path / "cache")
    assert len(part) == 4 and {"7", "9"} <= {passage.id for passage in part}
    found = Benchmark("nq", split="train", corpus="psgs_w100-nq+2").load(tmp_path / "cache")
    assert found.gold == {"test_0": ("9",), "test_1": ("7",)}
    write(CASES["boolq"].files, tmp_path / "source")
    run("boolq", "--source=source", "--any_size")
    with pytest.raises(InputError, match="boolq: built without gold passages of psgs_w100"):
        run("psgs_w100", "--source=source", "--gold_of=nq,boolq", "--others=2", "--any_size")


class Served(Handler):
    """Serves the files of ``server.files`` by name."""

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        with self.counted(self.server.asked, name):
            found = self.server.files.get(name)
            self.send(200 if found else 404, found or b"")


def test_downloads_what_a_set_needs(run, tmp_path, monkeypatch):
    """Without --source; the gold passages only with --gold. A file that is gone is an error."""
    files = CASES["nq"].files
    lines = files["FlashRAG_datasets/nq/test.jsonl"]
    served = {
        "train.jsonl": lines,
        "dev.jsonl": lines,
        "test.jsonl": lines,
        "gold.json": files["biencoder-nq-train.json"],
    }
    with serving(Served, None, asked=[], files=served) as server:
        here = dataclasses.replace(
            SETS["nq"],
            files=f"{server.url}/{{split}}.jsonl",
            gold={"train": [f"{server.url}/gold.json"]},
        )
        monkeypatch.setattr(data, "SETS", {**SETS, "nq": here})
        out = run("nq", "--any_size")
        assert sorted(server.asked) == ["dev.jsonl", "test.jsonl", "train.jsonl"]
        assert "psgs_w100)" not in out.partition("┏")[2]
        assert run("nq", "--any_size") and len(server.asked) == 3
        out = run("nq", "--any_size", "--gold")
        assert "2 (psgs_w100)" in out and len(server.asked) == 4
        assert (tmp_path / "cache" / "downloads" / "nq" / "train.jsonl").is_file()
        (tmp_path / "cache" / "downloads" / "nq" / "dev.jsonl").unlink()
        del served["dev.jsonl"]
        with pytest.raises(InputError, match=r"dev\.jsonl answers 404"):
            run("nq")


def test_a_set_without_addresses_says_where_to_get_it(run):
    with pytest.raises(InputError, match="pubhealth cannot be downloaded by a program; get it"):
        run("pubhealth")


def test_lists_all_with_their_state(run, tmp_path):
    write(CASES["nq"].files, tmp_path / "source")
    run("nq", "--source=source", "--any_size", "--splits=test")
    out = run("--list")
    contexts = ("2wiki_contexts", "boolq-contexts", "medmcqa-contexts", "strategyqa-contexts")
    for name in (*SETS, *CORPORA, *contexts):  # papers search these contexts
        assert f"│ {name} " in out
    assert "about 431,000" in out and "nq-contexts" not in out
    words = " ".join(
        line.rpartition("│")[0].rpartition("│")[2].strip() for line in out.splitlines()
    )
    assert "built: test 2 (sizes differ), without train, dev" in " ".join(words.split())
    assert words.count("not built") == len(SETS) + len(CORPORA) + len(contexts) - 1


BAD = {
    "empty source": (["nq", "--source=source"], r"test: nq/test\.jsonl \(hf:RUC"),
    "empty source of a corpus": (["psgs_w100", "--source=source"], r"lack.*w100\.tsv\.gz \("),
    "gold of an unbuilt set": (["psgs_w100", "--gold_of=nq"], "the set nq is not built"),
}


@pytest.mark.parametrize("name", BAD)
def test_errors(run, tmp_path, name):
    (tmp_path / "source").mkdir()
    arguments, message = BAD[name]
    with pytest.raises(InputError, match=message):
        run(*arguments)


def test_a_name_of_a_set_and_a_corpus_builds_what_is_there(run, tmp_path):
    """msmarco is both: the collection alone, the queries alone, then both."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "collection.tsv").write_text("0\ta passage\n1\tanother\n")
    out = run("msmarco", "--source=source", "--any_size")
    assert "corpora/msmarco" in out and "sets/msmarco" not in out
    (source / "collection.tsv").unlink()
    (source / "queries.dev.small.tsv").write_text("7\twhat is it\n")
    (source / "qrels.dev.small.tsv").write_text("7\t0\t1\t1\n")
    out = run("msmarco", "--source=source", "--any_size")
    assert "corpora/msmarco" not in out and "sets/msmarco" in out
    assert Benchmark("msmarco", split="dev").load(tmp_path / "cache").gold == {"7": ("1",)}
