"""The jitted functions of jaxrag.engines with abstract arguments, for tests.test_export."""

import jax
import numpy as np

from jaxrag.engines import tail

CASES = {
    "jaxrag.engines.tail.product": lambda: (
        tail.product,
        (jax.ShapeDtypeStruct((4, 8), np.float32), jax.ShapeDtypeStruct((16, 8), np.float32)),
        {},
    ),
}
