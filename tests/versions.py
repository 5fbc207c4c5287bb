"""What tests need of old versions of the dependencies (`make test-oldest`)."""

import jax
import pytest

sums_alike_on_cpus = pytest.mark.skipif(
    jax.__version_info__ < (0, 8),
    reason="JAX before 0.8 sums one row's products in another order on CPUs, which the probe sees",
)
bfloat16_on_cpus = pytest.mark.skipif(
    jax.__version_info__ < (0, 8), reason="JAX before 0.8 has no products of bfloat16 on CPUs"
)
