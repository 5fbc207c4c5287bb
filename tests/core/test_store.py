"""The store: what is kept, merged, verified and refused; damaged bytes; shared file systems."""

import contextlib
import multiprocessing
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.core import store as stores
from jaxrag.core.hashing import canonical
from jaxrag.core.store import Producer, Store, entry_key
from jaxrag.experiments.store import main
from jaxrag.types import InputError
from tests.core import store_writers


def test_canonical_json_sorts_keys_and_refuses_nan():
    assert canonical({"b": 1, "a": [1.5, "é"]}) == '{"a":[1.5,"é"],"b":1}'
    for bad in (float("nan"), float("inf")):
        with pytest.raises(ValueError):
            canonical(bad)


def make_first_format(path):
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE entries DROP COLUMN seconds")
        connection.execute("UPDATE format SET version = 1")
    connection.close()


def test_seconds_stay_with_their_entry_also_in_a_store_of_the_first_format(tmp_path):
    timed, old, new = (entry_key("op", "id", name) for name in "abc")
    other = Store(tmp_path / "other.sqlite")
    other.put("op", "id", {timed: b"1"}, seconds={timed: 0.25})
    path = tmp_path / "old.sqlite"
    store = Store(path)
    store.put("op", "id", {old: b"2"})
    store.close()
    make_first_format(path)
    store = Store(path)
    store.put("op", "id", {new: b"3"}, seconds={new: 0.5})
    store.merge(other)
    assert store.verify() == (3, [])
    found = Store(path).get_timed([timed, old, new])
    assert found == {timed: (b"1", 0.25), old: (b"2", None), new: (b"3", 0.5)}


def test_damaged_seconds_are_noticed(tmp_path):
    key = entry_key("op", "id", "a")
    store = Store(tmp_path / "s.sqlite")
    store.put("op", "id", {key: b"1"}, seconds={key: 0.25})
    for damaged in ("0.5", "'x'", "NULL"):
        store._connection.execute(f"UPDATE entries SET seconds = {damaged}")
        assert store.verify() == (1, [key.hex()])


def test_entry_keys_depend_on_every_part():
    keys = {entry_key(*parts) for parts in [("a", "b", "c"), ("a", "b", "d"), ("a", "c", "b"),
                                            ("ab", "", "c"), ("a", "bc", "")]}  # fmt: skip
    assert len(keys) == 5


@settings(max_examples=10, deadline=None)
@given(st.dictionaries(st.binary(min_size=32, max_size=32), st.binary(), max_size=1200))
def test_many_keys_at_once(entries):
    store = Store(None)
    store.put("op", "id", entries)
    assert store.get(list(entries)) == entries
    assert store.verify() == (len(entries), [])


def test_survives_kills_and_two_writers(tmp_path):
    path = tmp_path / "s.sqlite"
    context = multiprocessing.get_context("spawn")
    for round_number in range(2):
        writers = [
            context.Process(target=store_writers.write_forever, args=(path, 2 * round_number + i))
            for i in range(2)
        ]
        for writer in writers:
            writer.start()
        deadline = time.monotonic() + 60
        while not (path.exists() and _entries(path) > 400 * (round_number + 1)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for writer in writers:
            assert writer.pid
            os.kill(writer.pid, signal.SIGKILL)
            writer.join()
    count, damaged = Store(path).verify()
    assert damaged == [] and count % 20 == 0 and count > 800  # whole batches only


def _entries(path):
    try:
        return sum(producer.entries for producer in Store(path).producers())
    except sqlite3.Error:
        return 0


def test_several_processes_may_create_a_store_at_once(tmp_path):
    context, count = multiprocessing.get_context("spawn"), 5
    barrier, failures = context.Barrier(count), context.Queue()
    writers = [
        context.Process(target=store_writers.make_many, args=(tmp_path, number, barrier, failures))
        for number in range(count)
    ]
    for writer in writers:
        writer.start()
    ended = 0
    while ended < count:
        failure = failures.get(timeout=60)
        assert failure is None, failure
        ended += 1
    for writer in writers:
        writer.join()
    assert {_entries(file) for file in tmp_path.glob("*.sqlite")} == {count}


def test_an_io_error_and_a_full_disk_have_different_messages(tmp_path, monkeypatch):
    store = Store(tmp_path / "s.sqlite")
    broken = sqlite3.OperationalError("disk I/O error")
    for free, expected in ((1 << 30, "check the disk"), (1 << 12, "disk is full")):
        usage = shutil.disk_usage(tmp_path)._replace(free=free)
        monkeypatch.setattr(shutil, "disk_usage", lambda path, usage=usage: usage)
        message = str(store._explained(broken))
        assert expected in message and store.path in message and "again" in message


def test_damage_is_found_named_and_dropped(tmp_path, capsys):
    path = tmp_path / "s.sqlite"
    store = Store(path)
    good, bad = entry_key("op", "id", "good"), entry_key("op", "id", "bad")
    store.put("op", "id", {good: b"1", bad: b"2"})
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE entries SET value = x'33' WHERE key = ?", (bad,))
    connection.close()
    with pytest.raises(InputError, match=bad.hex()[:16]):
        Store(path).get([bad])
    assert main(["store", "verify", str(path)]) == 1
    assert bad.hex() in capsys.readouterr().out
    assert main(["store", "verify", "--drop", str(path)]) == 0
    assert main(["store", "verify", str(path)]) == 0
    assert main(["store", "report", str(path)]) == 0
    assert "op" in capsys.readouterr().out
    assert Store(path).get([good, bad]) == {good: b"1"}


def test_a_file_that_is_not_a_store_is_refused(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("not a database, but long enough to have a header of its own" * 20)
    with pytest.raises(InputError, match=r"notes\.txt"):
        Store(text)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE mine(x)")
    connection.close()
    with pytest.raises(InputError, match="not a jaxrag store"):
        Store(other)
    for end in ("", "-journal"):  # opening a pipe would wait for ever
        os.mkfifo(tmp_path / f"pipe.sqlite{end}")
        with pytest.raises(InputError, match=rf"pipe\.sqlite{end} is a pipe or a device"):
            Store(tmp_path / "pipe.sqlite")
        (tmp_path / f"pipe.sqlite{end}").unlink()
    with pytest.raises(InputError, match="no store"):
        main(["store", "report", str(tmp_path / "absent")])


def test_a_newer_format_is_refused(tmp_path):
    path = tmp_path / "s.sqlite"
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE format SET version = 99")
    connection.close()
    with pytest.raises(InputError, match="format 99"):
        Store(path)


def test_full_disk_is_one_clear_error_and_loses_nothing(tmp_path):
    store = Store(tmp_path / "s.sqlite")
    key = entry_key("op", "id", "kept")
    store.put("op", "id", {key: b"kept"})
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count={pages + 2}")
    with pytest.raises(InputError, match="disk is full"):
        store.put("op", "id", {entry_key("op", "id", str(i)): b"x" * 4000 for i in range(50)})
    assert store.get([key]) == {key: b"kept"}
    assert store.verify() == (1, [])


def test_stores_of_several_machines_are_merged(tmp_path, capsys):
    paths = [tmp_path / f"{name}.sqlite" for name in "abc"]
    values = ({b"1" * 32: b"x"}, {b"1" * 32: b"y", b"2" * 32: b"z"}, {})
    for path, entries in zip(paths, values, strict=True):
        store = Store(path)
        store.put("generate", "model", entries)
        store.close()
    assert main(["store", "merge", *map(str, paths)]) == 0
    assert capsys.readouterr().out.startswith("1 new entries from")
    store = Store(paths[0])
    # what was here keeps its value
    assert store.get([b"1" * 32, b"2" * 32]) == {b"1" * 32: b"x", b"2" * 32: b"z"}
    assert store.producers() == [Producer("generate", "model", 2, 2)]
    store.close()
    with pytest.raises(InputError, match="that others are merged into"):
        main(["store", "merge", str(paths[0]), str(paths[0])])
    with pytest.raises(InputError, match="there is no store at"):
        main(["store", "merge", str(paths[0]), str(tmp_path / "none")])


def test_a_damaged_entry_ends_a_merge(tmp_path):
    target, source = Store(tmp_path / "a.sqlite"), Store(tmp_path / "b.sqlite")
    source.put("generate", "model", {b"1" * 32: b"x"})
    source._connection.execute("UPDATE entries SET value = ?", (b"y",))
    with pytest.raises(InputError, match=r"b\.sqlite: entry 3131.* is damaged"):
        target.merge(source)
    for one in (target, source):
        one.close()


@pytest.mark.parametrize("first_format", [False, True])
def test_a_store_that_cannot_be_written_gives_its_results(tmp_path, monkeypatch, first_format):
    store = Store(tmp_path / "a.sqlite")
    store.put("generate", "model", {b"1" * 32: b"x"})
    store.close()
    if first_format:
        make_first_format(tmp_path / "a.sqlite")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    fixed = Store(tmp_path / "a.sqlite")
    assert fixed.get([b"1" * 32]) == {b"1" * 32: b"x"}
    with pytest.raises(InputError, match="give the run another store"):
        fixed.put("generate", "model", {b"2" * 32: b"y"})
    fixed.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a.sqlite"]


def test_a_store_that_another_process_writes_is_read_with_its_log(tmp_path, monkeypatch):
    writer = Store(tmp_path / "a.sqlite")
    writer.put("generate", "model", {b"1" * 32: b"x"})
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    reader = Store(tmp_path / "a.sqlite")
    writer.put("generate", "model", {b"2" * 32: b"y"})
    assert reader.get([b"1" * 32, b"2" * 32]) == {b"1" * 32: b"x", b"2" * 32: b"y"}
    reader.close()
    writer.close()


def test_a_variable_names_the_cache_of_commands_and_settings() -> None:
    say = (
        "from jaxrag.experiments.options import COMMANDS; "
        "from jaxrag.runs.settings import RunSettings; "
        "print(RunSettings.cache, *(o[2] for o in COMMANDS['data'].options if o[1] == 'workdir'))"
    )
    environment = {**os.environ, "JAXRAG_CACHE": "/a/b"}
    found = subprocess.check_output([sys.executable, "-c", say], env=environment, text=True)
    assert found.split() == ["/a/b", "/a/b"]


def test_without_the_variable_the_cache_is_the_users_on_a_local_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JAXRAG_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home/not yet"))
    ours = str(tmp_path / "home/not yet/jaxrag")
    with monkeypatch.context() as patch:
        patch.setattr(stores, "file_system", lambda path: "ext4")
        assert stores._default_cache() == ours
        patch.setattr(os, "access", lambda path, mode: path != tmp_path)
        assert stores._default_cache() == "runs/cache"
        patch.undo()
        patch.setattr(stores, "file_system", lambda path: "nfs4" if "home" in str(path) else "ext4")
        assert stores._default_cache() == "runs/cache"
    (tmp_path / "runs/cache").mkdir(parents=True)  # of an earlier version: goes on
    monkeypatch.setattr(stores, "file_system", lambda path: "ext4")
    assert stores._default_cache() == "runs/cache"


TABLE = """\
22 27 0:21 / /proc rw,nosuid shared:12 - proc proc rw
36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
41 35 0:52 / /home/a\\040b rw,relatime - nfs4 server:/home rw,vers=4.2
42 35 0:53 / /bucket rw shared:1 master:2 - fuse.gcsfuse bucket rw
"""


def test_a_table_of_mounts_is_read(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    assert stores._mounted(table) == {
        (0, 21): "proc",
        (98, 0): "ext3",
        (0, 52): "nfs4",
        (0, 53): "fuse.gcsfuse",
    }
    assert stores._mounted(tmp_path / "none") == {}


def test_proc_is_known_and_a_missing_path_is_on_its_parent_s_file_system(tmp_path: Path) -> None:
    assert stores.file_system("/proc/self") == "proc"
    missing = tmp_path / "a" / "b" / "c"
    assert stores.file_system(missing) == stores.file_system(tmp_path)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "lustre", "fuse.gcsfuse"])
def test_a_store_on_a_network_file_system_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path.stat().st_dev
    numbers = (os.major(device), os.minor(device))
    monkeypatch.setattr(stores, "_mounted", lambda table: {numbers: kind})
    with pytest.raises(InputError, match=rf"network file system \({kind}\).*config\.store"):
        Store(tmp_path / "new" / "store.sqlite")
    assert not (tmp_path / "new").exists()
    Store(None).close()  # in memory


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
