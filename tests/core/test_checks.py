from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest

from jaxrag.core.checks import check_choices, check_limits, check_local, check_share
from jaxrag.types import InputError


def test_values_out_of_range_are_refused_by_name() -> None:
    check_limits(steps=1)
    with pytest.raises(InputError, match=r"^tokens is 0; it must be at least 1\.$"):
        check_limits(steps=1, tokens=0)
    for share in (-0.1, 1.0, float("nan")):
        with pytest.raises(InputError, match=r"^held_out is .*; it must be at least 0 and below 1"):
            check_share(held_out=share)
    settings = SimpleNamespace(mode="x", form="short")
    check_choices(settings, form=Literal["short", "long"])
    with pytest.raises(InputError, match=r"^mode is 'x'; allowed: fast, slow\.$"):
        check_choices(settings, form=Literal["short", "long"], mode=Literal["fast", "slow"])


@pytest.mark.parametrize(
    "path",
    [
        "gs://bucket/cache",
        "s3://bucket/cache",
        "hdfs://host:9000/cache",
        "file:///tmp/x",
        Path("gs://bucket/cache"),  # it is gs:/bucket/cache
        Path("s3://bucket").absolute() / "indexes",
    ],
)
def test_paths_of_other_file_systems_are_refused(path) -> None:
    with pytest.raises(InputError, match=r"^cache is '.*', which is not a path .*: mount it as a"):
        check_local({"cache": path})


def test_paths_of_this_machine_are_not() -> None:
    check_local({"a": "", "b": "runs/cache", "c": Path("/tmp/a:b/c"), "d": "~/x", "e": "hub:org/x"})
    check_local({"f": "package:llm", "g": "configs/dtr.py:dtr@nq"})
