"""Abstract arguments for the jitted functions of jaxrag.models.decoder.inspection."""

from collections.abc import Callable
from typing import Any

import numpy as np

from jaxrag.models.decoder.inspection import inspect, predict
from tests.models.decoder.exports import (
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
    "jaxrag.models.decoder.inspection.inspect": lambda: (
        inspect,
        (DECODER, params(), cache(), abstract((ROWS, CHUNK), np.int32), ROW, NUMBER),
        {},
    ),
    "jaxrag.models.decoder.inspection.predict": lambda: (
        predict,
        (DECODER, params(), hidden(7), abstract((7,), np.int32)),
        {},
    ),
}
