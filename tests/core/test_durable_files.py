import errno
import fcntl
import os
import threading
import time

import pytest

from jaxrag.core.durable_files import (
    atomic_write,
    exclusive_directory,
    explain_limits,
    open_own,
    open_to_append,
    take_lock,
    wait_for_lock,
    write_text,
)
from jaxrag.types import InputError


def test_a_failed_write_leaves_the_old_file(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), atomic_write(path) as stream:
        stream.write(b"new")
        raise RuntimeError
    assert path.read_bytes() == b"old"


def test_full_disk(tmp_path) -> None:
    with (
        pytest.raises(InputError, match="full; finished work is kept"),
        explain_limits(tmp_path),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(InputError, match="full"), explain_limits(tmp_path):
        raise RuntimeError(
            "write() failed: No space left on device; writing x"
        )  # as ArrayRecord raises it
    with pytest.raises(InputError, match=r"open files .*ulimit -n"), explain_limits(tmp_path):
        raise OSError(errno.EMFILE, "Too many open files")
    with pytest.raises(InputError, match="may not grow so large"), explain_limits(tmp_path):
        raise OSError(errno.EFBIG, "File too large")
    with pytest.raises(RuntimeError, match="another error"), explain_limits(tmp_path):
        raise RuntimeError("another error")
    with pytest.raises(PermissionError), explain_limits(tmp_path):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_a_second_process_is_refused(tmp_path) -> None:
    with (
        exclusive_directory(tmp_path / "index"),
        pytest.raises(InputError, match="another process"),
        exclusive_directory(tmp_path / "index"),
    ):
        pass
    with exclusive_directory(tmp_path / "index"):
        pass


def test_write_text_replaces_a_file_and_escapes_lone_surrogates(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_text("a longer old text")
    write_text(path, "é \ud800")
    assert path.read_bytes() == b"\xc3\xa9 \\ud800"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_files_behind_links_are_not_changed(tmp_path) -> None:
    """Who may write into a shared directory may not make others overwrite their own files."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    for name in ("config.json.new", "log.jsonl", ".lock"):
        (tmp_path / name).symlink_to(victim)
    os.mkfifo(tmp_path / "pipe")
    write_text(tmp_path / "config.json", "{}")
    for write in (
        lambda: open_to_append(tmp_path / "log.jsonl"),
        lambda: open_own(tmp_path / "pipe", os.O_RDWR),
        lambda: open_own(tmp_path / ".lock", os.O_RDWR),
        lambda: exclusive_directory(tmp_path).__enter__(),
    ):
        with pytest.raises(InputError, match="remove it"):
            write()
    assert victim.read_text() == "precious"
    assert (tmp_path / "config.json").read_text() == "{}"


def test_file_systems_without_locks(tmp_path, monkeypatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with pytest.raises(InputError, match="refuses locks"), exclusive_directory(tmp_path):
        pass


def test_waiting_for_a_lock(tmp_path, caplog) -> None:
    first, second = (open_own(tmp_path / "lock", os.O_RDWR) for _ in range(2))
    assert take_lock(first, tmp_path)
    threading.Timer(0.5, os.close, [first]).start()
    began = time.monotonic()
    wait_for_lock(second, tmp_path / "lock", "another process writes")
    assert time.monotonic() - began > 0.4 and "another process writes" in caplog.text
    os.close(second)


def test_a_directory_that_cannot_be_written_needs_no_lock(tmp_path, monkeypatch) -> None:
    def refused(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(os, "open", refused)
    with exclusive_directory(tmp_path):
        pass


def test_a_file_and_a_link_to_nothing_are_no_directories(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "none")
    for name, said in (("file", "is a file"), ("link", "is a link to nothing")):
        with pytest.raises(InputError, match=said), exclusive_directory(tmp_path / name):
            pass
