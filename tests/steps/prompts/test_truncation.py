"""Prompts that do not fit: an error that names the question, or passages cut to what fits."""

import dataclasses
import json
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrag.engines import vllm
from jaxrag.engines.prompts import PromptEncoder, encoder_of
from jaxrag.engines.server import Server
from jaxrag.engines.vllm import VllmModel
from jaxrag.methods.pairs import AgreementGate
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.runs.config_file import load
from jaxrag.runs.run import execute
from jaxrag.steps import prompts
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool
from jaxrag.types import InputError, Message, Passage, Question
from tests.engines.fake_server import serving
from tests.engines.tiny_model import write_tiny_model
from tests.experiments.small_run import write_small_run
from tests.scripted import ScriptedModel, run_episode, tools_of

OPTIONS = {"short": True}  # adds "short " to the end of each chat, and so to its length


class SmallModel(ScriptedModel):
    """Refuses what engines refuse, and answers "ok" to the rest."""

    def __init__(self, tokenizer, max_length, options=None, said=("ok", [0.5])):
        identity = json.dumps({"model": "small", "template_options": options or {}})
        super().__init__(said, identity=identity, tokenizer=tokenizer, max_length=max_length)
        self.encode = PromptEncoder(
            tokenizer, template_options=options or {}, max_length=max_length
        )
        self.given, self.tokens = [], []

    def generate(self, asked, *, max_new_tokens, **settings):
        self.given += asked
        self.tokens += [self.encode(prompt, room=max_new_tokens) for prompt in asked]
        return super().generate(asked, max_new_tokens=max_new_tokens, **settings)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("tiny")
    write_tiny_model(path)
    return path


@pytest.fixture(scope="module")
def one_a_byte(directory):
    return load_tokenizer(directory)


def template_file(directory, *, chat):
    file = directory / f"{'chat' if chat else 'plain'}.toml"
    file.write_text(
        f"""
[passages]
passage = "{{text}}"
joiner = "/"

[context]
chat = {str(chat).lower()}
user = "{{passages}}|{{question}}"
parse = "text"
"""
    )
    return str(file)


def ask(model, passages, reader, text="Who?"):
    """What the trace of one question that is read from passages tells of their truncation."""

    async def answer(episode):
        episode.conclude(await episode.ask("context", passages=passages))

    question = Question("q1", text, ("x",))
    _, trace = run_episode(answer, tools_of(model), question, reader)
    return {name: fact for name, fact in trace.items() if name == "truncated"}


# "aa bb cc/dd ee|Who?" has 8 + 1 + 5 + 1 + 4 = 19 tokens; three more are for the answer
BEST = [Passage("1", "", "aa bb cc"), Passage("2", "", "dd ee")]


@pytest.mark.parametrize(
    "limit, prompt, shown, cut",
    [
        (99, "aa bb cc/dd ee|Who?", None, 0),
        (22, "aa bb cc/dd ee|Who?", None, 0),  # to the token
        (21, "aa bb cc/dd|Who?", 2, 3),
        (19, "aa bb cc/dd|Who?", 2, 3),
        (18, "aa bb cc|Who?", 1, 6),
        (16, "aa bb cc|Who?", 1, 6),
        (15, "aa bb|Who?", 1, 9),
        (10, "aa|Who?", 1, 12),
    ],
)
def test_the_best_stay_whole_and_the_last_is_cut_after_a_word(
    one_a_byte, tmp_path, limit, prompt, shown, cut
):
    model = SmallModel(one_a_byte, limit)
    reader = Reader(template_file(tmp_path, chat=False), answer_tokens=3, truncate=True)
    trace = ask(model, BEST, reader)
    expected = {"passages": shown, "of": 2, "tokens_cut": cut}
    assert model.prompts == [prompt]
    assert trace == ({"truncated": expected} if shown else {})


@pytest.mark.parametrize("truncate, tokens", [(True, 7), (False, 19)])
def test_if_no_word_fits_the_error_remains(one_a_byte, tmp_path, truncate, tokens):
    model = SmallModel(one_a_byte, 9)
    reader = Reader(template_file(tmp_path, chat=False), answer_tokens=3, truncate=truncate)
    with pytest.raises(InputError, match=f"prompt of {tokens} tokens and 3 new .* model's 9:"):
        ask(model, BEST, reader)


def test_prompts_without_passages_are_not_cut(one_a_byte, tmp_path):
    reader = Reader(template_file(tmp_path, chat=False), answer_tokens=3, truncate=True)
    model = SmallModel(one_a_byte, 8)
    assert ask(model, [], reader) == {} and model.prompts == ["|Who?"]
    with pytest.raises(InputError, match="prompt of 5 tokens"):
        ask(SmallModel(one_a_byte, 7), [], reader)


def test_titles_and_layout_are_kept(one_a_byte):
    whole = [Passage("1", "Rome", "is old"), Passage("2", "Oslo", "is cold in winter")]
    reader = Reader("dtr", answer_tokens=3, truncate=True)
    room = encoder_of(SmallModel(one_a_byte, 1000)).left(
        prompts.load("dtr").role("context").prompt(
            question="Who?", passages="Passage 1. Rome: is old\nPassage 2. Oslo: is"
        ),
        room=3,
    )  # fmt: skip
    model = SmallModel(one_a_byte, 1000 - room)
    trace = ask(model, whole, reader)
    assert "\n\nPassage 1. Rome: is old\nPassage 2. Oslo: is\n\n" in model.prompts[0]
    assert trace["truncated"] == {"passages": 2, "of": 2, "tokens_cut": len(" cold in winter")}


def ends_by_hand(text):
    """Where texts may be cut, one character after the other."""
    ends, length = [], 0
    for i, letter in enumerate(text):
        length = 0 if letter.isspace() else length + 1
        last = i + 1 == len(text) or text[i + 1].isspace()
        if length and (last or length == 20):
            ends.append(i + 1)
            length = 0
    return [*ends[:-1], len(text)]


def beginnings(passages):
    """All that may be shown of passages, from one word to everything."""
    for i, passage in enumerate(passages):
        for end in ends_by_hand(passage.text):
            yield [*passages[:i], dataclasses.replace(passage, text=passage.text[:end])]


WORDS = st.one_of(
    st.sampled_from(["the", "capital", "city.", "1912", "of", "…", "城" * 25, "x" * 41, "\n", ""]),
    st.text(max_size=6),
)
TEXTS = st.lists(WORDS, max_size=12).map(" ".join)
PASSAGES = st.lists(st.builds(Passage, st.just("1"), TEXTS, TEXTS), min_size=1, max_size=4)
SET = """
[passages]
passage = "{{number}}. {{title}}: {{text}}"

[context]
chat = {chat}
system = "Answer from what is given."
user = "{{passages}}\\nQ: {{question}}\\nA:"

[[context.demonstrations]]
user = "1. Oslo: a city.\\nQ: What is Oslo?\\nA:"
assistant = "a city"
"""


@pytest.mark.parametrize("chat", [True, False])
def test_only_passages_are_cut_and_no_more_than_needed(one_a_byte, tmp_path, chat):
    file = tmp_path / "set.toml"
    file.write_text(SET.format(chat=str(chat).lower()))
    template = prompts.load(str(file)).role("context")
    reader = Reader(str(file), answer_tokens=5, truncate=True)

    def prompt_of(question, passages):
        shown = prompts.load(str(file)).render(passages)
        return template.prompt(question=question, passages=shown)

    @settings(max_examples=60, deadline=None)
    @given(PASSAGES, TEXTS, st.floats(-0.1, 1.05))
    def check(passages, question, share):
        choices = [prompt_of(question, shown) for shown in beginnings(passages)]
        encode = PromptEncoder(one_a_byte, template_options=OPTIONS, max_length=1 << 30)
        counts = [len(encode.tokens(choice)) for choice in choices]
        room = int(counts[0] + share * (counts[-1] - counts[0]))
        model = SmallModel(one_a_byte, room + 5, OPTIONS)
        try:
            trace = ask(model, passages, reader, question)
        except InputError:
            assert min(counts[0], counts[-1]) > room
            return
        (prompt,), (tokens,) = model.given, model.tokens
        assert len(tokens) + 5 <= model.max_length

        empty = prompt_of(question, [])
        if chat:
            assert prompt[:-1] == empty[:-1]
            assert prompt[-1].content.endswith(f"\nQ: {question}\nA:")
        else:
            head, tail = empty[: -len(f"\nQ: {question}\nA:")], f"\nQ: {question}\nA:"
            assert prompt.startswith(head) and prompt.endswith(tail)
        place = choices.index(prompt)
        assert trace == {} or trace["truncated"]["tokens_cut"] == counts[-1] - len(tokens)
        assert (trace == {}) is (counts[-1] <= room)
        assert trace != {} or prompt == choices[-1]
        # one token a byte: with each word there are more
        assert all(count > room for count in counts[place + 1 :])

    check()


def test_a_generated_pseudo_context_is_cut_too(one_a_byte):
    def said(prompt, settings):
        return "word " * 100 if "encyclopedic" in prompt else "ok"

    tools = tools_of(SmallModel(one_a_byte, 400, said=said))
    reader = Reader("pairs", answer_tokens=5, passage_tokens=5)
    with pytest.raises(InputError, match="exceed"):
        run_episode(AgreementGate(), tools, reader=reader)
    reader = dataclasses.replace(reader, truncate=True)
    _, trace = run_episode(AgreementGate(), tools, reader=reader)
    cut = trace["gate"]["second"]["truncated"]
    assert cut["passages"] == cut["of"] == 1 and 0 < cut["tokens_cut"] < 499
    assert cut["tokens_cut"] % len("word ") == 0 and "truncated" not in trace


def test_the_room_equals_the_engine_s(one_a_byte):
    tool = LanguageModelTool(SmallModel(one_a_byte, 50))
    assert tool.room("abc", max_new_tokens=7) == 40
    chat = (Message("user", "Hi"),)
    assert tool.room(chat, max_new_tokens=40) == 10 - len("user\nHi\nassistant\n") - 3  # below 0
    with pytest.raises(InputError, match="length limit of the model are unknown"):
        LanguageModelTool(ScriptedModel({})).room("abc", max_new_tokens=7)


@pytest.mark.parametrize("tokenizer, max_length", [(False, 90), (True, None)])
def test_a_server_that_cannot_be_measured_is_refused_at_the_start(
    directory, tmp_path, monkeypatch, tokenizer, max_length
):
    made, opened = [], Server.load
    monkeypatch.setattr(
        Server, "load", lambda settings, cache: made.append(opened(settings, cache)) or made[-1]
    )
    run = load(str(write_small_run(tmp_path, questions=1)))
    reader = dataclasses.replace(run.method.reader, truncate=True)
    run = dataclasses.replace(run, method=dataclasses.replace(run.method, reader=reader))
    with serving(max_length=max_length) as server:
        model = Server("tiny", server.url, tokenizer=str(directory) if tokenizer else "")
        with pytest.raises(InputError, match=r"reader\.truncate.*tiny, server.*tokenizer"):
            execute(dataclasses.replace(run, model=model), tmp_path / "run")
        assert server.bodies == [] and not (tmp_path / "run").exists()
        assert not (tmp_path / "cache" / "indexes").exists()
    made.pop().close()


class FakeVllm:
    """What `VllmModel` uses of vLLM; answers with the token "a" only."""

    def __init__(self):
        self.llm_engine, self.noted = SimpleNamespace(vllm_config=None), []

    def generate(self, prompts, params, **settings):
        self.noted += [prompt["prompt_token_ids"] for prompt in prompts]
        token = SimpleNamespace(logprob=-0.1)
        made = SimpleNamespace(token_ids=[64], logprobs=[{64: token}], finish_reason="stop")
        return [SimpleNamespace(outputs=[made]) for _ in prompts]


def test_vllm_gets_the_tokens_that_are_measured(one_a_byte, monkeypatch):
    monkeypatch.setattr(vllm, "vllm_library", lambda: SimpleNamespace(SamplingParams=dict))
    engine, encode = FakeVllm(), PromptEncoder(one_a_byte, template_options={}, max_length=20)
    model = VllmModel(engine, encode, ends=(257,), identity='{"engine":"vllm"}')
    assert LanguageModelTool(model).room("it is", max_new_tokens=5) == 10
    model.generate(["it is"], max_new_tokens=5)
    with pytest.raises(InputError, match="prompt of 18 tokens and 5 new"):
        model.generate(["a" * 18], max_new_tokens=5)
    assert engine.noted == [encode.tokens("it is")]
