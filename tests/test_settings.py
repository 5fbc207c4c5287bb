"""Settings of the language models reach the engines."""

from pathlib import Path

import pytest

from jaxrag.settings import Local, Server
from jaxrag.types import InputError
from tests.engines.fake_server import serving
from tests.engines.tiny_model import write_tiny_model


def test_local(tmp_path: Path) -> None:
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


def test_server(tmp_path: Path) -> None:
    write_tiny_model(tmp_path / "model")
    with serving() as server:
        model = Server(
            "tiny",
            server.url,
            tokenizer=str(tmp_path / "model"),
            max_length=50,
            template_options='{"short": true}',
        ).load(tmp_path)
        assert getattr(model, "max_length", None) == 50
        assert '"template_options":{"short":true}' in model.identity
        model.close()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("text", ["{", "[1]", "enable_thinking=False"])
def test_bad_template_options(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match="a JSON object is wanted"):
        Local(template_options=text).load(tmp_path)
