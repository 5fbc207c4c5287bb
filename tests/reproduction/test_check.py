"""What reproductions take, from settings alone."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from configs import ars, dtr, errr
from configs.papers.models import DIMENSIONS
from jaxrag.data.folder import Folder
from jaxrag.methods.ars.helpers import CountBandit, RewriteRanker
from jaxrag.methods.ars.strategies import Chosen, Ranked
from jaxrag.reproduction.check import Checker, checkpoints, models_text, needs_grid, sizes
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
    assert need.models == (
        "hub:Qwen/Qwen2.5-7B-Instruct", "hub:BAAI/bge-large-en-v1.5", "hub:BAAI/bge-reranker-base",
    )  # fmt: skip
    assert models_text([need], {"hub:Qwen/Qwen2.5-7B-Instruct": 7.62}).endswith("(15.2 GB)")
    assert needs_grid([need]).rows[0][:4] == (
        "dtr-nq", "Qwen2.5-7B-Instruct", "3,610", "1 to 3",
    )  # fmt: skip


def test_a_limit_and_a_draw() -> None:
    run: Any = dtr.get_config("no_retrieval@paper-webq")
    need = CHECKER.need("x-1", dataclasses.replace(run, limit=500))
    assert need.questions == 500 and need.index == "" and need.corpus == ""
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


def test_a_training_makes_the_checkpoint_that_its_run_lacks() -> None:
    assert (
        CHECKER.need("TrainRrr-1", errr.get_config("train_rrr_qa@paper-popqa")).kind == "TrainRrr"
    )
    with pytest.raises(InputError, match=r"config\.method\.rewriter\.model has no checkpoint"):
        CHECKER.need("rrr-1", errr.get_config("trainable_rrr@paper-popqa"))
