"""How many answers the local engine writes at once."""

from typing import Any

from jaxrag.engines.local import decoding


def rows_of_decoding(monkeypatch: Any) -> list[int]:
    """Filled with the number of rows of each call of `decode`."""
    rows, real = [], decoding.decode

    def decode(*args: Any, **settings: Any) -> Any:
        rows.append(len(args[3].token))
        return real(*args, **settings)

    monkeypatch.setattr(decoding, "decode", decode)
    return rows
