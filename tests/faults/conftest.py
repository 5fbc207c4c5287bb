"""Every fault is tried with keys in the environment."""

import pytest

from tests.faults.damage import KEYS


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, key in KEYS.items():
        monkeypatch.setenv(name, key)
