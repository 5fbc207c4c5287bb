"""Hashes of files are kept while the files stay as they are."""

from __future__ import annotations

import hashlib
import json
import os

import pytest

from jaxrag.core import file_states, hashing
from jaxrag.core.hashing import HashedFile, hashed_once, read_as_hashed
from jaxrag.types import InputError
from tests.faults.damage import overwrite

pytestmark = pytest.mark.usefixtures("settled")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"one")
    return path


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_an_unchanged_file_is_read_once(file, tmp_path, monkeypatch):
    records = tmp_path / "records"
    assert hashed_once(file, records).sha256 == sha256(b"one")
    monkeypatch.setattr(hashing, "digest_file", lambda _: pytest.fail("read again"))
    monkeypatch.chdir(tmp_path)
    assert hashed_once(file.relative_to(tmp_path), records).sha256 == sha256(b"one")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "records"]


def replace(file):
    other = file.with_name("other")
    other.write_bytes(b"two")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.replace(file)  # another inode


def there_and_back(file):
    overwrite(file, b"two")
    overwrite(file, b"one")


CHANGES = [
    lambda file: file.write_bytes(b"two"),
    lambda file: overwrite(file, b"two"),
    replace,
    there_and_back,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_file_is_hashed_again_and_what_was_read_from_it_refused(file, tmp_path, change):
    records = tmp_path / "records"
    known = hashed_once(file, records)
    assert list(read_as_hashed("ab", [known])) == ["a", "b"]
    change(file)
    items = read_as_hashed("ab", [known])
    assert [next(items), next(items)] == ["a", "b"]
    with pytest.raises(InputError, match=r"corpus\.jsonl changed while it was read: run the same"):
        next(items)
    now = HashedFile(file_states.FileState.of(file), sha256(file.read_bytes()))
    assert hashed_once(file, records) == now


def test_a_file_of_this_moment_is_not_trusted_the_next_time(file, tmp_path, monkeypatch):
    monkeypatch.setattr(file_states, "_SETTLED", 2.0)
    hashed_once(file, tmp_path / "records")
    assert not (tmp_path / "records").exists()


def test_no_hash_is_kept_of_a_file_that_changes_while_it_is_hashed(file, tmp_path, monkeypatch):
    def digest(path):
        overwrite(path, b"two")
        return sha256(b"one")

    monkeypatch.setattr(hashing, "digest_file", digest)
    found = hashed_once(file, tmp_path / "records")
    assert not (tmp_path / "records").exists()
    with pytest.raises(InputError, match="changed while it was read"):
        list(read_as_hashed((), [found]))


@pytest.mark.parametrize("damaged", ["", "{", "[]", "{}", json.dumps({"file": 1})])
def test_a_damaged_record_is_replaced(file, tmp_path, damaged):
    records = tmp_path / "records"
    hashed_once(file, records)
    (record,) = records.iterdir()
    whole = record.read_text()
    record.write_text(damaged)
    assert hashed_once(file, records).sha256 == sha256(b"one")
    assert record.read_text() == whole
