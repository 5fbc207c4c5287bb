import contextlib
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.store import main
from jaxrag.core.rescue import rescue
from jaxrag.core.store import Store, entry_key
from jaxrag.types import InputError

CHANCE = random.Random(0)
VALUES = {
    entry_key("op", "id", str(i)): CHANCE.randbytes(CHANCE.choice([20, 200, 900, 6000]))
    for i in range(120)
}
PAGE = 4096


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a store that holds VALUES, of two producers."""
    path = tmp_path_factory.mktemp("whole") / "s.sqlite"
    store, items = Store(path), list(VALUES.items())
    store.put("op", "id", dict(items[:60]))
    store.put("op2", "id2", dict(items[60:]))
    store.close()
    return path.read_bytes()


def flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice([1, 4])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def flip_structure(data: bytearray, chance: random.Random) -> None:
    page = chance.randrange(len(data) // PAGE)
    data[page * PAGE + chance.randrange(120 if page == 0 else 60)] ^= 1 << chance.randrange(8)


def noise(data: bytearray, chance: random.Random) -> None:
    page = chance.randrange(len(data) // PAGE)
    data[page * PAGE : (page + 1) * PAGE] = chance.randbytes(PAGE)


def cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data)) :]


def damaged(whole: bytes, damage: Callable, number: int, path: Path) -> Path:
    data = bytearray(whole)
    damage(data, random.Random(f"{damage.__name__} {number}"))
    for file in path.parent.glob(f"{path.name}*"):
        file.unlink()
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("damage", [flip, flip_structure, noise, cut])
@pytest.mark.parametrize("tries", [100, pytest.param(3000, marks=pytest.mark.slow)])
def test_a_damaged_store_never_returns_wrong_values(
    whole: bytes, tmp_path: Path, damage: Callable, tries: int
) -> None:
    errors = 0
    for number in range(tries):
        path = damaged(whole, damage, number, tmp_path / "s.sqlite")
        try:
            with contextlib.closing(Store(path)) as store:
                found = store.get(list(VALUES))
                assert found.items() <= VALUES.items()
                store.put("op", "id", {key: VALUES[key] for key in VALUES.keys() - found.keys()})
            with contextlib.closing(Store(path)) as store:
                assert store.get(list(VALUES)).items() <= VALUES.items()
        except InputError as error:
            assert str(path) in str(error)
            errors += 1
    assert errors > tries // 4


@pytest.mark.parametrize(
    ("damage", "least"), [(flip, 0.9), (flip_structure, 0.9), (noise, 0.7), (cut, 0.0)]
)
def test_rescue_keeps_intact_entries(
    whole: bytes, tmp_path: Path, damage: Callable, least: float
) -> None:
    kept = []
    for number in range(25):
        path = damaged(whole, damage, number, tmp_path / "s.sqlite")
        before = path.read_bytes()
        try:
            kept.append(rescue(path))
        except InputError as error:  # the file header is damaged
            assert str(path) in str(error) and path.read_bytes() == before
            kept.append(0)
            continue
        assert (tmp_path / "s.sqlite.damaged").read_bytes() == before
        store = Store(path)
        found = store.get(list(VALUES))
        assert len(found) == kept[-1] and found.items() <= VALUES.items()
        assert store.verify() == (kept[-1], [])
        store.close()
    assert sum(kept) >= least * len(kept) * len(VALUES)


def test_rescue_keeps_producers_and_reads_the_write_ahead_log(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    store = Store(path)
    store.put("op", "id", {key: VALUES[key] for key in list(VALUES)[:5]})
    assert Path(f"{path}-wal").stat().st_size > path.stat().st_size
    assert rescue(path) == 5
    ((operation, identity, entries, _),) = Store(path).producers()
    assert (operation, identity, entries) == ("op", "id", 5)


def test_store_rescue_command(whole: bytes, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    path = tmp_path / "s.sqlite"
    path.write_bytes(whole[: len(whole) - PAGE])
    with pytest.raises(InputError, match=f"jaxrag store rescue {path}"):
        Store(path).get(list(VALUES))
    assert main(["store", "rescue", str(path)]) == 0
    assert "entries kept" in capsys.readouterr().out
    assert main(["store", "verify", str(path)]) == 0
    with pytest.raises(InputError, match="earlier rescue"):
        main(["store", "rescue", str(path)])
    text = tmp_path / "notes.txt"
    text.write_text("no database" * 100)
    with pytest.raises(InputError, match="Nothing can be read"):
        main(["store", "rescue", str(text)])
    assert sorted(file.name for file in tmp_path.iterdir() if "notes" in file.name) == ["notes.txt"]


def test_an_entry_of_another_type_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    key = next(iter(VALUES))
    store = Store(path)
    store.put("op", "id", {key: VALUES[key]})
    store.close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE entries SET value = 'text'")
    connection.commit()
    connection.close()
    with pytest.raises(InputError, match=key.hex()[:16]):
        Store(path).get([key])
    assert Store(path).verify(drop=True) == (1, [key.hex()])
