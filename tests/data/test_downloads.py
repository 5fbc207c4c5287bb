"""Published files: found by name, downloaded, resumed, checked and unpacked."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from jaxrag.data import downloads
from jaxrag.data.downloads import Downloads, find_file
from jaxrag.types import InputError
from tests.local_http import Handler, serving

CONTENT = bytes(range(256)) * 20_000  # 5.1 MB
SHA = hashlib.sha256(CONTENT).hexdigest()


ETAG, DATE = ("ETag", '"{}"'), ("Last-Modified", "Sat, 28 Nov 2026 05:{}:00 GMT")


class Files(Handler):
    """Serves ``server.content`` with ranges, the header ``version`` and ``server.fault`` before."""

    def do_GET(self) -> None:
        with self.counted(self.server.asked, dict(self.headers)) as number:
            if not self.server.fault(self, number):
                self.serve()

    def serve(self, *, stop: int | None = None, obeys: bool = True) -> None:
        """Sends what is requested; closes the connection before byte ``stop``.

        ``obeys`` is whether If-Range is.
        """
        content: bytes = self.server.content
        header, version = self.server.version
        tag = version.format(hashlib.sha256(content).hexdigest()[:8])
        start, status = 0, 200
        requested = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if requested and (not obeys or self.headers.get("If-Range", tag) == tag):
            start, status = int(requested[1]), 206
            if start >= len(content):
                self.send(416, b"", Content_Range=f"bytes */{len(content)}")
                return
        self.send_response(status)
        if header:
            self.send_header(header, tag)
        self.send_header("Content-Length", str(len(content) - start))
        if status == 206:
            last = len(content) - 1
            self.send_header("Content-Range", f"bytes {start}-{last}/{len(content)}")
        self.end_headers()
        self.wfile.write(content[start:stop])
        if stop is not None:
            self.wfile.flush()
            self.drop()


def nothing(*_) -> bool:
    return False


def first(act):
    """A fault of the first request only."""
    return lambda handler, number: number == 0 and (act(handler) or True)


@pytest.fixture
def server():
    with serving(Files, nothing, asked=[], content=CONTENT, version=ETAG) as running:
        yield running


def fetch(server, directory: Path, **kwargs) -> Path:
    found = Downloads(directory, pauses=(0.01, 0.01), **kwargs).get(f"{server.url}/a.bin")
    assert found is not None
    return found


def test_downloads_once_and_records_size_and_hash(server, tmp_path):
    path = fetch(server, tmp_path)
    assert path.read_bytes() == CONTENT
    assert fetch(server, tmp_path) == path
    assert len(server.asked) == 1
    record = json.loads((tmp_path / "downloads.json").read_text())[f"{server.url}/a.bin"]
    assert (record["bytes"], record["sha256"]) == (len(CONTENT), SHA)
    assert sorted(p.name for p in tmp_path.iterdir()) == [".lock", "a.bin", "downloads.json"]


@pytest.mark.parametrize("version", [ETAG, DATE, ("ETag", 'W/"{}"'), ("", "")])
def test_goes_on_where_the_connection_broke_off(server, tmp_path, version):
    """If the server tells a version that If-Range may name."""
    server.version = version
    server.fault = first(lambda handler: handler.serve(stop=2_000_000))
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    begun, second = (asked.get("Range") for asked in server.asked)
    assert begun is None and (second is not None) == (version in (ETAG, DATE))
    assert second is None or 0 < int(second.removeprefix("bytes=").removesuffix("-")) <= 2_000_000


@pytest.mark.parametrize("obeys", [True, False])
@pytest.mark.parametrize("version", [ETAG, DATE])
def test_a_file_that_changed_during_the_download_begins_anew(server, tmp_path, version, obeys):
    server.version = version

    def act(handler, number):
        handler.serve(stop=2_000_000 if number == 0 else None, obeys=obeys)
        handler.server.content = CONTENT[::-1]
        return True

    server.fault = act
    assert fetch(server, tmp_path).read_bytes() == CONTENT[::-1]


def test_a_whole_but_unnamed_file_is_finished(server, tmp_path):
    """Killed between the last byte and the new name."""
    (tmp_path / "a.bin.part").write_bytes(CONTENT)
    (tmp_path / "a.bin.part.version").write_text(f'"{SHA[:8]}"')
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert [asked["Range"] for asked in server.asked] == [f"bytes={len(CONTENT)}-"]


def test_busy_servers_are_tried_again(server, tmp_path):
    server.fault = lambda handler, number: number < 2 and handler.send(503, b"", Retry_After="0")
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert len(server.asked) == 3


def test_another_process_goes_on_with_what_is_kept(server, tmp_path):
    """All that it needs is on disk: the bytes and their version."""
    server.fault = lambda handler, number: (
        (handler.serve(stop=1_500_000) if number == 0 else handler.drop()) or True
    )
    with pytest.raises(InputError, match=r"cannot be downloaded.* bytes are kept: run the same"):
        fetch(server, tmp_path)
    kept = (tmp_path / "a.bin.part").stat().st_size
    server.fault = nothing
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    assert 0 < kept <= 1_500_000 and server.asked[-1]["Range"] == f"bytes={kept}-"


def test_a_missing_file_is_an_error_at_once(server, tmp_path):
    server.fault = lambda handler, _: handler.send(404, b"no")
    with pytest.raises(InputError, match=r"a\.bin answers 404: .*--source=DIR"):
        fetch(server, tmp_path)
    assert len(server.asked) == 1


@pytest.mark.parametrize("other", [CONTENT[:-1], b"x" + CONTENT[1:]])
@pytest.mark.parametrize("copy", [True, False])
def test_another_file_than_is_recorded_is_an_error(server, tmp_path, other, copy):
    """A damaged copy, or another file at the address."""
    path = fetch(server, tmp_path)
    if copy:
        path.write_bytes(other)
    else:
        path.unlink()
        server.content = other
    with pytest.raises(InputError, match=r"a\.bin has .*downloads\.json has .*changed"):
        fetch(server, tmp_path)


def test_a_broken_record_is_an_error(server, tmp_path):
    (tmp_path / "downloads.json").write_text("{")
    with pytest.raises(InputError, match=r"downloads\.json is not a record"):
        fetch(server, tmp_path)


def test_finds_files_plain_or_packed_in_folders(tmp_path):
    for name in ("x/nq-train.qa.csv.gz", "y/z/dev.json", "nq/train.jsonl", "popqa/train.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    assert find_file(tmp_path, "nq-train.qa.csv") == tmp_path / "x/nq-train.qa.csv.gz"
    assert find_file(tmp_path, "dev.json.gz") == tmp_path / "y/z/dev.json"
    assert find_file(tmp_path, "nq/train.jsonl") == tmp_path / "nq/train.jsonl"
    assert find_file(tmp_path / "popqa", "popqa/train.jsonl") == tmp_path / "popqa/train.jsonl"
    assert find_file(tmp_path, "squad/train.jsonl") is None
    with pytest.raises(InputError, match="in several folders"):
        find_file(tmp_path, "train.jsonl")


def zipped(path: Path, members: dict[str, bytes]) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def tarred(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


MEMBERS = {"top/in/Test.jsonl": b"right", "__MACOSX/top/in/Test.jsonl": b"no", "top/x": b"no"}


@pytest.mark.parametrize("write", [zipped, tarred])
def test_takes_members_out_of_archives(tmp_path, write):
    source = tmp_path / "source"
    source.mkdir()
    name = "set.zip" if write is zipped else "set.tar.gz"
    write(source / name, dict(reversed(MEMBERS.items())))
    files = Downloads(tmp_path / "cache", source)
    found = files.get(f"https://example.org/{name}#Test.jsonl")
    assert found is not None and found.read_bytes() == b"right"
    assert found == files.get(f"https://example.org/{name}#Test.jsonl")
    assert files.get(f"https://example.org/{name}#None.jsonl") is None
    archive = files.get(f"https://example.org/{name}#Test.jsonl", unpack=False)
    assert archive == source / name
    assert files.get("https://example.org/another.zip#Test.jsonl") is None


def test_paths_and_links_in_archives_lead_nowhere(tmp_path):
    """A member's content is taken by its name; its path is not used on this machine."""
    source, cache = tmp_path / "source", tmp_path / "deep" / "cache"
    source.mkdir()
    zipped(source / "set.zip", {"../../../Test.jsonl": b"evil"})
    Downloads(cache, source).get("https://example.org/set.zip#Test.jsonl")
    assert [p for p in tmp_path.rglob("*.jsonl") if cache not in p.parents] == []
    (tmp_path / "secret").write_text("of another user")
    with tarfile.open(source / "links.tar.gz", "w:gz") as archive:
        info = tarfile.TarInfo("in/Links.jsonl")
        info.type, info.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
        archive.addfile(info)
    assert Downloads(cache, source).get("https://example.org/links.tar.gz#Links.jsonl") is None
    assert not [path for path in cache.rglob("*") if path.is_symlink()]


@pytest.mark.parametrize("name", ["set.zip", "set.tar.gz"])
def test_damaged_archives_are_errors(tmp_path, name):
    source = tmp_path / "source"
    source.mkdir()
    (zipped if name.endswith("zip") else tarred)(source / name, {"Test.jsonl": os.urandom(9999)})
    whole = (source / name).read_bytes()
    (source / name).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=rf"{name}: the packed file is cut short or damaged"):
        Downloads(tmp_path / "cache", source).get(f"https://example.org/{name}#Test.jsonl")


def test_full_disk_keeps_what_is_there(server, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(downloads, "_receive", full)
        with pytest.raises(InputError, match="is full; finished work is kept"):
            fetch(server, tmp_path)
    assert fetch(server, tmp_path).read_bytes() == CONTENT
    shutil.rmtree(tmp_path)


class Hub(Handler):
    """A data set of the hub: ``server.files`` by path, as of ``server.commit``."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        whole = self.server.files.get(self.path.partition("/resolve/main/")[2])
        with self.counted(self.server.asked, self.path):
            if whole is None:
                self.send(404, b"", X_Error_Code="EntryNotFound")
                return
            self.send_response(200)
            self.send_header("ETag", f'"{hashlib.sha1(whole).hexdigest()}"')
            self.send_header("X-Repo-Commit", self.server.commit)
            self.send_header("Content-Length", str(len(whole)))
            self.end_headers()
            self.wfile.write(whole if self.command == "GET" else b"")


def test_files_of_the_hub_are_recorded_with_their_commit(tmp_path, monkeypatch):
    """Later uses ask for the recorded commit, which the hub's cache has."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    address, files = "hf:me/sets:nq/test.jsonl", Downloads(tmp_path / "downloads")
    content = {"nq/test.jsonl": b"{}\n"}
    with serving(Hub, None, asked=[], files=content, commit="c" * 40) as server:
        template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
        path = files.get(address)
        assert path is not None and path.read_bytes() == b"{}\n"
        record = json.loads((tmp_path / "downloads" / "downloads.json").read_text())
        assert record[address]["commit"] == "c" * 40
        asked, server.commit = len(server.asked), "d" * 40
        later = Downloads(tmp_path / "downloads")
        assert later.get(address) == path and len(server.asked) == asked > 0
        with pytest.raises(
            InputError, match=r"Cannot download none\.jsonl of me/sets .*--source=D"
        ):
            files.get("hf:me/sets:none.jsonl")
