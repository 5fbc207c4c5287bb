import errno

import pytest

from jaxrag.core.durable_files import (
    atomic_write,
    exclusive_directory,
    explain_full_disk,
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
        explain_full_disk(tmp_path),
    ):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(InputError, match="full"), explain_full_disk(tmp_path):
        raise RuntimeError(
            "write() failed: No space left on device; writing x"
        )  # as ArrayRecord raises it
    with pytest.raises(RuntimeError, match="another error"), explain_full_disk(tmp_path):
        raise RuntimeError("another error")
    with pytest.raises(PermissionError), explain_full_disk(tmp_path):
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


def test_directory_is_a_file(tmp_path) -> None:
    (tmp_path / "index").write_text("")
    with pytest.raises(InputError, match="is a file"), exclusive_directory(tmp_path / "index"):
        pass


def test_write_text_replaces_a_file_and_escapes_lone_surrogates(tmp_path) -> None:
    path = tmp_path / "file"
    path.write_text("a longer old text")
    write_text(path, "é \ud800")
    assert path.read_bytes() == b"\xc3\xa9 \\ud800"
    assert [file.name for file in tmp_path.iterdir()] == ["file"]
