"""Checks by easy questions whether template, ends, tokenizer and engine fit a language model."""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxrag.core.durable_files import write_text
from jaxrag.core.hashing import canonical, digest
from jaxrag.core.store import Store
from jaxrag.engines.language_model import LanguageModel, gives_scores
from jaxrag.engines.prompts import encoder_of
from jaxrag.engines.scheduler import Scheduler
from jaxrag.runs.settings import parts_in_use
from jaxrag.steps import prompts
from jaxrag.steps.episode import Method
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool
from jaxrag.text.answers import contains
from jaxrag.text.model_output import parse_answer, turn_marks
from jaxrag.types import FilledText, Generation, InputError, Passage, Prompt

_log = logging.getLogger("jaxrag")

QUESTIONS = (
    ("What is the capital of France?", "Paris"),
    ("What is the capital of Japan?", "Tokyo"),
    ("What is the capital of Italy?", "Rome"),
    ("What is the largest planet of the solar system?", "Jupiter"),
    ("What is the chemical symbol of gold?", "Au"),
    ("Who wrote Romeo and Juliet?", "Shakespeare"),
    ("Who painted the Mona Lisa?", "Leonardo da Vinci"),
    ("Who developed the theory of relativity?", "Einstein"),
    ("Which ocean is the largest?", "Pacific"),
    ("On which continent is Egypt?", "Africa"),
    ("Which planet is known as the Red Planet?", "Mars"),
    ("What is the currency of Japan?", "yen"),
)
"""Questions that nearly all instruction-tuned models answer, each with an answer."""

FEW = 3
"""The questions that are asked before a run."""

TOLERANCE = {"float32": 1e-3}
"""Nats between the score of a text and the log-probabilities of its generation, by data type."""

_TOLERANCE = 0.1  # of 16 bits, and where the type is unknown, as on servers
_WRONG = 1.0  # nats: not a matter of arithmetic
_PASSAGE = Passage("0", "France", "Paris is the capital of France, on the river Seine.")

Level = Literal["OK", "WARN", "FAIL"]


class CheckResult(NamedTuple):
    """What was checked and seen, and the way out; "FAIL" if results would be wrong."""

    level: Level
    subject: str
    text: str

    def __str__(self) -> str:
        return f"{self.level:<5}{self.subject}: {self.text}"


class Replies(NamedTuple):
    """What a model answered to the first of `QUESTIONS`, in a template's prompts."""

    template: prompts.Template
    prompts: Sequence[Prompt]
    generations: Sequence[Generation]

    @property
    def answers(self) -> list[str]:
        """The parsed answers."""
        return [parse_answer(reply.text, self.template.parse) for reply in self.generations]


def reader_of(method: Method) -> Reader:
    """The first reader in a method's settings."""
    readers = (part for part in parts_in_use(method) if isinstance(part, Reader))
    return next(readers, Reader(prompts="small"))


def _prompts(template: prompts.Template, count: int) -> list[Prompt]:
    return [template.prompt(question=question) for question, _ in QUESTIONS[:count]]


def shown_prompts(
    model: LanguageModel, reader: Reader, roles: Sequence[str] = ()
) -> Iterator[tuple[str, str]]:
    """Roles of a reader's prompts (() for all), each with an example as the model sees it."""
    prompt_set, encode = prompts.load(reader.prompts), encoder_of(model)
    passages = prompt_set.render([_PASSAGE])
    fields = {name: "..." for names in prompts.FIELDS.values() for name in names}
    optional = {name: "1" for names in prompts.OPTIONAL.values() for name in names}
    fields |= {"question": QUESTIONS[0][0], "passages": passages, "passage": passages} | optional
    for role in roles or prompt_set.roles:
        prompt = prompt_set.role(role).prompt(**fields)
        if encode is not None:
            yield role, str(encode.tokenizer.decode(encode.tokens(prompt)))
        else:
            chat = prompt.messages if isinstance(prompt, FilledText) else prompt
            assert not isinstance(chat, str)
            yield role, "\n".join(f"[{turn.role}] {turn.content}" for turn in chat)


def check_replies(model: LanguageModel, reader: Reader, replies: Replies) -> list[CheckResult]:
    """Checks begin token, ends, reasoning and correctness of the answers to easy questions."""
    outputs, count, answers = replies.generations, len(replies.generations), replies.answers
    cut = [g for g in outputs if g.finish_reason == "length"]
    marked = [i for i, g in enumerate(outputs) if turn_marks(g.text) or _control(model, g)]
    thinking = [g for g in outputs if g.reasoning_tokens]
    findings = [_begin(model, replies.prompts[0])]
    if len(marked) > count / 2:
        text = f"{len(marked)} of {count} answers go on past the end of the turn, as in "
        text += f"{outputs[marked[0]].text[:60]!r}: name the end token in generation_config.json"
        findings.append(CheckResult("FAIL", "ends", text))
    elif len(cut) > count / 2:
        text = f"{len(cut)} of {count} answers reach the limit of {reader.answer_tokens} tokens: "
        text += "raise reader.answer_tokens, or check the template and that the model is an "
        findings.append(CheckResult("WARN", "ends", text + "instruction-tuned one"))
    else:
        findings.append(CheckResult("OK", "ends", f"{count - len(cut)} of {count} answers end"))
    unfinished = [g for g in thinking if not g.text.strip()]
    if len(unfinished) > count / 2:
        text = f"{len(unfinished)} of {count} answers are unfinished reasoning: raise "
        text += "reader.answer_tokens, or switch it off, such as by model.template_options="
        findings.append(CheckResult("FAIL", "reasoning", text + "'{\"enable_thinking\": false}'"))
    elif thinking:
        tokens = sum(g.reasoning_tokens for g in thinking) // len(thinking)
        text = f"before {len(thinking)} of {count} answers, {tokens} tokens each: it is no part of "
        findings.append(
            CheckResult("WARN", "reasoning", text + "the answer and of u, but costs time")
        )
    else:
        findings.append(CheckResult("OK", "reasoning", "none"))
    findings.append(_answers(answers))
    return findings


def _begin(model: LanguageModel, prompt: Prompt) -> CheckResult:
    encode = encoder_of(model)
    if encode is None:
        return CheckResult("OK", "begin", "the server applies its own chat template")
    tokens, begin = encode.tokens(prompt), encode.tokenizer.bos_token_id
    if begin is not None and tokens[:2] == [begin, begin]:
        text = "prompts have two begin tokens: the template and the tokenizer each add one"
        return CheckResult("FAIL", "begin", text)
    first = encode.tokenizer.convert_ids_to_tokens(tokens[:1])[0]
    return CheckResult("OK", "begin", f"prompts begin with the token {first!r}")


def _control(model: LanguageModel, generation: Generation) -> bool:
    """Whether a control token that is no end token stands in an answer."""
    encode = encoder_of(model)
    if encode is None:
        return False
    ended = generation.finish_reason == "end"
    tokens = generation.tokens[: len(generation.tokens) - ended]
    return bool(set(tokens) & set(encode.tokenizer.all_special_ids))


def _answers(answers: Sequence[str]) -> CheckResult:
    pairs = zip(answers, QUESTIONS, strict=False)
    right = sum(contains(answer, (gold,)) > 0 for answer, (_, gold) in pairs)
    summary = f"{right} of {len(answers)} easy questions are answered"
    if not any(answers):
        text = "all are empty: see the raw texts; a wrong template, or reasoning that does not end"
        return CheckResult("WARN", "answers", f"{text} (model.template_options)")
    if right < len(answers) / 2:
        text = f"{summary}: a wrong template, a base model, or a small one (the first says "
        return CheckResult("WARN", "answers", f"{text}{answers[0][:40]!r})")
    return CheckResult("OK", "answers", summary)


def run_checks(model: LanguageModel, reader: Reader) -> Iterator[CheckResult | Replies]:
    """Yields the model's answers to `QUESTIONS`, then the result of each check as it ends."""
    template = prompts.load(reader.prompts).role("direct")
    asked = _prompts(template, len(QUESTIONS))
    options: dict[str, Any] = {"max_new_tokens": reader.answer_tokens, "stop": template.stop}
    generations = model.generate(asked, **options)
    replies = Replies(template, asked, generations)
    yield replies
    yield from check_replies(model, reader, replies)
    yield from _check_numbers(model, asked, generations)
    alone = [model.generate([prompt], **options)[0] for prompt in asked[:FEW]]
    differ = sum(a.text != b.text for a, b in zip(alone, generations, strict=False))
    text = f"{differ} of {FEW} answers differ from those in one batch"
    where = "WARN" if differ else "OK"
    yield CheckResult(where, "alone", f"{text}: near ties" if differ else text)


def _check_numbers(
    model: LanguageModel, asked: Sequence[Prompt], generations: Sequence[Generation]
) -> Iterator[CheckResult]:
    """Compares scores of generated texts with the log-probabilities of their generation."""
    if not model.gives_logprobs:
        text = "the engine gives none: methods that decide by u or compare scores are refused"
        yield CheckResult("WARN", "log-probabilities", text)
        return
    if not gives_scores(model):
        text = "those of given texts are not known: methods that compare them are refused"
        yield CheckResult("WARN", "scores", text)
        return
    rows = [(prompt, g) for prompt, g in zip(asked, generations, strict=True) if g.text]
    scores = model.logprob([prompt for prompt, _ in rows], [g.text for _, g in rows])
    gaps = [_gap(model, g, values) for (_, g), values in zip(rows, scores, strict=True)]
    same = [gap for gap in gaps if gap is not None]
    if not same:
        yield CheckResult("WARN", "scores", "no text has the tokens that were generated")
        return
    dtype, most = json.loads(model.identity).get("dtype", ""), max(same)
    bound = TOLERANCE.get(dtype, _TOLERANCE)
    level: Level = "OK" if most <= bound else "WARN" if most <= _WRONG else "FAIL"
    text = f"within {most:.1e} nats of the generation's in {len(same)} texts (at most {bound:g})"
    yield CheckResult(level, "scores", text)


def _gap(model: LanguageModel, generation: Generation, scores: np.ndarray) -> float | None:
    """Largest difference of log-probabilities; None if the text is tokenised differently."""
    count = len(generation.logprobs) - (generation.finish_reason != "length")
    if not count or generation.reasoning or len(scores) - count not in (0, 1):
        return None
    tokens, encode = generation.tokens[:count], encoder_of(model)
    if encode is not None and min(tokens) >= 0:  # a server may give no ids
        text = encode.tokenizer.encode(generation.text, add_special_tokens=False)
        if tuple(text[:count]) != tokens:
            return None
    return float(np.abs(np.subtract(generation.logprobs[:count], scores[:count])).max())


class Speed(NamedTuple):
    """Tokens a second of prompts that are read and of new ones, with ``rows`` answers at once."""

    reading: float
    writing: float
    rows: int

    def __str__(self) -> str:
        return (
            f"{self.reading:,.0f} tokens of prompts and {self.writing:,.0f} new tokens a second, "
            f"{self.rows} answers at once"
        )


def measure_speed(model: LanguageModel, replies: Replies, limit: int) -> Speed:
    """The speed of a model, whose programs are compiled; ``limit`` is that of new tokens."""
    asked, stop = replies.prompts, replies.template.stop
    model.generate(asked, max_new_tokens=1, stop=stop)  # compiles its programs
    start = time.perf_counter()
    tokens = sum(g.prompt_tokens for g in model.generate(asked, max_new_tokens=1, stop=stop))
    middle = time.perf_counter()
    generations = model.generate(asked, max_new_tokens=limit, stop=stop)
    first, taken = middle - start, time.perf_counter() - middle
    new = sum(len(g.tokens) + g.reasoning_tokens for g in generations)
    writing = max(new - len(asked), 1) / max(taken - first, 1e-3)
    return Speed(tokens / first, writing, len(asked))


def check_before(
    run_name: str, llm: LanguageModelTool, reader: Reader, store: Store, cache: Path
) -> None:
    """Asks the first easy questions, through the store, before a run asks its own.

    A model that passed once with these prompts and this limit of tokens is not asked again.
    InputError if the model fails; the message says what was seen and how to go on.
    """
    prompt_set = prompts.load(reader.prompts)
    parts = llm.identity, prompts.content_digest(reader.prompts), str(reader.answer_tokens)
    mark = cache / "checked" / digest(*parts)[:16]
    if mark.exists() or "direct" not in prompt_set.roles:
        return
    template = prompt_set.roles["direct"]
    asked = _prompts(template, FEW)

    async def answer(prompt: Prompt) -> Generation:
        limit = reader.answer_tokens
        return await llm.generate(prompt, max_new_tokens=limit, stop=template.stop)

    started = [(i, functools.partial(answer, prompt)) for i, prompt in enumerate(asked)]
    ended = sorted(Scheduler(store).run(started))
    if any(outcome.error for outcome in ended):
        return  # the run's own questions show it
    replies = Replies(template, asked, [outcome.value for outcome in ended])
    findings = [c for c in check_replies(llm.model, reader, replies) if c.level != "OK"]
    for finding in findings:
        _log.warning("%s: %s", run_name, finding)
    if failed := [c.text for c in findings if c.level == "FAIL"]:
        raise InputError(
            f"The model does not fit: {failed[0]}. See `jaxrag check-model`; "
            "--config.check_model=False answers all the same."
        )
    mark.parent.mkdir(parents=True, exist_ok=True)
    write_text(mark, canonical([str(c) for c in findings]))
