"""Stores with damaged bytes: an error, or the values that were stored."""

import contextlib
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

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
