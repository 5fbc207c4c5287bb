"""Settings from texts: what each type takes, classes and their fields in any order, and errors."""

import dataclasses
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest

from experiments.configuration import choices, edited, settings
from jaxrag.data.dataset import DataSettings
from jaxrag.data.draw import Draw
from jaxrag.data.factbook.build import Factbook
from jaxrag.data.folder import Folder
from jaxrag.engines.language_model import ModelSettings
from jaxrag.engines.local.engine import Local
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.engines.server import Server
from jaxrag.engines.vllm import Vllm
from jaxrag.methods import pairs
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.methods.pairs import AgreementGate
from jaxrag.retrieval.bm25.settings import Bm25
from jaxrag.retrieval.dense.settings import BiEncoder, Exact, Scann
from jaxrag.retrieval.settings import CrossEncoder, IndexSettings, QueryLikelihood
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.retrieval.web.settings import Web
from jaxrag.retrieval.wiki_dpr.settings import WikiDpr
from jaxrag.runs.recall import Recall
from jaxrag.runs.run import Run
from jaxrag.steps.asking import Candidates, Gate
from jaxrag.steps.candidates import DualPath, FixedMix, OnePath
from jaxrag.types import InputError

RUN = Run(pairs.Config(), Factbook(countries=3), Local(), Exact())


@dataclasses.dataclass(frozen=True)
class Inner:
    size: int = 1
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.size < 0:
            raise InputError(f"size is {self.size}")


@dataclasses.dataclass(frozen=True)
class Needing:
    """Has a setting without a default."""

    place: str
    inner: Inner | None = None


@dataclasses.dataclass(frozen=True)
class Outer:
    inner: Inner = Inner()
    helper: Inner | Needing | None = None
    depths: tuple[int, ...] = (1, 5)
    pair: tuple[str, float] = ("a", 0.5)
    several: tuple[Inner, ...] = (Inner(), Inner(2))
    mode: Literal["fast", "slow"] = "fast"
    limit: int | None = None
    share: float = 0.0
    active: bool = False
    word: str = ""


@pytest.mark.parametrize(
    "key, text, value",
    [
        ("depths", "3,7", (3, 7)),
        ("depths", "(3, 7)", (3, 7)),
        ("depths", "4", (4,)),
        ("depths", "()", ()),
        ("pair", "b, 2", ("b", 2.0)),
        ("mode", "slow", "slow"),
        ("limit", "12", 12),
        ("limit", "None", None),
        ("share", "1e-3", 0.001),
        ("share", "2", 2.0),
        ("active", "True", True),
        ("active", "false", False),
        ("word", "None", "None"),
        ("word", "a=b,c", "a=b,c"),
    ],
)
def test_a_text_is_read_by_the_type_of_its_field(key: str, text: str, value: Any) -> None:
    found = getattr(edited(Outer(limit=3), {key: text}), key)
    assert found == value and type(found) is type(value)


def test_unchanged_parts_are_the_same_objects() -> None:
    before = Outer(inner=Inner(3))
    after = edited(before, {"several.1.size": "9"})
    assert after.inner is before.inner and after.several[0] is before.several[0]
    assert after.several[1] == Inner(9) and edited(before, {}) is before


def test_optional_numbers_in_nested_helpers() -> None:
    chosen = edited(Outer(), {"helper": "Inner", "helper.rate": "0.5"})
    assert chosen.helper == Inner(rate=0.5)
    assert edited(chosen, {"helper.rate": "None"}).helper == Inner()
    assert edited(chosen, {"helper": "None"}).helper is None


@pytest.mark.parametrize("turned", [False, True])
def test_a_class_and_its_fields_come_in_any_order(turned: bool) -> None:
    given = {
        "helper": "Needing", "helper.place": "x", "helper.inner": "Inner",
        "helper.inner.size": "4",
    }  # fmt: skip
    changes = dict(reversed(given.items())) if turned else given
    assert edited(Outer(), changes).helper == Needing("x", Inner(4))


def test_tuples_of_classes() -> None:
    changes = {"indexes": "Bm25,Exact", "indexes.1.metric": "l2", "indexes.0.k1": "2"}
    job = edited(Recall((Bm25(),), (Factbook(),)), changes)
    assert job.indexes == (Bm25(k1=2.0), Exact(metric="l2"))


def test_classes_are_found_by_what_a_field_needs() -> None:
    assert choices(ModelSettings) == {
        "Local": Local, "Vllm": Vllm, "Server": Server, "Seq2Seq": Seq2Seq,
    }  # fmt: skip
    assert choices(IndexSettings | None) == {
        "Exact": Exact, "Scann": Scann, "Bm25": Bm25, "Sidr": Sidr, "Web": Web, "WikiDpr": WikiDpr,
    }  # fmt: skip
    assert choices(DataSettings) == {"Draw": Draw, "Factbook": Factbook, "Folder": Folder}
    assert choices(Candidates) == {"OnePath": OnePath, "DualPath": DualPath, "FixedMix": FixedMix}
    assert {"AgreementGate", "UncertaintyGate", "JudgeGate", "Always"} <= {*choices(Gate)}
    assert not {*choices(Gate)} & {*choices(Candidates)}
    assert choices(BiEncoder) == {"BiEncoder": BiEncoder} and choices(int) == {}


def test_classes_of_a_run() -> None:
    run = edited(RUN, {
        "index": "Web", "index.count": "5", "model": "Vllm", "model.memory": "0.5",
        "reranker": "CrossEncoder", "reranker.checkpoint": "x", "method.gate": "UncertaintyGate",
        "method.candidates": "FixedMix", "data": "Draw", "data.source": "Folder",
        "data.source.path": "p",
    })  # fmt: skip
    assert run.index == Web(count=5) and run.model == Vllm(memory=0.5)
    assert run.reranker == CrossEncoder("x") and run.method.gate == UncertaintyGate()
    assert run.method.candidates == FixedMix() and run.data == Draw(Folder("p"))
    assert edited(run, {"index": "None", "reranker": "QueryLikelihood"}) == dataclasses.replace(
        run, index=None, reranker=QueryLikelihood()
    )


@pytest.mark.parametrize(
    "changes, told",
    [
        ({"inner.sise": "1"}, r"no setting --config\.inner\.sise; the nearest is .*inner\.size"),
        ({"depth": "1"}, r"the nearest is --config\.depths"),
        ({"word.of": "1"}, r"no setting --config\.word\.of"),
        ({"several.2.size": "1"}, r"the nearest is --config\.several\.[01]"),
        ({"helper": "Iner"}, r"--config\.helper is 'Iner'; allowed: Inner or Needing.*est: Inner"),
        ({"inner": "None"}, r"--config\.inner is 'None'; allowed: Inner"),
        ({"helper.size": "1"}, r"helper is not set; .*--config\.helper=Inner or Needing"),
        ({"helper": "Needing"}, r"Needing needs place: give --config\.helper\.place"),
        ({"helper": "Needing", "helper.plase": "x"}, r"nearest is --config\.helper\.place"),
        ({"helper": "Inner", "helper.size": "-1"}, "size is -1"),
        ({"mode": "quick"}, r"--config\.mode is 'quick'; allowed: fast or slow"),
        ({"limit": "many"}, r"--config\.limit is 'many'; allowed: an integer"),
        ({"limit": "0.5"}, "allowed: an integer"),
        ({"share": "None"}, r"--config\.share is 'None'; allowed: a number"),
        ({"active": "maybe"}, "allowed: True or False"),
        ({"depths": "1,x"}, r"--config\.depths\.1 is 'x'; allowed: an integer"),
        ({"pair": "a"}, "allowed: 2 values with commas between them"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, str], told: str) -> None:
    with pytest.raises(InputError, match=told):
        edited(Outer(), changes)


def test_all_settings_by_name() -> None:
    found = settings(RUN, "config")
    assert found["config.method.gate"] == AgreementGate()
    assert found["config.method.gate.f1"] == 0.8 and found["config.reranker"] is None
    assert settings(Outer(), "x")["x.several.1.size"] == 2


class Reads(Protocol):
    """A protocol with one method, as a user may write it."""

    def read(self, path: Path, *, deep: bool) -> str: ...


def test_methods_must_have_the_parameters_of_the_protocol(monkeypatch: Any) -> None:
    @dataclasses.dataclass(frozen=True)
    class Right:
        def read(self, path: Path, *, deep: bool) -> str:
            return ""

    @dataclasses.dataclass(frozen=True)
    class Other:
        def read(self, file: Path) -> str:
            return ""

    @dataclasses.dataclass(frozen=True)
    class Returns:
        def read(self, path: Path, *, deep: bool) -> int:
            return 0

    monkeypatch.setattr("experiments.configuration._dataclasses", lambda: [Right, Other, Returns])
    assert choices(Reads) == {"Right": Right}
