"""Settings of the local engine reach it."""

import dataclasses
from pathlib import Path

import pytest

from jaxrag.engines.local.engine import Local
from jaxrag.types import InputError
from tests.engines.tiny_model import write_tiny_model


@pytest.mark.usefixtures("unprobed")
def test_local_settings(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "model")
    settings = Local(
        str(tmp_path / "model"),
        max_length=40,
        rows=16,
        cache_gib=0.5,
        template_options='{"short": true}',
    )
    model = settings.load(tmp_path)
    assert getattr(model, "max_length", None) == 40
    assert '"template_options":{"short":true}' in model.identity
    assert '"sizes":[8,16,32,536870912]' in model.identity


def test_local_over_several_devices(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "model")
    alone = Local(str(tmp_path / "model"))
    spread = dataclasses.replace(alone, data_parallel=2, tensor_parallel=2).load(tmp_path)
    assert '"mesh":{"data":2,"model":2}' in spread.identity
    prompts = ["the cat", "a river of words"]
    found, wanted = (
        model.generate(prompts, max_new_tokens=4, temperature=0.0)
        for model in (spread, alone.load(tmp_path))
    )
    assert [one.tokens for one in found] == [one.tokens for one in wanted]
    with pytest.raises(InputError, match="is 16 devices; there are 8"):
        dataclasses.replace(alone, data_parallel=16).load(tmp_path)
    with pytest.raises(InputError, match="tensor_parallel 0"):
        dataclasses.replace(alone, tensor_parallel=0).load(tmp_path)


@pytest.mark.parametrize("text", ["{", "[1]", "enable_thinking=False"])
def test_invalid_template_options_are_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="it must be a JSON object"):
        Local(template_options=text).load(tmp_path)
