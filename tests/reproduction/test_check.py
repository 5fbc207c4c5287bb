"""What reproductions take, from settings alone."""

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest

from configs import ars, dtr, errr, r3
from configs.papers import ALL
from configs.papers.models import DIMENSIONS, PARAMETERS
from experiments import reproduce
from jaxrag.data.folder import Folder
from jaxrag.methods.ars.helpers import CountBandit, RewriteRanker
from jaxrag.methods.ars.strategies import Chosen, Ranked
from jaxrag.reproduction.check import (
    Checker,
    Need,
    checkpoints,
    keys_text,
    models_text,
    needs_grid,
    sizes,
)
from jaxrag.reproduction.work import Work
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.dpr import Dpr
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.retrieval.dense.published_encoders import dpr
from jaxrag.retrieval.web.index import Web
from jaxrag.runs import calls
from jaxrag.steps.gates import JudgeGate
from jaxrag.types import InputError

CHECKER = Checker(DIMENSIONS)


def test_calls_tokens_and_sizes_of_a_run_at_paper_scale() -> None:
    need = CHECKER.need("dtr-nq-0123", dtr.get_config("dtr@paper-nq"))
    assert (need.questions, need.passages, need.corpus) == (3610, 21_015_324, "psgs_w100")
    # directly; or directly, a pseudo-context, and from passages
    assert (need.calls["llm_calls"].least, need.calls["llm_calls"].most) == (1, 3)
    assert need.total("llm_calls") == 3 * 3610
    # three passages of 100 words, and the prompts
    words = need.calls["prompt_tokens"].most
    assert 300 < words < 700 and need.total("prompt_tokens") == round(1.3 * 3610 * words)
    # 21,015,324 x 1024 float16 numbers are 43 GB
    assert need.index.startswith("Scann: ") and " on disk" in need.index
    assert need.models == ("hub:Qwen/Qwen2.5-7B-Instruct", "hub:BAAI/bge-large-en-v1.5")
    reranked = CHECKER.need("rerank-nq-0123", dtr.get_config("rerank@paper-nq"))
    assert reranked.models == (*need.models, "hub:BAAI/bge-reranker-base")
    alone = CHECKER.need("x-1", dtr.get_config("no_retrieval@paper-nq"))
    assert alone.models == need.models[:1]
    assert models_text([need], {"hub:Qwen/Qwen2.5-7B-Instruct": 7.62}).endswith("(15.2 GB)")
    assert needs_grid([need]).rows[0][:4] == (
        "dtr-nq", "Qwen2.5-7B-Instruct", "3,610", "1 to 3",
    )  # fmt: skip


def test_a_limit_and_a_draw() -> None:
    run: Any = dtr.get_config("no_retrieval@paper-webq")
    need = CHECKER.need("x-1", dataclasses.replace(run, limit=500))
    assert need.questions == 500 and need.index == "" and need.corpus == ""
    of_set: Any = dtr.get_config("dtr@paper-2wiki")  # its own contexts, of which the paper has 431K
    assert CHECKER.need("x-1", of_set).passages == 431_000
    own = dataclasses.replace(run, data=Folder("questions"))  # of a size that is not known
    assert CHECKER.need("x-1", own).questions is None
    assert CHECKER.need("x-1", dataclasses.replace(own, limit=100)).questions == 100
    drawn: Any = ars.get_config("rewriter10@paper-boolq")
    assert sizes(drawn.data)[0] == 400
    labels: Any = ars.get_config("make_gold_labels@paper-boolq")
    assert CHECKER.need("x-1", labels).questions == 1600


def test_settings_that_do_not_fit_are_refused() -> None:
    run: Any = dtr.get_config("dtr@paper-nq")
    with pytest.raises(InputError, match="searches, but the run has no index"):
        CHECKER.need("x-1", dataclasses.replace(run, index=None))


def test_models_are_found_at_any_depth() -> None:
    run: Any = dtr.get_config("llm_judge@paper-nq+server")
    judge = dataclasses.replace(run.model, model="judge", urls="http://a/v1")
    method = dataclasses.replace(run.method, gate=JudgeGate(judge))
    found = list(checkpoints(dataclasses.replace(run, method=method)))
    assert "judge behind http://a/v1" in found


def test_checkpoints_of_other_jobs_are_not_missing() -> None:
    """ARS-RAG's ranker and bandit are trained by jobs before it; elsewhere they must be there."""
    run: Any = ars.get_config("ars@paper-boolq")
    order = Ranked(ranker=RewriteRanker("made/TrainRanker-1/ranker"))
    count = Chosen(CountBandit("made/TrainBandit-1/bandits/x/weighted"))
    method = dataclasses.replace(run.method, order=order, count=count)
    run = dataclasses.replace(run, method=method)
    need = Checker(DIMENSIONS, Path("made")).need("ars-1", run)
    assert need.calls["llm_calls"].most == 2  # the rewrites, and the answer
    with pytest.raises(InputError, match="TrainRanker-1/ranker is no directory"):
        CHECKER.need("ars-1", run)


def test_trainings_count_what_they_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    """R3 scores 100 passages of each question, and of an open one answers from each.

    It answers 1 + 20 evaluations. A few simulated models are enough: none changes how often these
    jobs ask the language model, and each is asked about 100 passages of 4 questions.
    """
    worlds = calls._worlds
    monkeypatch.setattr(
        calls, "_worlds", lambda **which: itertools.islice(worlds(**which), 0, None, 13)
    )
    checker = Checker(DIMENSIONS)
    job: Any = r3.get_config("train_r3@paper-arc_challenge")
    start = dataclasses.replace(job.start, checkpoint=str(Path("made/TrainSidr-1/retriever")))
    need = checker.need("TrainR3-1", dataclasses.replace(job, start=start))
    # of each passage the probabilities of the four options
    offline, held_out = need.workloads
    assert offline.questions == need.questions == 1119 and held_out.questions == 21 * 299
    assert "llm_calls" not in offline.calls and held_out.calls["llm_calls"].most == 1
    assert need.total("llm_calls") == 21 * 299
    assert need.total("llm_scores") == 400 * 1119
    of_open: Any = r3.get_config("train_r3@paper-nq")
    need = checker.need("TrainR3-1", dataclasses.replace(of_open, start=start))
    assert need.workloads[0].calls["llm_calls"].most == 100
    # PPO: 3 epochs over the draw's 900 training questions are 21 steps of 128 rollouts; evaluated
    # before the first step and after 10 and 20
    ppo: Any = errr.get_config("train_rrr_qa@paper-popqa")
    need = checker.need("TrainRrr-1", ppo)
    assert need.questions == 900
    rollouts, held_out = need.workloads
    assert rollouts.questions == 21 * 128 and held_out.questions == 3 * 997
    sidr = checker.need("TrainSidr-1", r3.get_config("train_sidr@paper-nq"))
    assert sidr.questions == 79_168 and sidr.total("llm_calls") is None


def test_a_training_on_the_output_of_another_job_has_its_questions() -> None:
    pairs = CHECKER.need("MakeQueryPairs-1", errr.get_config("make_pairs_errr@paper-popqa"))
    student: Any = errr.get_config("train_optimizer@paper")
    assert pairs.questions and CHECKER.need("Train-1", student).questions is None
    assert CHECKER.need("Train-1", student, [pairs]).questions == pairs.questions


def test_indexes_without_a_published_encoder() -> None:
    """100 words of 8 bytes a passage; DPR's 768 numbers of 2 bytes."""
    run: Any = r3.get_config("standard_rag@paper-nq")
    bm25 = CHECKER.need("x-1", dataclasses.replace(run, index=Bm25())).index
    assert bm25.startswith("Bm25: 16.8 GB on disk") and "100 different words" in bm25
    own = CHECKER.need("x-1", dataclasses.replace(run, index=Dpr("made/retriever"))).index
    assert own.startswith("Dpr: 32.3 GB on disk")
    published = CHECKER.need("x-1", dataclasses.replace(run, index=Exact(dpr()))).index
    assert published.startswith("Exact: 32.3 GB on disk")


def test_keys_of_services_are_named() -> None:
    run: Any = errr.get_config("rag@paper-popqa")
    need = CHECKER.need("x-1", dataclasses.replace(run, index=Web()))
    assert need.keys == ("OPENAI_API_KEY", "BRAVE_API_KEY")
    assert keys_text([need], {"OPENAI_API_KEY": "k"}) == (
        "$BRAVE_API_KEY (not set), $OPENAI_API_KEY (set)"
    )
    own = dataclasses.replace(run.model, urls="http://localhost:8000/v1")
    assert not CHECKER.need("x-1", dataclasses.replace(run, model=own, index=Bm25())).keys


@pytest.mark.slow
def test_every_table_and_figure_at_paper_scale(tmp_path: Path) -> None:
    """Each job's settings fit; calls, sizes of indexes and of models are known."""
    work = Work(tmp_path)
    for name in (*ALL.tables, *ALL.figures):
        reproduce.add(work, name, "paper")
    checker = Checker(DIMENSIONS, work.root)
    known: dict[Path, Need] = {}
    for path, job in work.jobs.items():
        sources = [known[one] for one in work.needs[path]]
        need = known[path] = checker.need(path.name, job, sources)
        assert need.questions, path
        if need.workloads:  # REPLUG scores the options of a closed question and generates nothing
            kind = "prompt_tokens" if need.total("llm_calls") else "llm_scores"
            assert need.total(kind), path
        unknown = "of a corpus whose size is not known" in need.index  # as of a set's own contexts
        assert not need.index or unknown or ":" in need.index or need.index == "Web", need.index
        lacking = [one for one in need.models if one.startswith("hub:") and one not in PARAMETERS]
        assert not lacking, path
    assert all(ALL.left_out.values())


def test_a_training_makes_the_checkpoint_that_its_run_lacks() -> None:
    assert (
        CHECKER.need("TrainRrr-1", errr.get_config("train_rrr_qa@paper-popqa")).kind == "TrainRrr"
    )
    with pytest.raises(InputError, match=r"config\.method\.rewriter\.model has no checkpoint"):
        CHECKER.need("rrr-1", errr.get_config("trainable_rrr@paper-popqa"))
