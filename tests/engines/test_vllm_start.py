"""How vLLM is imported; the modules are stand-ins, `test_vllm` has the real ones."""

import os
import sys
from types import ModuleType, SimpleNamespace

import pytest

from jaxrag.engines.vllm import vllm_library
from jaxrag.types import InputError

START = "VLLM_WORKER_MULTIPROC_METHOD"


@pytest.mark.parametrize(
    ("cuda", "before", "after"),
    [("13.0", None, "spawn"), ("13.0", "fork", "fork"), (None, None, None)],
)
def test_with_cuda_the_engine_is_not_forked_unless_the_user_says_so(
    cuda: str | None, before: str | None, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(cuda=cuda)))
    monkeypatch.setenv(START, before or "")  # is restored after the test
    if before is None:
        monkeypatch.delenv(START)
    assert vllm_library() is sys.modules["vllm"]
    assert os.environ.get(START) == after


def test_without_vllm_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(InputError, match=r"pip install 'jaxrag\[vllm\]'"):
        vllm_library()
