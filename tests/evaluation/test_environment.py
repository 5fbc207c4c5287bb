"""What is recorded about the machine, and what is not."""

import json
import os
import subprocess
from pathlib import Path

import jax
import pytest

import jaxrag
from jaxrag.evaluation import records


def test_environment_is_plain_and_private() -> None:
    found = records.describe_environment()
    text = json.dumps(found, allow_nan=False)
    assert found["jaxrag"] == jaxrag.__version__ and found["devices"] == {"cpu:cpu": 8}
    assert found["packages"]["jax"] == jax.__version__ and found["python"].startswith("3.")
    assert {*found["packages"]} <= {*records.PACKAGES}  # without those that are not installed
    for private in (str(Path.home()), str(Path.cwd()), os.environ["PATH"]):
        assert private not in text


def test_no_git_no_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*args: object, **kwargs: object) -> None:
        raise FileNotFoundError("git")

    monkeypatch.setattr(subprocess, "run", missing)
    assert records.git_commit() is None


def test_an_install_inside_another_checkout_has_no_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    monkeypatch.setattr(records, "__file__", str(tmp_path / "jaxrag/evaluation/records.py"))
    assert records.git_commit() is None
