"""A tiny random model, and what it answers."""

from pathlib import Path
from typing import Any

import pytest

from jaxrag.engines.local import decoding, engine
from jaxrag.engines.local.engine import LocalModel
from jaxrag.engines.local.prefill import Prefill
from jaxrag.types import Generation
from tests.engines.tiny_model import CHATS, load_local, write_tiny_model


@pytest.fixture(scope="module")
def directory(tmp_path_factory: Any) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    write_tiny_model(path)
    return path


@pytest.fixture(scope="module")
def model(directory: Path) -> LocalModel:
    return load_local(directory)


@pytest.fixture(scope="module")
def answers(model: LocalModel) -> list[Generation]:
    return model.generate(CHATS, max_new_tokens=12)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Filled with how many sequences each call has the decoder read."""
    found: list[int] = []
    readings = Prefill.readings

    def counted(self: Prefill, jobs: Any) -> Any:
        found.append(len(jobs))
        return readings(self, jobs)

    monkeypatch.setattr(Prefill, "readings", counted)
    return found


@pytest.fixture
def unprobed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads models without testing shape invariance, which compiles programs for each size."""
    monkeypatch.setattr(engine, "tail_rows", lambda decoder, params, rows, few: rows)


@pytest.fixture
def fewer_rows_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last answers go on in fewer rows even if that program is not compiled yet."""
    monkeypatch.setattr(decoding, "MISSED_STEPS", 0)
