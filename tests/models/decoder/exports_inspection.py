"""Abstract arguments for the jitted functions of jaxrag.models.inspection."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxrag.models.inspection import inspect, predict
from tests.models.exports_decoder import (
    CHUNK,
    DECODER,
    NUMBER,
    ROW,
    ROWS,
    abstract,
    cache,
    hidden,
    params,
)

CASES: dict[str, Callable[[], tuple[Any, tuple[Any, ...], dict[str, Any]]]] = {
    "jaxrag.models.inspection.inspect": lambda: (
        inspect,
        (DECODER, params(), cache(), abstract((ROWS, CHUNK), np.int32), ROW, NUMBER),
        {},
    ),
    "jaxrag.models.inspection.predict": lambda: (
        predict,
        (DECODER, params(), hidden(7), abstract((7,), np.int32)),
        {},
    ),
}
