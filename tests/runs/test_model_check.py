"""What the check of a model says of models that behave, and of those that do not."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.core.store import Store
from jaxrag.runs import model_check
from jaxrag.runs.model_check import QUESTIONS, CheckResult
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import Generation, InputError

READER = Reader(prompts="small", answer_tokens=8)


@dataclasses.dataclass
class Model:
    """Answers every prompt in the same way, or the easy questions rightly; counts its calls."""

    made: Generation | None = None
    off: float = 0.0
    dtype: str = "float32"
    batch_matters: bool = False
    calls: int = 0
    gives_logprobs = True

    @property
    def identity(self) -> str:
        return f'{{"dtype":"{self.dtype}","model":"{self.made}"}}'

    def generate(self, asked: Any, **options: Any) -> list[Generation]:
        self.calls += 1
        found = []
        for prompt in asked:
            right = next(a for q, a in QUESTIONS if str(prompt).endswith(f"{q}\nAnswer:"))
            text = right + "!" * (self.batch_matters and len(asked) == 1)
            found.append(self.made or Generation(text, (1, 2), (-0.5, -0.1), "end", 9))
        return found

    def logprob(self, asked: Any, texts: Any) -> list[np.ndarray]:
        return [np.array([-0.5 + self.off], np.float32) for _ in asked]


def found(model: Any) -> dict[str, CheckResult]:
    checks = model_check.run_checks(model, READER)
    return {one.subject: one for one in checks if isinstance(one, CheckResult)}


def made(text: str, reason: Any, **more: Any) -> Generation:
    return Generation(text, (1, 2), (-0.5, -0.1), reason, 9, **more)


def test_a_model_that_behaves() -> None:
    assert {name: one.level for name, one in found(Model()).items()} == dict.fromkeys(
        ("begin", "ends", "reasoning", "answers", "scores", "alone"), "OK"
    )


PAST = made("Paris<|im_end|>\n<|im_start|>user", "length")
THINKS = {"reasoning": "Hm", "reasoning_tokens": 8}


@pytest.mark.parametrize(
    ("model", "subject", "level", "way_out"),
    [
        (Model(PAST), "ends", "FAIL", "generation_config"),
        (Model(made("It is well known", "length")), "ends", "WARN", "answer_tokens"),
        (Model(made("", "length", **THINKS)), "reasoning", "FAIL", "enable_thinking"),
        (Model(made("Lima", "end", **THINKS)), "reasoning", "WARN", "costs"),
        (Model(made("Lima", "end")), "answers", "WARN", "template"),
        (Model(made("", "end")), "answers", "WARN", "empty"),
        (Model(off=0.01), "scores", "WARN", "1.0e-02"),
        (Model(off=0.01, dtype="bfloat16"), "scores", "OK", "at most 0.1"),
        (Model(off=2.0), "scores", "FAIL", "2.0e+00"),
        (Model(batch_matters=True), "alone", "WARN", "3 of 3"),
    ],
)
def test_a_model_that_does_not(model: Model, subject: str, level: str, way_out: str) -> None:
    one = found(model)[subject]
    assert (one.level, way_out in one.text) == (level, True), one


def before(model: Any, cache: Path, store: str = "store.sqlite") -> None:
    tool = LanguageModelTool(model)
    model_check.check_before("run", tool, READER, Store(cache / store), cache)


def test_a_run_asks_once_for_each_model(tmp_path: Path) -> None:
    model = Model()
    before(model, tmp_path)
    before(model, tmp_path, "other.sqlite")
    assert model.calls == 1
    before(Model(dtype="bfloat16"), tmp_path)
    next((tmp_path / "checked").iterdir()).unlink()  # its answers are stored
    before(model, tmp_path)
    assert model.calls == 1


def test_a_model_that_fails_stops_the_run(tmp_path: Path) -> None:
    model = Model(PAST)
    for _ in range(2):
        with pytest.raises(InputError, match=r"past the end.*check_model=False"):
            before(model, tmp_path)


def test_prompts_are_shown_as_messages_where_a_server_applies_its_template() -> None:
    ((role, text),) = model_check.shown_prompts(Model(), READER, ["context"])  # type: ignore
    assert role == "context" and text.endswith("Answer:")
    assert "Paris is the capital" in text
    with pytest.raises(InputError, match="nothing"):
        list(model_check.shown_prompts(Model(), READER, ["nothing"]))  # type: ignore
