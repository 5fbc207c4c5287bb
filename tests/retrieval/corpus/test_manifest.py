import json

import pytest

from jaxrag.retrieval.corpus import manifest as m
from jaxrag.types import InputError


def written(directory, **settings):
    (directory / "a.bin").write_bytes(b"12345")
    entry = m.finished(directory / "a.bin")
    found = m.Manifest("kind", settings or {"x": 1}, (entry,), complete=True)
    found.write(directory)
    return found


def test_round_trip(tmp_path) -> None:
    wrote = written(tmp_path, model="a", nested={"prefix": "query: "})
    read = m.read_manifest(tmp_path, "kind")
    assert read == wrote
    assert read.content == wrote.content
    m.check_files(tmp_path, read, verify=True)
    # sha256 of b"12345", from the shell's sha256sum
    expected = "5994471abb01112afcc18159f6cc74b4f511b99806da59b3caf5a9c173cacfc5"
    assert read.files[0] == ("a.bin", 5, expected)


def test_content_depends_on_settings_and_bytes(tmp_path) -> None:
    one = written(tmp_path, x=1)
    assert one.content != written(tmp_path, x=2).content
    (tmp_path / "b.bin").write_bytes(b"12346")
    files = (*one.files, m.finished(tmp_path / "b.bin"))
    assert one.content != m.Manifest("kind", {"x": 1}, files, True).content


def test_missing_and_foreign_manifests_are_refused(tmp_path) -> None:
    with pytest.raises(InputError, match="holds no index"):
        m.read_manifest(tmp_path, "kind")
    written(tmp_path)
    with pytest.raises(InputError, match=r"'kind'.*'other'"):
        m.read_manifest(tmp_path, "other")
    document = json.loads((tmp_path / m.NAME).read_text()) | {"version": 99}
    (tmp_path / m.NAME).write_text(json.dumps(document))
    with pytest.raises(InputError, match="version 99"):
        m.read_manifest(tmp_path, "kind")
