"""What stays in memory between jobs, and that none of it is older than the files."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxrag.core import file_states
from jaxrag.core.file_states import one_start
from jaxrag.data.folder import Folder
from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.local.engine import Local
from jaxrag.engines.server import Server
from jaxrag.engines.vllm import Vllm
from jaxrag.retrieval.dense import encoder
from jaxrag.runs import config_file, loading
from jaxrag.runs.loading import Kept, load_data, load_model, open_index_over
from jaxrag.runs.run import Run, load
from jaxrag.steps import prompts
from jaxrag.types import InputError
from tests.experiments.small_run import write_small_run
from tests.faults.damage import overwrite

pytestmark = pytest.mark.usefixtures("settled")


class Opened:
    """As large as an index."""

    def __init__(self, name: str):
        self.name = name
        self.itself = self  # so that only a garbage collection frees it


def test_the_newest_is_kept_and_let_go_before_the_next_is_opened() -> None:
    asked, there = list[str](), list[weakref.ref[Opened]]()

    def living() -> list[str]:
        return [one.name for ref in there if (one := ref())]

    def open_it(name: str, version: int) -> Opened:
        assert not living(), "an earlier one is still there"
        if name == "broken":
            raise ValueError(name)
        asked.append(f"{name}{version}")
        one = Opened(name)
        there.append(weakref.ref(one))
        return one

    opened = Kept(open_it, lambda _, version: version, newest=True)
    assert opened("a", 1).name == opened("a", 1).name == "a" and asked == ["a1"]
    assert opened("a", 2).name == "a" and asked == ["a1", "a2"]
    assert opened("b", 2).name == "b" and living() == ["b"]
    assert opened("a", 2).name == "a" and living() == ["a"]
    with pytest.raises(ValueError, match="broken"):
        opened("broken", 1)
    opened("a", 2)
    opened.cache_clear()
    gc.collect()
    opened("a", 2)
    assert asked == ["a1", "a2", "b2", "a2", "a2", "a2"]


@pytest.fixture
def world(tmp_path: Path) -> Path:
    here = tmp_path / "world"
    here.mkdir()
    write_small_run(here, questions=3)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [{"path": k, "type": f"sentence_transformers.models.{v}"} for k, v in kinds.items()]
    (here / "encoder/modules.json").write_text(json.dumps(modules))
    (here / "encoder/1_Pooling").mkdir()
    (here / "encoder/1_Pooling/config.json").write_text('{"pooling_mode_mean_tokens": true}')
    (here / "base.toml").write_text((here / "prompts.toml").read_text())
    (here / "prompts.toml").write_text(f'extends = "{here}/base.toml"\n')
    return here


@pytest.fixture
def run(world: Path) -> Run:
    return config_file.load(str(world / "config.py"))


def replaced(old: str, new: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        text = file.read_text()
        assert old in text
        overwrite(file, text.replace(old, new).encode())

    return change


def other_weights(file: Path) -> None:
    overwrite(file, file.read_bytes()[:-64] + bytes(64))


def write(text: str) -> Callable[[Path], None]:
    return lambda file: overwrite(file, text.encode())


CHANGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "extended prompts": ("base.toml", replaced("Q: ", "A: ")),
    "gold answers": ("data/queries.jsonl", replaced('["a"]', '["b"]')),
    "pooling": ("encoder/1_Pooling/config.json", write('{"pooling_mode_cls_token": true}')),
    "ends": ("model/generation_config.json", replaced("258", "259")),
}


def as_a_new_process(run: Run) -> dict[str, Any]:
    load_model.cache_clear()
    open_index_over.cache_clear()
    return load(run).record


@pytest.mark.parametrize("name", CHANGES)
def test_the_next_job_uses_the_files_as_they_are(run: Run, world: Path, name: str) -> None:
    path, change = CHANGES[name]
    before = load(run)
    again = load(run)
    change(world / path)
    after = load(run)
    assert before.record == again.record != after.record == as_a_new_process(run)
    assert _model(before) is _model(again)


def _model(prepared: Any) -> Any:
    return prepared.tools.llm.model


def test_what_a_job_found_at_its_start_stays_in_it(run: Run, world: Path) -> None:
    file = str(world / "prompts.toml")

    def found() -> tuple[Any, ...]:
        model = load_model(run.model, Path(run.cache))
        data = load_data(run.data, Path(run.cache))
        index = open_index_over(run.index, run.data, Path(run.cache))
        return model, data.identity, index, prompts.load(file), prompts.own_files({"prompts": file})

    with one_start():
        first = found()
        replaced("the ", "own ")(world / "data/corpus.jsonl")
        other_weights(world / "model/model.safetensors")
        other_weights(world / "encoder/model.safetensors")
        write('extends = "dtr"\n')(Path(file))
        with one_start():
            assert found() == first
    with one_start():
        assert not any(old == new for old, new in zip(first, found(), strict=True))


@pytest.mark.parametrize(
    ("settings", "file"),
    [
        (Vllm(lora="lora"), "lora/adapter_model.safetensors"),
        (Local("m-00001-of-00002.gguf"), "m-00002-of-00002.gguf"),
    ],
)
def test_all_files_that_settings_name_count(
    settings: ModelSettings, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    for name in ("m-00001-of-00002.gguf", file):
        (tmp_path / name).write_text("old")
    before = loading._state(settings)
    assert before == loading._state(settings)
    overwrite(tmp_path / file, b"new")
    assert before != loading._state(settings)


def test_texts_that_are_no_paths_name_no_files() -> None:
    for text in ("", "a" * 5000, "a\0b", "~no-such-user/x", "hub:a/b"):
        assert not [*loading._files(text)]


def test_a_server_is_asked_again_by_the_next_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Server, "load", lambda *_: object())
    settings = Server("a model")
    with one_start():
        first = load_model(settings, Path("cache"))
        assert load_model(settings, Path("cache")) is first
    with one_start():
        assert load_model(settings, Path("cache")) is not first


def test_a_file_of_this_moment_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_states, "_SETTLED", 2.0)
    (tmp_path / "weights").write_text("may change within the resolution of its time")
    with one_start():
        first = loading._state(str(tmp_path))
        assert loading._state(str(tmp_path)) == first
    assert loading._state(str(tmp_path)) != first


def test_a_model_that_changes_while_it_is_loaded_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.setattr(Local, "load", lambda *_: overwrite(tmp_path / "config.json", b"[]"))
    with pytest.raises(InputError, match=r"config\.json changed while it was read"):
        load_model(Local(str(tmp_path)), tmp_path)


def test_an_encoder_that_changes_while_it_is_loaded_is_refused(
    world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is embedded by it and stored under the hash of the other one."""
    real = encoder.load_encoder

    def load(*given: Any, **named: Any) -> Any:
        other_weights(world / "encoder/model.safetensors")
        return real(*given, **named)

    monkeypatch.setattr(encoder, "load_encoder", load)
    with pytest.raises(InputError, match=r"model\.safetensors changed while it was read"):
        encoder.Encoder.load(f"{world}/encoder")


def test_a_new_default_cache_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for file, row in (
        ("queries", {"id": "q", "question": "a", "answers": ["b"]}),
        ("corpus", {"id": "p", "title": "", "text": "c"}),
    ):
        (data / f"{file}.jsonl").write_text(json.dumps(row))
    monkeypatch.setattr(loading, "CACHE", str(tmp_path / "cache"))
    load_data(Folder(str(data)), tmp_path / "cache")
    load_data(Folder(str(data)), tmp_path / "other")
    told = capsys.readouterr().err.replace("\n", " ")
    assert told.count("results are kept in") == 1 and "$JAXRAG_CACHE" in told
