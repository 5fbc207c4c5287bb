from types import SimpleNamespace
from typing import Literal

import pytest

from jaxrag.core.checks import check_choices, check_limits, check_share
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
