"""`experiments.explain` on a question, on passages, and on a run."""

from pathlib import Path
from typing import Any

import pytest

from jaxrag.evaluation.records import read_run
from jaxrag.evaluation.report import explanations
from jaxrag.experiments import explain, report
from jaxrag.runs.config_file import load
from jaxrag.runs.run import execute
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run
from tests.retrieval.sidr import small_sidr

CONFIG = """
from jaxrag.methods.r3 import r3
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.reader import Reader
from jaxrag.runs.run import Run
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.data.folder import (Folder)
from jaxrag.engines.local.engine import Local
from jaxrag.retrieval.sidr.settings import Sidr

HERE = {here!r}


def get_config(kind="sidr"):
    reader = Reader(prompts=HERE + "/prompts.toml", answer_tokens=4)
    sidr = Sidr({sidr!r}, top=6, query_length=16, passage_length=24)
    return Run(
        method=r3.Config(candidates=OnePath(n=3), select=Top(k=2), reader=reader),
        data=Folder(HERE + "/data"),
        model=Local(HERE + "/model"),
        index=sidr if kind == "sidr" else Exact(BiEncoder(HERE + "/encoder", max_length=32)),
        cache=HERE + "/cache",
    )
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: Any) -> str:
    here = tmp_path_factory.mktemp("explain")
    write_small_run(here, questions=6)
    file = here / "r3.py"
    file.write_text(CONFIG.format(here=str(here), sidr=str(small_sidr.write(here))))
    return str(file)


def call(config: str, *arguments: str) -> int:
    return explain.main(["explain", f"--config={config}", *arguments])


def test_a_question(config: str, capsys: Any) -> None:
    assert call(config, "--question=is paris in france", "--k=2", "--tokens=3") == 0
    text = capsys.readouterr().out
    assert text.count("is paris in france") == 2 and text.count("comes from these 3 tokens") == 2
    index: Any = explain._index(load(config))
    best = index.search_texts(["is paris in france"], 2)[0]
    ids = [passage.id for passage in index.passages.get(list(best.ids))]
    assert text.index(f"({ids[0]})") < text.index(f"({ids[1]})")
    assert f"Score {best.scores[0]:,.1f}" in text


def test_passages_by_name(config: str, capsys: Any) -> None:
    assert call(config, "--question=rome", "--passages=p7", "--passages=p3") == 0
    text = capsys.readouterr().out
    assert text.index("(p7)") < text.index("(p3)") and text.count("Score ") == 2


def test_explanations_of_a_run_and_their_report(config: str, tmp_path: Path, capsys: Any) -> None:
    run = str(tmp_path / "run")
    assert execute(load(config), run)["errors"] == 0
    assert call(config, f"--workdir={run}", "--questions=2", "--tokens=3") == 0
    assert f"wrote {run}/explanations.jsonl" in capsys.readouterr().out
    kept = explanations.read(Path(run))
    records = read_run(run).records[:2]
    assert [one["question_id"] for one in kept] == [r["question_id"] for r in records]
    for one, record in zip(kept, records, strict=True):
        assert one["passage"]["id"] == record["trace"]["selected"]["ids"][0]
        assert one["score"] == pytest.approx(record["trace"]["selected"]["scores"][0], rel=1e-6)
        assert 0 < len(one["tokens"]) <= 3 and one["others"] >= 0
        assert sum(term["share"] for term in one["tokens"]) <= 1 + 1e-9
    assert report.main(["report", f"--runs={run}", f"--out={tmp_path}/report.html"]) == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("share of the score, %") == 2
    # the same run is not explained with another network
    with pytest.raises(InputError, match=r"(?s)searched another index:.*retriever\.sidr\.m: 20"):
        call(config, f"--workdir={run}", "--config.index.m=9")
    (tmp_path / "run" / "answers.jsonl").write_text("")
    (tmp_path / "run" / "metrics.json").unlink()
    with pytest.raises(InputError, match="no answered question for which passages were read"):
        call(config, f"--workdir={run}")


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((), "one of the two"),
        (("--question=a", "--workdir=b"), "one of the two"),
        (("--question=a", "--passages=nowhere"), "no passage 'nowhere'"),
        (("--question=a", "--k=0"), "k"),
        (("--question=a", "--k=21"), "21 passages are requested, but late search reranks 20"),
        (("--workdir=nowhere",), "nowhere is not a run directory"),
    ],
)
def test_invalid_arguments_are_refused(config: str, arguments: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        call(config, *arguments)


def test_another_index_is_refused(config: str) -> None:
    with pytest.raises(InputError, match=r"config.index is encoder, exact, no index of SiDR"):
        call(f"{config}:exact", "--question=a")
