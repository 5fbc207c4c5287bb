"""A checkpoint whose record is valid JSON but no object is damaged, not a traceback."""

from pathlib import Path
from typing import Any

import pytest

from jaxrag.training.checkpoints import Checkpoints
from jaxrag.types import InputError


@pytest.mark.parametrize("record", [None, [1], "text", {}])
def test_a_record_that_is_no_object_is_named(record: Any, monkeypatch: Any) -> None:
    found = Checkpoints.__new__(Checkpoints)
    found._directory = Path("checkpoints")
    monkeypatch.setattr(Checkpoints, "newest", property(lambda _: 4))
    monkeypatch.setattr(found, "_read", lambda *_, **__: {"record": record}, raising=False)
    with pytest.raises(InputError, match="the hash of its record differs"):
        found.restore({})
