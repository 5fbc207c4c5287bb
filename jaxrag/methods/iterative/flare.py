"""FLARE (Jiang et al. 2023), the "direct" kind: retrieves when the next sentence is unsure.

The answer is written sentence by sentence. Each is first generated without passages; where a token
of it is less probable than ``theta``, the sentence becomes the query, without its words less
probable than ``beta``, and the sentence is generated anew from the passages found. The text ends
where the model has no more to say or has said what the answer is, or after ``max_sentences``; the
answer is read from it as in `chain_of_thought`, and a text that states none is marked as junk.

What differs from the original. It asks text-davinci-003 with demonstrations for each data set; its
released code searches once by the question before it begins, and goes on with the passages found
last, while here, as in the paper's formulas, passages serve the one sentence that needed them. It
looks 64 tokens ahead and cuts there; here generation stops where the sentence does, and whichever
mark ended it before a blank is put back as a full stop. It masks tokens, here whole words go.

Source: docs/methods.md, "FLARE".
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

from jaxrag.data import question_kinds
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, prompts
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.tools import LanguageModelTool, Tools
from jaxrag.text.stated_answer import last_sentence, stated_answer
from jaxrag.types import Answer, Generation, InputError, Question

_MARKS = (".", "!", "?")


@dataclasses.dataclass(frozen=True)
class LookAhead:
    """When a tentative sentence makes it retrieve, and what of the sentence is searched for.

    Attributes:
      theta: retrieves where the least probable token is less probable; 0 never, 1 always.
      beta: words with a token less probable are left out of the query; 0 leaves none out. Above 0
        the model has to tell its tokenizer.
    """

    needs = Needs(logprobs=True)

    theta: float = 0.8
    beta: float = 0.4

    def __post_init__(self) -> None:
        if not (0 <= self.theta <= 1 and 0 <= self.beta <= 1):
            raise InputError(
                f"gate.theta is {self.theta} and gate.beta {self.beta}: probabilities, 0 to 1."
            )

    def retrieves(self, least: float) -> bool:
        """Whether to retrieve, from the least probability; a rounded 1 is below 1, too."""
        return least < self.theta or self.theta == 1


@dataclasses.dataclass(frozen=True)
class Config:
    """As released for 2WikiMultihopQA; ``max_sentences`` is ours, where it has a limit of tokens.

    Attributes:
      gate: when it retrieves.
      candidates, select: which passages, for each sentence that asks for some.
      reader: prompts and decoding; its ``answer_tokens`` are not used.
      sentence_tokens: most new tokens of a sentence; a longer one is cut there.
      max_sentences: most sentences.
    """

    name = "flare"

    gate: LookAhead = LookAhead()
    candidates: steps.Candidates = OnePath(n=2)
    select: steps.Selector = Top(k=2)
    reader: steps.Reader = steps.Reader(prompts="baselines")
    sentence_tokens: int = 64
    max_sentences: int = 8

    def __post_init__(self) -> None:
        if self.sentence_tokens < 1 or self.max_sentences < 1:
            raise InputError(
                f"sentence_tokens is {self.sentence_tokens} and max_sentences "
                f"{self.max_sentences}; both must be at least 1."
            )

    @property
    def needs(self) -> Needs:
        """Those of its parts."""
        return needs_of(
            gate=self.gate, candidates=self.candidates, select=self.select, reader=self.reader
        )

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Writes sentences until the answer is there."""
        role = question_kinds.role_of(question)
        if role == "multiple_choice" and question.answers:
            question_kinds.gold_option(question)  # an answer that is no choice could never be met
        trace: steps.Trace = {"task": "open" if role == "context" else role, "sentences": []}
        kept: list[steps.Reply] = []
        while len(kept) < self.max_sentences:
            reply = await _sentence(question, _so_far(kept), tools, self, trace)
            kept.append(reply)
            if _over(reply, self.reader):
                break
        _record_gate(trace, self)
        return Answer(question.id, _conclude(question, kept, self, trace), trace)


def _over(reply: steps.Reply, reader: steps.Reader) -> bool:
    """Whether the answer ends with this sentence.

    A chat's model ends every sentence, so only plain text is over with its end. A stated answer is
    over with its line: a stop before a blank, as in "St. Petersburg", takes the full stop away.
    """
    ended = reply.generation.finish_reason == "end"
    if not reply.text or (ended and not prompts.load(reader.prompts).role("continue_direct").chat):
        return True
    return stated_answer(reply.text) is not None and (ended or reply.raw.rstrip().endswith(_MARKS))


async def _sentence(
    question: Question, so_far: str, tools: Tools, config: Config, trace: steps.Trace
) -> steps.Reply:
    """The next sentence, tentative or, where that one is unsure, from passages."""
    reader = dataclasses.replace(config.reader, answer_tokens=config.sentence_tokens)
    told = {"question": _told(question), "so_far": so_far}
    reply = await steps.ask("continue_direct", question, tools.llm, reader, **told)
    over = bool(so_far) and not reply.text  # the model has no more to say
    least = None if over else least_probability(reply)
    retrieve = least is not None and config.gate.retrieves(least)
    record: dict[str, Any] = {"tentative": reply.record(), "least": least, "retrieve": retrieve}
    trace["sentences"].append(record)
    if not retrieve:
        return reply
    query, masked = _query(reply, config.gate.beta, tools.llm)
    found: steps.Trace = {}
    asked = dataclasses.replace(question, text=query or question.text)
    rows = await steps.retrieve(asked, tools, config, found)
    path = f"sentence {len(trace['sentences'])}"
    trace.setdefault("searches", []).extend({**s, "path": path} for s in found["searches"])
    passages = tools.retriever.passages(rows)
    reply = await steps.ask_from_passages(
        question, passages, tools.llm, reader, record, role="continue", **told
    )
    record |= {"masked": masked, "ids": found["selected"]["ids"], "final": reply.record()}
    return reply


def least_probability(reply: steps.Reply) -> float:
    """The probability of the sentence's least probable token; 0 for an empty one."""
    own = _own_logprobs(reply.generation) if reply.text else ()
    return math.exp(min(own, default=-math.inf))


def _own_logprobs(generation: Generation) -> Sequence[float]:
    """The log-probabilities without that of the token that ended the sentence.

    It is the end token, a line break, or what begins the next sentence; some servers leave it out,
    which is told apart only where no other token would be left.
    """
    logprobs = generation.logprobs
    return logprobs if generation.finish_reason == "length" else logprobs[:-1] or logprobs


def _query(reply: steps.Reply, beta: float, llm: LanguageModelTool) -> tuple[str, int | None]:
    """The sentence without its words less probable than ``beta``, and how many these are.

    The whole sentence, where all of them are, and where its words and tokens do not match (None).
    """
    words = _words(reply, llm) if beta and reply.text else []
    if words is None:
        return reply.text, None
    sure = [word for word, probability in words if probability >= beta]
    return " ".join(sure) or reply.text, len(words) - len(sure)


def _words(reply: steps.Reply, llm: LanguageModelTool) -> list[tuple[str, float]] | None:
    """Each word with the probability of its least probable token; None where tokens do not match.

    A word's tokens are counted by those of the text up to its end. The sentence's own mark may be
    in the text and not among the tokens, or the reverse, hence one may be missing or too many.
    """
    raw, logprobs = reply.raw.rstrip(), _own_logprobs(reply.generation)
    spans = list(re.finditer(r"\S+", raw))
    start = llm.room("\n", max_new_tokens=0)
    ends = [start - llm.room(f"\n{raw[: span.end()]}", max_new_tokens=0) for span in spans]
    if abs(ends[-1] - len(logprobs)) > 1:
        return None
    return [
        (span.group(), math.exp(min(logprobs[first:last], default=0.0)))
        for span, (first, last) in zip(spans, itertools.pairwise([0, *ends]), strict=True)
    ]


def _told(question: Question) -> str:
    """The question, with lettered choices where it has some."""
    told = kinds.fields(question)
    return f"{told['question']}\n{told['choices']}" if told["choices"] else told["question"]


def _so_far(kept: Sequence[steps.Reply]) -> str:
    """The sentences, a blank before each."""
    return "".join(f" {_whole(reply)}" for reply in kept if reply.text)


def _whole(reply: steps.Reply) -> str:
    """The sentence with its full stop, which a stop string takes away."""
    whole = reply.generation.finish_reason == "length" or reply.text.endswith(_MARKS)
    return reply.text if whole else f"{reply.text}."


def _conclude(
    question: Question, kept: Sequence[steps.Reply], config: Config, trace: steps.Trace
) -> str:
    """Reads the answer from the whole text, and writes both into the trace."""
    text = _so_far(kept).strip()
    stated = stated_answer(text)
    template = prompts.load(config.reader.prompts).role("continue")
    read = kinds.read(stated or last_sentence(text), question, template)
    parts = [reply.generation for reply in kept]
    whole = Generation(
        text,
        tuple(token for part in parts for token in part.tokens),
        tuple(logprob for part in parts for logprob in part.logprobs),
        parts[-1].finish_reason,
        sum(part.prompt_tokens for part in parts),
    )
    u = steps.mean_nll(whole, config.reader.fidelity)
    trace["answer"] = {**steps.Reply(read, text, u, whole).record(), "junk": stated is None}
    kinds.note_option(read, question, trace)
    return read


def _record_gate(trace: steps.Trace, config: Config) -> None:
    """What was decided, over all sentences, and the passages that were read."""
    said = [record for record in trace["sentences"] if record["least"] is not None]
    asked = [record for record in said if record["retrieve"]]
    trace["gate"] = {
        "name": "flare",
        "retrieve": bool(asked),
        "least": min(record["least"] for record in said),
        "theta": config.gate.theta,
        "retrieved": len(asked),
        "of": len(said),
    }
    if asked:
        ids = itertools.chain.from_iterable(record["ids"] for record in asked)
        trace["selected"] = {"ids": list(dict.fromkeys(ids))}
