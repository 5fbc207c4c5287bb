"""Packed indexes: the same bytes on both sides, and files that must not be unpacked."""

import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from jaxrag.retrieval.corpus.manifest import Manifest, finished
from jaxrag.retrieval.corpus.packing import pack, unpack
from jaxrag.types import InputError

NAME = "0123456789abcdef"


def write(folder: Path, *, complete: bool = True, **files: bytes) -> None:
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    found = tuple(finished(folder / name) for name in files)
    Manifest("kind", {"of": folder.name}, found, complete).write(folder)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index with a complete part in a folder, an incomplete one, a lock and a stray file."""
    directory = tmp_path / "a" / NAME
    write(directory, one=b"1" * 5000, two=b"2")
    write(directory / "tree", leaves=b"3")
    write(directory / "codes", complete=False, part=b"4")
    (directory / ".lock").touch()
    (directory / "recall.json").write_text("{}")
    return directory


def content(directory: Path) -> dict[str, bytes]:
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in files}


def test_an_unpacked_index_has_the_bytes_of_the_packed_one(index: Path, tmp_path: Path) -> None:
    file, target = tmp_path / "packed" / "index.tar", tmp_path / "b" / NAME
    assert pack(index, file) == file.stat().st_size
    target.mkdir(parents=True)
    (target / ".lock").touch()  # of an earlier look into the empty directory
    unpack(file, target)
    kept = {name: data for name, data in content(index).items() if name[:5] != "codes"}
    assert content(target) == {n: d for n, d in kept.items() if n not in (".lock", "recall.json")}
    assert pack(target, tmp_path / "again.tar") and (
        (tmp_path / "again.tar").read_bytes() == file.read_bytes()
    )


def test_an_index_that_is_there_is_kept(index: Path, tmp_path: Path) -> None:
    pack(index, tmp_path / "index.tar")
    before = content(index)
    with pytest.raises(InputError, match="holds an index already"):
        unpack(tmp_path / "index.tar", index)
    assert content(index) == before


def test_a_damaged_index_is_not_packed(index: Path, tmp_path: Path) -> None:
    file = tmp_path / "index.tar"
    file.write_bytes(b"earlier")
    (index / "two").write_bytes(b"x")
    with pytest.raises(InputError, match="two has changed since it was written"):
        pack(index, file)
    assert file.read_bytes() == b"earlier"
    with pytest.raises(InputError, match="no complete index"):
        pack(index / "codes", file)


def member(name: str, data: bytes = b"x", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    found = tarfile.TarInfo(name)
    found.size = len(data)
    for field, value in fields.items():
        setattr(found, field, value)
    return found, data


HOSTILE = {
    "a path outside": [member(f"{NAME}/../../out")],
    "an absolute path": [member("/tmp/out")],
    "a symbolic link": [member(f"{NAME}/one", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd")],
    "a hard link": [member(f"{NAME}/one", b"", type=tarfile.LNKTYPE, linkname="manifest.json")],
    "a device": [member(f"{NAME}/one", b"", type=tarfile.CHRTYPE)],
    "a file beside the folder": [member(NAME)],
}


def written(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return path


def refused(file: Path, target: Path, message: str) -> None:
    """The file is refused, and nothing is left of it."""
    with pytest.raises(InputError, match=message):
        unpack(file, target)
    left = [path for path in target.parent.rglob("*") if path.name != ".lock"]
    assert left == [] and not (target.parent.parent / "out").exists()


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE)
def test_what_is_no_file_of_an_index_is_refused(members: list, tmp_path: Path) -> None:
    file = written(tmp_path / "index.tar", members)
    refused(file, tmp_path / "b" / NAME, "no file of an index")


def changed(index: Path, tmp_path: Path, change: Callable[[list], list]) -> Path:
    """A packed index with other members."""
    pack(index, tmp_path / "whole.tar")
    with tarfile.open(tmp_path / "whole.tar") as archive:
        members = [(one, archive.extractfile(one).read()) for one in archive]  # type: ignore
    return written(tmp_path / "changed.tar", change(members))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m[:-1], "leaves is missing"),
        (lambda m: [one for one in m if "manifest" not in one[0].name], "holds .*one.* that no"),
        (lambda m: [*m, member(f"{NAME}/more")], "holds more that no complete manifest lists"),
        (lambda m: [*m, m[-1]], "twice"),
        (lambda m: [(m[0][0], m[0][1]), *[(i, b"y" * i.size) for i, _ in m[1:]]], "damaged|hash"),
        (lambda m: [], "holds nothing that"),
    ],
    ids=["missing", "no manifest", "more", "twice", "other bytes", "empty"],
)
def test_what_no_manifest_confirms_is_refused(
    index: Path, tmp_path: Path, change: Callable[[list], list], message: str
) -> None:
    refused(changed(index, tmp_path, change), tmp_path / "b" / NAME, message)


def test_another_index_and_a_damaged_file_are_refused(index: Path, tmp_path: Path) -> None:
    file = tmp_path / "index.tar"
    pack(index, file)
    refused(file, tmp_path / "b" / "fedcba9876543210", f"holds the index {NAME}, but this config")
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 3])
    refused(file, tmp_path / "b" / NAME, "damaged")
    file.write_bytes(b"no tar file")
    refused(file, tmp_path / "b" / NAME, "damaged")
    with pytest.raises(InputError, match="no such file"):
        unpack(tmp_path / "none.tar", tmp_path / "b" / NAME)
