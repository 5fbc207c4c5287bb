"""A model over the devices of two processes: the results of one, and who leads and follows."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

import jax
import numpy as np
import pytest

from jaxrag.core import jsonl
from jaxrag.engines.local import spanning
from jaxrag.engines.local.engine import Local
from jaxrag.engines.local.spanning import SpanningModel, agreed, check_agreed
from jaxrag.models.sharding import device_mesh
from jaxrag.types import InputError, Message
from tests.engines.tiny_model import write_tiny_model
from tests.experiments.small_run import write_small_run
from tests.training.processes import finished, free_port, started


class Notes:
    """Notes its calls; refuses empty prompts."""

    identity = '{"model":"notes"}'

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def generate(self, prompts: Any, **options: Any) -> Any:
        self.calls.append(("generate", prompts, options))
        if "" in prompts:
            raise InputError("a prompt is empty")
        return [str(prompt) for prompt in prompts]

    def logprob(self, prompts: Any, continuations: Any) -> Any:
        self.calls.append(("logprob", prompts, continuations))
        return [np.zeros(1)] * len(prompts)

    def inspect(self, prompts: Any, continuations: Any, **options: Any) -> Any:
        self.calls.append(("inspect", prompts, continuations, options))
        return [None] * len(prompts)


def test_followers_make_the_calls_of_the_first_process(monkeypatch: pytest.MonkeyPatch) -> None:
    here, told = threading.local(), Queue[Any]()

    def exchange(mine: Any) -> list[Any]:
        if here.process == 0:
            told.put(json.loads(json.dumps(mine)))
            return [mine, None]
        return [told.get(timeout=10), mine]

    monkeypatch.setattr(spanning, "exchange", exchange)
    monkeypatch.setattr(spanning, "is_first", lambda: here.process == 0)
    models: list[Any] = [Notes(), Notes()]
    parts = [SpanningModel(one, tokenizer=None, max_length=8) for one in models]
    chat = (Message("system", "be short"), Message("user", "Where?"))

    def lead() -> None:
        here.process = 0
        assert parts[0].generate(["a", chat], max_new_tokens=3, stop=("\n",)) == ["a", str(chat)]
        with pytest.raises(InputError, match="a prompt is empty"):
            parts[0].generate([""], max_new_tokens=3)
        assert len(parts[0].logprob(["a"], [" b"])) == 1
        parts[0].inspect(["a"], [" b"], layer=1)
        parts[0].end()

    def follow() -> None:
        here.process = 1
        with pytest.raises(InputError, match="Only the first process calls"):
            parts[1].generate(["a"], max_new_tokens=3)
        parts[1].follow()

    with ThreadPoolExecutor(2) as pool:
        for task in [pool.submit(lead), pool.submit(follow)]:
            task.result(timeout=20)
    led, followed = (one.calls for one in models)
    assert [call[0] for call in led] == ["generate", "generate", "logprob", "inspect"]
    assert followed[0] == ("generate", ["a", chat], {"max_new_tokens": 3, "stop": ["\n"]})
    assert followed[1:] == led[1:]  # also the one that was refused


def test_a_model_that_not_all_processes_load_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_agreed()  # one process loads what it likes
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    with pytest.raises(InputError, match=r"spanning is set for a model that is not config\.model"):
        Local(spanning=True).load(Path("nowhere"))
    with agreed():
        check_agreed()
    with pytest.raises(InputError, match=r"1 x tensor_parallel 2 is 2 devices; .* their 8"):
        device_mesh(data=1, model=2, spanning=True)


@pytest.mark.slow
@pytest.mark.parametrize("stacked", ["stacked", "unrolled"])
def test_two_processes_compute_as_one_does(stacked: str, tmp_path: Path) -> None:
    """Parameters over "model", rows over "data": four devices, of one process or of two."""
    write_tiny_model(tmp_path / "model")
    module, model, port = "tests.engines.local.span", tmp_path / "model", free_port()
    one = finished(started(module, model, stacked, devices=4))
    both = [started(module, model, stacked, i, 2, port, devices=2) for i in (0, 1)]
    first, second = map(finished, both)
    assert first == second and first["devices"] == one["devices"] == 4
    assert first["tokens"] == one["tokens"] and len({*map(tuple, one["tokens"])}) > 1
    for name in ("logprobs", "scores", "entropies", "state"):
        for found, wanted in zip(first[name], one[name], strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_run_over_two_processes_of_four_devices_has_the_answers_of_one(tmp_path: Path) -> None:
    config = write_small_run(tmp_path, questions=6)
    mesh = ["--config.model.data_parallel=4", "--config.model.tensor_parallel=2"]
    common = [f"--config={config}", *mesh, "--config.store=memory"]
    alone = started("experiments.run", *common, f"--workdir={tmp_path / 'one'}", devices=8)
    assert alone.communicate(timeout=600) and alone.returncode == 0
    port = free_port()
    common += ["--config.model.spanning=true", f"--workdir={tmp_path / 'two'}"]
    both = [
        started("experiments.run", *common, f"--distributed=localhost:{port},2,{i}", devices=4)
        for i in (0, 1)
    ]
    assert [one.communicate(timeout=600) and one.returncode for one in both] == [0, 0]
    written = [jsonl.read(tmp_path / name / "answers.jsonl") for name in ("one", "two")]
    answers = [{line["question_id"]: line["prediction"] for line in lines} for lines in written]
    assert answers[0] == answers[1] and len(answers[0]) == 6
    assert not (tmp_path / "two" / "processes").exists()  # one process had all questions
