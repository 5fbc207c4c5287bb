"""Processes that write to stores at the same time. They import little, so they start quickly."""

from jaxrag.core.store import Store, entry_key


def write_forever(path, seed):
    store, number = Store(path), 0
    while True:
        batch = {entry_key("op", "id", f"{seed}/{number + i}"): b"v" * 300 for i in range(20)}
        store.put("op", "id", batch)
        number += 20


def make_many(directory, number, barrier, failures):
    for round_number in range(30):
        barrier.wait()
        try:
            store = Store(directory / f"{round_number}.sqlite")
            store.put("op", "id", {entry_key("op", "id", str(number)): b"v"})
            store.close()
        except Exception as error:
            failures.put(repr(error))
    failures.put(None)
