"""The model's inside through scheduler and store."""

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.core.store import Store
from jaxrag.engines.local.inspection import Inspection
from jaxrag.engines.scheduler import Scheduler, gather
from jaxrag.steps.inspection_tool import InspectionTool, decode_inspection, encode_inspection
from jaxrag.types import Message
from tests.methods.inspecting.looking import Transparent


def ask(tool, store, prompt="Rome is", text=" old"):
    async def both():
        return await gather(
            tool.look(prompt, text),
            tool.state(prompt, text, layer=None),
            tool.state(prompt, text, layer=1),
        )

    (outcome,) = Scheduler(store).run([("q", both)])
    if outcome.error:
        raise outcome.error
    return outcome


def test_stored_results_are_unchanged(tmp_path) -> None:
    model = Transparent(lambda prompt, seed: "")
    store = Store(tmp_path / "store.sqlite")
    first = ask(InspectionTool(model), store)
    assert first.cost["llm_scores"] == 3 and first.cost["scored_tokens"] == 12
    store.close()
    store = Store(tmp_path / "store.sqlite")
    model.inspect = None  # not asked again
    again = ask(InspectionTool(model), store)
    for one, other in zip(first.value, again.value, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b)
            assert getattr(a, "dtype", None) == getattr(b, "dtype", None)
    other = Transparent(lambda prompt, seed: "")
    other.identity = '{"model":"another"}'
    ask(InspectionTool(other), store)
    assert other.looked
    store.close()


def test_results_of_different_layers_are_stored_separately(tmp_path) -> None:
    tool = InspectionTool(Transparent(lambda prompt, seed: ""))
    asked = (tool.look("a", "b"), tool.state("a", "b", layer=None), tool.state("a", "b", layer=3))
    identities = [json.loads(request.operation.identity) for request in asked]
    assert [one.get("layer", "-") for one in identities] == ["-", None, 3]
    mlp = json.loads(tool.state("a", "b", layer=3, part="mlp").operation.identity)
    assert mlp == {**identities[2], "part": "mlp"} and "part" not in identities[2]
    assert tool.state("a", "b", layer=3).operation is tool.state("c", "d", layer=3).operation


@settings(deadline=None, max_examples=30)
@given(st.text(), st.integers(0, 5), st.integers(0, 5))
def test_inspections_survive_encoding(text, t, more) -> None:
    rng = np.random.default_rng(t)
    real = [np.float32(rng.normal(size=shape)) for shape in ((t,), (t,), (t, t + more), (4,))]
    seen = Inspection(text, np.int32(rng.integers(0, 9, (t + more, 2))), *real)
    found = decode_inspection(encode_inspection(seen))
    assert found.text == text
    for a, b in zip(found[1:], seen[1:], strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype and a.shape == b.shape


def test_message_prompts_have_a_size() -> None:
    tool = InspectionTool(Transparent(lambda prompt, seed: ""))
    size = tool.look("a", "b").operation.size
    assert size(("abc", "de")) == 5
    assert size(((Message("system", "abc"), Message("user", "de")), "f")) == 6
