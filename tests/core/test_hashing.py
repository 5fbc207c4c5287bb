"""Hashes of files are kept while the files stay as they are."""

from __future__ import annotations

import hashlib
import json
import os
import time

import pytest

from jaxrag.core import hashing
from jaxrag.core.hashing import digest_file_once


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b"one")
    age(path, 100)
    return path


def age(path, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(path, (then, then))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_an_unchanged_file_is_read_once(file, tmp_path, monkeypatch):
    records = tmp_path / "records"
    assert digest_file_once(file, records) == sha256(b"one")
    monkeypatch.setattr(hashing, "digest_file", lambda _: pytest.fail("read again"))
    monkeypatch.chdir(tmp_path)
    assert digest_file_once(file.relative_to(tmp_path), records) == sha256(b"one")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.jsonl", "records"]


def replace(file):
    stat = file.stat()
    other = file.with_name("other")
    other.write_bytes(b"two")
    os.utime(other, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    other.replace(file)  # same name, size and time, another inode


@pytest.mark.parametrize(
    "change",
    [
        lambda file: file.write_bytes(b"two"),  # now, so with another time
        lambda file: (file.write_bytes(b"two"), age(file, 50)),
        lambda file: (file.write_bytes(b"longer"), age(file, 100)),
        replace,
    ],
)
def test_a_changed_file_is_hashed_again(file, tmp_path, change):
    digest_file_once(file, tmp_path / "records")
    change(file)
    assert digest_file_once(file, tmp_path / "records") == sha256(file.read_bytes())


def test_a_file_of_this_moment_is_not_trusted_the_next_time(file, tmp_path):
    os.utime(file)
    stat = file.stat()
    digest_file_once(file, tmp_path / "records")
    file.write_bytes(b"two")  # in the same instant, as far as its time tells
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert digest_file_once(file, tmp_path / "records") == sha256(b"two")


@pytest.mark.parametrize("damaged", ["", "{", "[]", "{}", json.dumps({"file": 1})])
def test_a_damaged_record_is_replaced(file, tmp_path, damaged):
    records = tmp_path / "records"
    digest_file_once(file, records)
    (record,) = records.iterdir()
    whole = record.read_text()
    record.write_text(damaged)
    assert digest_file_once(file, records) == sha256(b"one")
    assert record.read_text() == whole
