"""Memory of devices that do not exist here."""

from types import SimpleNamespace

import pytest

from jaxrag.models.device_memory import Devices


@pytest.mark.parametrize(
    "given, share",
    [
        ({}, 0.75),
        ({"XLA_CLIENT_MEM_FRACTION": "0.5"}, 0.5),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.3", "XLA_CLIENT_MEM_FRACTION": ""}, 0.3),
    ],
)
def test_the_share_of_a_gpu_that_jax_may_use(given, share, monkeypatch) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    stats = {"bytes_limit": 70, "bytes_in_use": 10}
    gpu, tpu = (
        SimpleNamespace(platform=name, memory_stats=lambda: stats) for name in ("gpu", "tpu")
    )
    assert Devices.of([gpu, gpu]) == Devices(2, 60, share=share)
    assert Devices.of([tpu]) == Devices(1, 60, share=1.0)
