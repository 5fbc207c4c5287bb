"""Self-RAG: decisions, scores and beams on scripts, and on a tiny checkpoint of its kind."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import AddedToken

from jaxrag.calls import bounds
from jaxrag.engines.local import LocalModel
from jaxrag.methods import prompts, reflection, self_rag
from jaxrag.methods.candidates import OnePath
from jaxrag.methods.language_model_tool import LanguageModelTool
from jaxrag.methods.selectors import Top
from jaxrag.methods.self_rag import Config
from jaxrag.methods.steps import Reader
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import Generation, InputError, Question
from tests.engines.tiny_model import write_tiny_model
from tests.methods.scripted import QUESTION, ScriptedIndex, run
from tests.models.decoder_reference import CONFIGS
from tests.retrieval.fakes import FakePassages

ANGLES = {"a": 0, "b": 20, "c": 40, "d": 60, "e": 80}
QUERIES = {"Oslo": 80, "": 35}
CHECKPOINT = Reader(prompts="self_rag_checkpoint", answer_tokens=9)
PROMPTED = Reader(prompts="self_rag_small")
TWO = {"candidates": OnePath(n=2), "select": Top(k=2)}
OPENING = "### Instruction:\nWhere is it?\n\n### Response:\n"


class Tokens:
    """Reflection tokens whole, anything else letter by letter."""

    chat_template = None

    def encode(self, text: str, **_: Any) -> list[str]:
        return re.findall("|".join(map(re.escape, reflection.TOKENS)) + "|.|\n", text)


class Reflecting:
    """Says and judges what a test writes down: the first entry whose key is in the prompt.

    ``said`` gives (text, probabilities, reason), ``judged`` probabilities of words by their text.
    """

    identity = '{"model":"reflecting"}'
    tokenizer, max_length = Tokens(), 100_000

    def __init__(self, said: dict[str, Any], judged: dict[str, dict[str, float]]) -> None:
        self.said, self.judged = said, judged
        self.prompts: list[str] = []
        self.settings: list[dict[str, Any]] = []
        self.asked: list[tuple[str, str]] = []

    def generate(self, prompts: Any, **settings: Any) -> list[Generation]:
        self.prompts += prompts
        self.settings += [settings] * len(prompts)
        return [self._one(prompt) for prompt in prompts]

    def _one(self, prompt: str) -> Generation:
        text, probabilities, reason = next(v for k, v in self.said.items() if k in prompt)
        logs = tuple(map(math.log, probabilities))
        return Generation(text, tuple(range(len(logs))), logs, reason, len(prompt))

    def logprob(self, prompts: Any, continuations: Any) -> list[np.ndarray]:
        pairs = list(zip(prompts, continuations, strict=True))
        self.asked += pairs
        return [np.float32([math.log(self._probability(p, w.strip()))]) for p, w in pairs]

    def _probability(self, prompt: str, word: str) -> float:
        for key, words in self.judged.items():
            if key in prompt and word in words:
                return words[word]
        return 0.125


def answered(model: Any, question: Question = QUESTION, **settings: Any) -> Any:
    config = Config(**{"reader": CHECKPOINT, **TWO, **settings})
    return run(self_rag.answer, config, model, ScriptedIndex(ANGLES, QUERIES), question=question)


def needs(probability: float, other: float = 0.25) -> dict[str, float]:
    return {"[Retrieval]": probability, "[No Retrieval]": other}


GOOD = {"[Relevant]": 0.75, "[Irrelevant]": 0.25, "[Fully supported]": 0.5, "[Utility:5]": 0.5}
BAD = {"[Relevant]": 0.25, "[Irrelevant]": 0.75, "[No support / Contradictory]": 0.75}


def test_a_checkpoint_reads_each_passage_alone_and_takes_the_best() -> None:
    model = Reflecting(
        {"text of c": ("Oslo.", [0.5, 0.5], "end"), "text of b": ("Rome.", [0.5, 0.125], "end")},
        {"text of c": BAD, "text of b": GOOD, "Response": needs(0.75)},
    )
    found = answered(model)
    trace = found.value.trace
    assert found.value.text == "Rome." and trace["mode"] == "checkpoint"
    assert trace["gate"] == {
        "name": "self_rag", "retrieve": True, "probability": pytest.approx(0.75), "threshold": 0.2,
    }  # fmt: skip
    assert trace["searches"][0]["ids"] == ["c", "b"] and trace["selected"]["ids"] == ["b"]
    first, second = trace["steps"][0]["beams"][0]["candidates"]
    # c: 0.25 / 1; support 1.5 * 0.125 of 0.75 + 2 * 0.125 = 1; all grades alike; exp of mean
    assert [first[k] for k in ("relevance", "support", "utility", "sequence")] == pytest.approx(
        [0.25, 0.1875, 0.0, 0.5], abs=1e-6
    )
    # b: fully 0.5, the others 0.125 each: (0.5 + 0.0625) / 0.75; grades 0.5 and 4 * 0.125: the
    # mean is (0.5 - 0.125 - 0.0625 + 0.0625) / 1; root of 1 / 16
    parts = [0.75, 0.75, 0.375, 0.25]
    keys = ("relevance", "support", "utility", "sequence")
    assert [second[k] for k in keys] == pytest.approx(parts, abs=1e-6)
    assert second["total"] == pytest.approx(0.75 + 0.75 + 0.5 * 0.375 + 0.25, abs=1e-6)
    assert second["path"] == second["total"] == trace["chosen"]["score"]
    # 3 tokens for retrieval, then 2, 3 and 5 for each passage
    assert found.cost["llm_scores"] == 3 + 2 * 10 and found.cost["llm_calls"] == 2
    assert found.cost["searches"] == 1


def test_what_a_checkpoint_is_shown() -> None:
    model = Reflecting(
        {"text of c": (" Oslo.", [0.5], "end"), "": (" Rome.", [0.5], "end")},
        {"text of c": BAD, "text of b": GOOD, "": needs(0.75)},
    )
    answered(model)
    shown = {name: f"{OPENING}[Retrieval]<paragraph>Title {name}\ntext of {name}</paragraph>"
             for name in "bc"}  # fmt: skip
    assert sorted(model.prompts) == [f"{shown['b']}[Relevant]", f"{shown['c']}[Irrelevant]"]
    asked = {prompt for prompt, _ in model.asked}
    c, b = f"{shown['c']}[Irrelevant] Oslo.", f"{shown['b']}[Relevant] Rome."
    assert asked == {
        OPENING, *shown.values(), c, b,
        f"{c}[No support / Contradictory]", f"{b}[Fully supported]",
    }  # fmt: skip
    assert {w for p, w in model.asked if p == c} == {*reflection.SUPPORT}
    assert {w for p, w in model.asked if p == f"{b}[Fully supported]"} == {*reflection.UTILITY}
    assert model.settings[0]["max_new_tokens"] == 9


@pytest.mark.parametrize(
    "probability, settings, retrieve",
    [
        (0.06, {}, False),  # 0.06 / 0.31 is not above 0.2, 0.07 / 0.32 is
        (0.07, {}, True),
        (0.75, {"threshold": 0.76}, False),
        (0.75, {"retrieve": "never"}, False),
        (0.01, {"retrieve": "always"}, True),
        # ln 0.5 / (ln 0.5 + ln 0.25) = 1 / 3: above; as probabilities 2 / 3
        (0.5, {"fidelity": "released", "threshold": 0.4}, False),
        (0.5, {"fidelity": "paper", "threshold": 0.4}, True),
    ],
)
def test_when_it_retrieves(probability: float, settings: Any, retrieve: bool) -> None:
    model = Reflecting({"": ("Rome.", [0.5], "end")}, {"": needs(probability)})
    found = answered(model, **settings)
    trace = found.value.trace
    assert trace["gate"]["retrieve"] is retrieve and ("searches" in trace) is retrieve
    asked = settings.get("retrieve", "adaptive") == "adaptive"
    assert (trace["gate"]["probability"] is not None) is asked
    assert ("selected" in trace) is retrieve
    if not retrieve:
        assert model.prompts == [f"{OPENING}[No Retrieval]"]
        (only,) = trace["steps"][0]["beams"][0]["candidates"]
        assert only["id"] is None and only["relevance"] == only["support"] == 0


def test_equal_scores_go_to_the_first_found() -> None:
    model = Reflecting({"": ("Rome.", [0.5], "end")}, {"": needs(0.75)})
    assert answered(model).value.trace["selected"]["ids"] == ["c"]


def test_closed_questions_sum_the_scores_of_each_option() -> None:
    question = Question("f", "Ice is warm.", ("false",), task="fact_checking")
    good = {f"text of {name}": {"[Relevant]": 0.5, "[Irrelevant]": 0.25} for name in "bd"}
    model = Reflecting(
        {"text of c": ("true", [0.9], "end"), "": ("It is false.", [0.9], "end")},
        {"text of c": {**GOOD}, **good, "": needs(0.75)},
    )
    three = {"candidates": OnePath(n=3), "select": Top(k=3)}
    found = answered(model, question, **three)
    trace = found.value.trace
    scores = {c["id"]: c["total"] for c in trace["steps"][0]["beams"][0]["candidates"]}
    assert scores["c"] > max(scores["b"], scores["d"])  # alone, the other answer would win
    assert trace["options"] == pytest.approx(
        {"true": scores["c"], "false": scores["b"] + scores["d"]}
    )
    assert found.value.text == "It is false." and trace["selected"]["ids"] == ["b"]
    assert trace["option"] == {"said": 1, "gold": 1, "positive": True}
    assert model.settings[0]["max_new_tokens"] == 50
    assert "say true where it is correct" in model.prompts[0]


def test_choices_are_named_by_their_letter() -> None:
    question = Question("m", "Where is it?", ("in Rome",), ("in Oslo", "in Rome"))
    model = Reflecting({"": ("B", [0.9], "end")}, {"": needs(0.75)})
    found = answered(model, question)
    assert found.value.text == "in Rome" and found.value.trace["task"] == "multiple_choice"
    assert "B: in Rome\n\n### Response:\n" in model.prompts[0]


LONG = {"form": "long", "retrieve": "always"}


def test_a_long_answer_grows_by_sentences() -> None:
    model = Reflecting(
        {
            # the second sentences, then the first: the paragraph is in none but its own
            "It lies in Oslo.[Fully supported][Retrieval]<paragraph>Title e": (
                "North",
                [0.5],
                "end",
            ),
            "It lies in Oslo.[Fully supported]": ("South.", [0.5], "end"),
            "Nowhere.[Fully supported]": ("", [0.5], "end"),
            "text of c": ("It lies in Oslo", [0.5], "stop"),
            "text of b": ("Nowhere", [0.5], "stop"),
        },
        {"text of e": {**GOOD}, "text of c": {**GOOD}, "": {"[Relevant]": 0.25}},
    )
    found = answered(model, **LONG)
    trace = found.value.trace
    assert found.value.text == trace["answer"]["raw"] == "It lies in Oslo. North"
    assert [step["segment"] for step in trace["steps"]] == [1, 2]
    # the second search is for the question and the last sentence
    queries = [search["query"] for search in trace["searches"]]
    assert queries == ["Where is it?", "Where is it? It lies in Oslo.", "Where is it? Nowhere."]
    assert [s["path"] for s in trace["searches"]] == ["segment 1", "segment 2", "segment 2"]
    assert trace["selected"]["ids"] == ["c", "e"]
    first = trace["steps"][0]["beams"][0]["candidates"][0]
    grown, over = trace["steps"][1]["beams"]
    assert grown["so_far"] == "It lies in Oslo." and over["candidates"] == []
    best = next(c for c in grown["candidates"] if c["id"] == "e")
    assert best["path"] == pytest.approx((first["total"] + best["total"]) / 2)
    assert model.settings[0]["max_new_tokens"] == 64 and ". " in model.settings[0]["stop"]
    assert trace["answer"]["tokens"] == 2


def test_a_long_answer_as_released() -> None:
    said = {"It lies in Oslo.[": ("North", [0.5], "stop"), "": ("It lies in Oslo", [0.5], "stop")}
    model = Reflecting(said, {"": {**GOOD}})
    found = answered(model, **LONG, fidelity="released", depth=3)
    trace = found.value.trace
    # one search serves all, and depth 3 makes 2 segments
    assert found.cost["searches"] == 1 and len(trace["steps"]) == 2
    assert trace["searches"][0]["query"] == "Where is it?"
    # relevance 0.75 and support 0.75, without utility and sequence; both segments alike
    assert trace["chosen"]["score"] == pytest.approx(1.5 * 1.5, abs=1e-5)


@pytest.mark.parametrize("depth", [1, 3])
def test_it_ends_at_its_depth(depth: int) -> None:
    model = Reflecting({"": ("So it goes on", [0.5], "stop")}, {})
    found = answered(model, **LONG, depth=depth, beam=2)
    assert len(found.value.trace["steps"]) == depth
    assert found.value.text == " ".join(["So it goes on."] * depth)
    # 2 passages for one beam, then for two beams
    assert found.cost["llm_calls"] == 2 + 4 * (depth - 1)


def test_evidence_is_used_again() -> None:
    again = {"[Continue to Use Evidence]": 0.9, "[Retrieval]": 0.05, "[No Retrieval]": 0.05}
    model = Reflecting(
        {"It lies there.": ("North", [0.5], "end"), "text of c": ("It lies there", [0.5], "stop"),
         "": ("", [0.5], "end")},
        {"text of c": GOOD, "It lies there.": again, "": needs(0.75)},
    )  # fmt: skip
    found = answered(model, form="long", beam=1)
    assert [b["decision"] for s in found.value.trace["steps"] for b in s["beams"]] == [
        "retrieve", "continue",
    ]  # fmt: skip
    assert found.cost["searches"] == 1 and found.value.trace["selected"]["ids"] == ["c"]
    assert "text of c" in model.prompts[-1]


def test_evidence_cannot_be_used_again_before_there_is_some() -> None:
    again = {"[Continue to Use Evidence]": 0.9, **needs(0.05)}
    model = Reflecting({"": ("Rome.", [0.5], "end")}, {"": again})
    trace = answered(model, form="long").value.trace
    assert trace["steps"][0]["beams"][0]["decision"] == "no"


def test_saying_nothing_is_an_empty_answer() -> None:
    model = Reflecting({"": ("", [0.5], "end")}, {})
    found = answered(model, **LONG)
    assert found.value.text == "" and found.value.trace["answer"]["u"] is None
    assert len(found.value.trace["steps"]) == 1


JUDGED = {
    "Look it up?": {"Yes": 0.75, "No": 0.25},
    "The passage is": {"relevant": 0.5, "irrelevant": 0.5},
    "Supported:": {"fully": 0.25, "partially": 0.5, "not": 0.25},
    "Grade:": {"1": 0.1, "2": 0.1, "3": 0.1, "4": 0.1, "5": 0.6},
}


class Prompted(Reflecting):
    """The same for prompts with demonstrations: only what stands after them counts."""

    def _one(self, prompt: str) -> Generation:
        return super()._one(prompt.rpartition("\n\n")[2])

    def _probability(self, prompt: str, word: str) -> float:
        key = next(key for key in self.judged if prompt.endswith(key))
        scores = self.judged[key]
        shown = prompt.rpartition("\n\n")[2]
        return 0.9 if word == "relevant" and "text of b" in shown else scores[word]


def test_the_emulation_scores_words_in_the_same_way() -> None:
    model = Prompted({"text of b": (" Rome", [0.5], "end"), "": (" Oslo", [0.5], "end")}, JUDGED)
    found = answered(model, mode="prompted", reader=PROMPTED)
    trace = found.value.trace
    assert trace["mode"] == "prompted emulation" and found.value.text == "Rome"
    assert trace["gate"]["probability"] == pytest.approx(0.75)
    c, b = trace["steps"][0]["beams"][0]["candidates"]
    # utility: -0.1 - 0.05 + 0.05 + 0.6
    for one, relevance in ((c, 0.5), (b, 0.9 / 1.4)):
        assert one["relevance"] == pytest.approx(relevance)
        assert [one["support"], one["utility"], one["sequence"]] == pytest.approx([0.5] * 3)
    last = [prompt.rpartition("\n\n")[2] for prompt, _ in model.asked]
    assert "Passage: Title b. text of b\nQuestion: Where is it?\nAnswer: Rome\nSupported:" in last
    assert "Question: Where is it?\nAnswer so far:\nLook it up?" in last
    assert found.cost["llm_scores"] == 2 + 2 * 10 and found.cost["llm_calls"] == 2


def test_the_emulation_writes_long_answers() -> None:
    said = {
        "Answer: It lies in Oslo.": (" So the answer is Rome.", [0.5], "stop"),
        "": (" It lies in Oslo", [0.5], "stop"),
    }
    model = Prompted(said, JUDGED)
    found = answered(model, mode="prompted", reader=PROMPTED, form="long")
    trace = found.value.trace
    assert found.value.text == "Rome" and len(trace["steps"]) == 2
    assert trace["answer"]["raw"] == "It lies in Oslo. So the answer is Rome."
    graded = [p.rpartition("\n\n")[2] for p, _ in model.asked if p.endswith("Grade:")]
    assert graded[-1].endswith("Answer: It lies in Oslo. So the answer is Rome.\nGrade:")
    asked = [p.rpartition("\n\n")[2] for p, _ in model.asked if p.endswith("Look it up?")]
    assert asked[-1] == "Question: Where is it?\nAnswer so far: It lies in Oslo.\nLook it up?"


def test_the_emulation_may_do_without_retrieval() -> None:
    never = {**JUDGED, "Look it up?": {"Yes": 0.1, "No": 0.9}}
    model = Prompted({"": (" Rome", [0.5], "end")}, never)
    found = answered(model, mode="prompted", reader=PROMPTED)
    assert found.value.text == "Rome" and "searches" not in found.cost
    assert found.cost["llm_scores"] == 2 + 5  # retrieval, utility


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"mode": "real"}, "mode is 'real'; allowed: checkpoint, prompted"),
        ({"retrieve": "often"}, "retrieve is 'often'"),
        ({"form": "mid"}, "form is 'mid'"),
        ({"fidelity": "mine"}, "fidelity is 'mine'"),
        ({"threshold": 1.5}, r"threshold is 1\.5"),
        ({"threshold": math.nan}, "threshold is nan"),
        ({"beam": 0}, "beam is 0"),
        ({"form": "long", "depth": 1, "fidelity": "released"}, "depth 2 as released"),
        ({"segment_tokens": 0}, "segment_tokens 0"),
        ({"closed_tokens": 0}, "closed_tokens is 0"),
        ({"by": "logprob"}, "set by=text"),
        ({"reader": Reader(truncate=True)}, "truncate=False"),
    ],
)
def test_settings_out_of_range(settings: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        Config(**settings)


def test_prompts_that_do_not_fit() -> None:
    model = Reflecting({"": ("Rome.", [0.5], "end")}, {})
    with pytest.raises(InputError, match=r"\[direct\] is a chat; a Self-RAG checkpoint continues"):
        answered(model, reader=Reader(prompts="self_rag"))
    with pytest.raises(InputError, match=r"\[retrieval_needed\], which this method asks for"):
        answered(model, mode="prompted", reader=Reader(prompts="small"))


@pytest.mark.parametrize("name", ["self_rag", "self_rag_small"])
def test_words_of_the_prompts(name: str, tmp_path: Path) -> None:
    layout = prompts.load(name)
    for role, count in {"retrieval_needed": 2, "relevance": 2, "support": 3, "utility": 5}.items():
        template = layout.role(role)
        assert len(set(template.words)) == count and template.chat == (name == "self_rag")
        for _, reply in template.demonstrations:
            assert reply in template.words
    short = tmp_path / "short.toml"
    role = 'user = "{question} {so_far}"\nchat = false\nwords = ["yes"]'
    short.write_text(f'extends = "{name}"\n[retrieval_needed]\n{role}\n')
    model = Prompted({"": ("Rome.", [0.5], "end")}, JUDGED)
    with pytest.raises(InputError, match=r"has the words \['yes'\]; give 2"):
        answered(model, mode="prompted", reader=Reader(prompts=str(short)))


QUESTIONS = [Question(f"q{i}", f"Where is {i}?", ("there",)) for i in range(4)]


@pytest.mark.parametrize("mode", ["checkpoint", "prompted"])
@pytest.mark.parametrize("form", ["short", "long"])
def test_calls_can_be_planned(mode: Any, form: Any) -> None:
    reader = CHECKPOINT if mode == "checkpoint" else PROMPTED
    config = Config(mode=mode, form=form, reader=reader, depth=3, **TWO)
    passages: Any = FakePassages(40)
    found = bounds(lambda q, tools: self_rag.answer(q, tools, config), QUESTIONS, passages)
    calls = {kind.kind: (kind.least, kind.most) for kind in found}
    if form == "short":
        assert calls["llm_calls"] == (1, 2) and calls["searches"] == (0, 1)
    else:
        # 1 beam, then 2 beams twice, each with 2 passages
        assert calls["llm_calls"][1] <= 2 + 4 + 4 and calls["searches"][1] <= 1 + 2 + 2


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: Any) -> Path:
    """A random Llama whose tokenizer has the reflection tokens, as the published model's has."""
    path = tmp_path_factory.mktemp("self_rag")
    added = [*reflection.TOKENS, "<paragraph>", "</paragraph>"]
    llama = {**CONFIGS["llama"], "vocab_size": 259 + len(added), "eos_token_id": 257}
    write_tiny_model(path, template=None, **llama)
    tokenizer = load_tokenizer(path)
    tokens = [AddedToken(token, special=True, normalized=False) for token in added]
    assert tokenizer.add_tokens(tokens, special_tokens=True) == len(added)
    tokenizer.save_pretrained(path)
    config = json.loads((path / "config.json").read_text())
    assert config["model_type"] == "llama" and len(tokenizer) == config["vocab_size"]
    return path


def normalised(model: LocalModel, prompt: str, tokens: tuple[str, ...]) -> np.ndarray:
    """Probabilities of the tokens among each other, in float64, one prompt at a time."""
    found = [model.logprob([prompt], [token])[0] for token in tokens]
    assert all(len(one) == 1 for one in found)
    odds = np.exp(np.array([float(one[0]) for one in found]))
    return odds / odds.sum()


def test_a_real_checkpoint_is_read_token_by_token(checkpoint: Path) -> None:
    model = LocalModel.load(checkpoint)
    found = answered(model, threshold=0.0)
    trace = found.value.trace
    needed = normalised(model, OPENING, reflection.RETRIEVAL[:2])
    assert trace["gate"]["probability"] == pytest.approx(needed[0], rel=1e-5)
    for one in trace["steps"][0]["beams"][0]["candidates"]:
        name = one["id"]
        shown = f"{OPENING}[Retrieval]<paragraph>Title {name}\ntext of {name}</paragraph>"
        relevance = normalised(model, shown, reflection.RELEVANCE)
        start = shown + reflection.RELEVANCE[int(np.argmax(relevance))]
        (said,) = model.generate([start], max_new_tokens=9, stop=("\n",))
        support = normalised(model, start + said.text, reflection.SUPPORT)
        grade = reflection.SUPPORT[int(np.argmax(support))]
        utility = normalised(model, start + said.text + grade, reflection.UTILITY)
        expected = [
            relevance[0],
            support @ [1, 0.5, 0],
            utility @ [-1, -0.5, 0, 0.5, 1],
            np.exp(np.mean(said.logprobs)),
        ]
        parts = [one[key] for key in ("relevance", "support", "utility", "sequence")]
        assert parts == pytest.approx(expected, abs=1e-5)
        assert one["total"] == pytest.approx(np.dot(expected, [1, 1, 0.5, 1]), abs=1e-5)
        assert one["text"] == said.text.strip()


def test_a_real_checkpoint_writes_to_its_end(checkpoint: Path) -> None:
    model = LocalModel.load(checkpoint)
    trace = answered(model, **LONG, depth=3, segment_tokens=6).value.trace
    assert 1 <= len(trace["steps"]) <= 3 and trace["mode"] == "checkpoint"
    assert not any(token in trace["answer"]["text"] for token in reflection.TOKENS)


def test_another_model_is_no_checkpoint(checkpoint: Path, tmp_path: Path) -> None:
    write_tiny_model(tmp_path)
    model = LocalModel.load(tmp_path)
    count = len("".join(reflection.TOKENS))  # a token a byte
    with pytest.raises(InputError, match=rf"The 13 reflection tokens.* are {count} tokens .*mode="):
        answered(model)
    lacking = load_tokenizer(checkpoint)
    one = Reflecting({}, {})
    one.tokenizer = lacking
    reflection.check_vocabulary(LanguageModelTool(one))
    one.tokenizer = Tokens()
    one.max_length = None
    with pytest.raises(InputError, match="does not tell its tokenizer"):
        answered(one)


def test_a_failure_reaches_the_question() -> None:
    class Broken(Reflecting):
        def logprob(self, prompts: Any, continuations: Any) -> Any:
            raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        answered(Broken({"": ("Rome.", [0.5], "end")}, {}))
