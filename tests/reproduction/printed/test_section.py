"""Printed numbers beside runs of a report, with averages, sizes and differences."""

import functools
import html
import re
from pathlib import Path

import numpy as np
import pytest

from jaxrag.evaluation import metrics
from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.summary import summarise_read
from jaxrag.reproduction.printed.section import papers_section
from tests.evaluation import fabricate

QWEN, LLAMA = "Qwen2.5-7B-Instruct", "Meta-Llama-3-8B"
paper_run = functools.partial(fabricate.run, model=QWEN)
DTR_SETS = ("hotpotqa", "nq", "triviaqa", "squad", "webq")


def section(*paths: Path) -> str:
    runs = [read_run(path) for path in paths]
    return papers_section(runs, summarise_read(runs))


def table(found: str, title: str) -> list[list[str]]:
    """The texts of a table's cells, line by line; parts of a cell are joined by "|"."""
    (text,) = (one for one in found.split("<h3>") if one.startswith(title))
    lines = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", line) for line in text.split("</tr>")]
    plain = [
        [html.unescape(re.sub(r"(<[^>]+>)+", "|", cell)).strip("|") for cell in line]
        for line in lines
    ]
    return [line for line in plain if line]


def test_f1_of_pairs_on_triviaqa_is_the_mean_over_aliases(tmp_path: Path) -> None:
    path = paper_run(tmp_path / "run", "pairs", n=60, dataset="triviaqa")
    scores = metrics.score(read_run(path).records)
    ours, best = (100 * np.nanmean(scores[name]) for name in ("f1_mean_over_aliases", "f1"))
    groups, heads, line = table(section(path), "PAIRS, Table 2: ")
    assert groups[3] == "F1, percent" and heads[3] == "triviaqa|mean over aliases"
    value, interval, printed = line[3].split("|")
    assert value == f"{ours:.1f}" != f"{best:.1f}" and interval.startswith("[")
    assert printed == f"printed 32.92 ({ours - 32.92:+.1f})"
    assert line[1] == "60|printed 11,313"
    assert line[0].startswith("pairs|beside PAIRS. Differs: retriever bge-large-en-v1.5 (ours: all")


def test_a_metric_that_is_the_tables_own_has_no_explanation(tmp_path: Path) -> None:
    path = paper_run(tmp_path / "run", "dtr", n=30, dataset="triviaqa")
    assert table(section(path), "DTR, Table 2: ")[1] == ["", *["triviaqa"] * 4]


def test_averages_of_runs_on_all_data_sets_of_a_row(tmp_path: Path) -> None:
    paths = [
        paper_run(tmp_path / name, "standard_rag", n=40, dataset=name, seed=i)
        for i, name in enumerate(DTR_SETS)
    ]
    means = [100 * np.mean(metrics.score(read_run(p).records)["exact_match"]) for p in paths]
    _, heads, line = table(section(*paths), "DTR, Table 2: ")
    assert heads[1:12] == [*DTR_SETS, *DTR_SETS, "average"]
    average = line[11].split("|")
    assert average[0] == f"{np.mean(means):.1f}" and average[2].startswith("printed 35.81 (")
    # without one of the sets there is none
    assert "average" not in table(section(*paths[1:]), "DTR, Table 2: ")[1]


def test_difference_columns_compare_two_runs(tmp_path: Path) -> None:
    names = ("rag_sidr_ms", "r3")
    paths = [
        paper_run(tmp_path / name, name, n=50, dataset="triviaqa", seed=i, model=LLAMA)
        for i, name in enumerate(names)
    ]
    base, ours = (metrics.score(read_run(path).records)["contains"] for path in paths)
    groups, heads, first, second = table(section(*paths), "R3, Table 1: ")
    assert groups == ["", "questions", "accuracy, percent", "accuracy delta vs baseline, points"]
    assert heads[2] == "triviaqa|the answer contains a gold one"
    assert first[0].startswith("rag_sidr_ms|beside Llama3-8B + SiDR") and first[3] == ""
    delta = 100 * np.mean(ours - base)
    value, minus, _, printed = second[3].split("|")
    assert value == f"{delta:.1f}" and minus.startswith("minus Llama3-8B + SiDR")
    assert printed.startswith("printed ")
    # one run has no difference
    assert len(table(section(paths[1]), "R3, Table 1: ")[0]) == 3


def test_nothing_is_printed_for_other_data_or_models(tmp_path: Path) -> None:
    assert section(paper_run(tmp_path / "a", "dtr", n=12)) == ""
    assert section(paper_run(tmp_path / "b", "dtr", n=12, dataset="nq", model="SmolLM2")) == ""


@pytest.mark.parametrize("order", [1, -1])
def test_two_runs_of_a_method_stand_below_each_other(tmp_path: Path, order: int) -> None:
    paths = [
        paper_run(tmp_path / name, "dtr", n=20, dataset="nq", seed=i) for i, name in enumerate("ab")
    ][::order]
    lines = table(section(*paths), "DTR, Table 2: ")[2:]
    assert [line[0].split("|")[0] for line in lines] == [f"dtr ({path.name})" for path in paths]
