"""DRAGIN (Su et al. 2024): retrieves where the model is unsure of a word that the text depends on.

An answer that reasons is written. Each of its tokens has a score (RIND): the entropy of the
prediction that it was drawn from, times the most attention that a later token pays to it, times 0
for stopwords. At the first score above ``theta`` the text is cut before the word; the words that
this token pays most attention to, among those of the question and of the text so far, become the
query (QFS), in the order in which they stand; the text is written on from the passages found, which
stay until others replace them. It ends with a text that needs nothing, or after ``max_retrievals``.

What is our reading. Attentions are the last layer's, of whatever the model reads, mean over heads;
the released code lets it read the generated text alone for RIND, and question and text for QFS,
takes maxima before the mean over heads and counts a token's attention to itself. The paper's scores
are taken as they are; the released code divides the attention received by the sentence's mean
(``fidelity="released"``), to which its thresholds belong. There a hit drops its whole sentence and
one sentence is written from passages before the model goes on without any; here, as in the paper,
the text is cut at the word. As there, the first sentence from new passages is not scored: or the
same word would be cut again and again. The query there is made of content words by part of speech
(spaCy); here of distinct words that are no stopwords, by a list of ours, and a word's attention is
the sum over its tokens wherever it stands.

Source: docs/methods.md, "DRAGIN".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, get_args

from jaxrag.core.checks import check_limits
from jaxrag.data import question_kinds
from jaxrag.methods.inspecting.dragin_attention import Trigger, context, find_trigger, query_of
from jaxrag.steps import asking as steps
from jaxrag.steps import loops, prompts
from jaxrag.steps.candidates import OnePath
from jaxrag.steps.needs import Needs, needs_of
from jaxrag.steps.passage_selectors import Top
from jaxrag.steps.tools import Tools
from jaxrag.types import Answer, InputError, Prompt, Question

Fidelity = Literal["paper", "released"]


@dataclasses.dataclass(frozen=True)
class Config:
    """As released for HotpotQA and Llama-2-7b-chat, but for ``max_retrievals``, which is ours.

    Attributes:
      theta: the score from which on it retrieves.
      fidelity: whether the attention received is taken as it is ("paper") or by the mean of its
        sentence ("released"); ``theta`` depends on it.
      query_words: most words of a query.
      candidates, select: which passages, for each query.
      reader: prompts and decoding; its ``answer_tokens`` are not used.
      tokens: most new tokens of a generation.
      max_retrievals: most searches; what is written after the last is not scored.
    """

    name = "dragin"

    theta: float = 1.4
    fidelity: Fidelity = "released"
    query_words: int = 35
    candidates: steps.Candidates = OnePath(n=3)
    select: steps.Selector = Top(k=3)
    reader: steps.Reader = steps.Reader(prompts="inspecting")
    tokens: int = 100
    max_retrievals: int = 5

    def __post_init__(self) -> None:
        check_limits(
            query_words=self.query_words, tokens=self.tokens, max_retrievals=self.max_retrievals
        )
        if self.fidelity not in get_args(Fidelity) or not self.theta >= 0:
            raise InputError(
                f"fidelity is {self.fidelity!r} and theta {self.theta}: allowed are "
                f"{', '.join(get_args(Fidelity))}, and scores of 0 or more."
            )

    @property
    def needs(self) -> Needs:
        """Entropies and attentions are inside the model."""
        found = needs_of(candidates=self.candidates, select=self.select, reader=self.reader)
        return found | Needs(inspection=True)

    async def answer(self, question: Question, tools: Tools) -> Answer:
        """Writes and retrieves until nothing is needed."""
        if question_kinds.role_of(question) == "multiple_choice" and question.answers:
            question_kinds.gold_option(question)  # an answer that is no choice could never be met
        trace: steps.Trace = {"generations": []}
        said: list[steps.Reply] = []
        rows: tuple[int, ...] | None = None
        for left in range(self.max_retrievals, -1, -1):
            record: dict[str, Any] = {"passages": len(rows or ())}
            trace["generations"].append(record)
            prompt, reply = await _write(question, said, rows, tools, self, record)
            trigger = None
            if reply.text and left:
                seen = await tools.inspection.look(prompt, reply.raw)
                trigger = find_trigger(
                    seen,
                    len(reply.raw),
                    self.theta,
                    record,
                    relative=self.fidelity == "released",
                    informed=rows is not None,
                )
            if trigger is None:
                said.append(reply)
                break
            said.append(_cut(reply, trigger))
            words = context(seen, loops.told(question), _so_far(said[:-1]).strip(), trigger)
            query = query_of(seen, words, trigger, self.query_words)
            rows = await _retrieve(question, query, tools, self, trace, record)
        reply = loops.conclude(question, said, self.reader, trace)
        _record_gate(trace, self)
        return Answer(question.id, reply.text, trace)


async def _write(
    question: Question,
    said: Sequence[steps.Reply],
    rows: Sequence[int] | None,
    tools: Tools,
    config: Config,
    record: dict[str, Any],
) -> tuple[Prompt, steps.Reply]:
    """The rest of the answer as the model sees it now, and what it was asked."""
    reader = dataclasses.replace(config.reader, answer_tokens=config.tokens)
    role = "complete_direct" if rows is None else "complete"
    told = {"question": loops.told(question), "so_far": _so_far(said)}
    if rows is not None:
        passages = tools.retriever.passages(rows)
        told["passages"] = steps.show_passages(
            question, passages, tools.llm, reader, record, role=role, **told
        )
    prompt = prompts.load(reader.prompts).role(role).prompt(**told)
    reply = await steps.ask(role, question, tools.llm, reader, **told)
    record |= reply.record()
    return prompt, reply


def _so_far(said: Sequence[steps.Reply]) -> str:
    """What has been written, a blank before each part."""
    return "".join(f" {reply.text}" for reply in said if reply.text)


def _cut(reply: steps.Reply, trigger: Trigger) -> steps.Reply:
    """The reply before the word."""
    text, made = reply.raw[: trigger.word.start - trigger.start].strip(), reply.generation
    made = dataclasses.replace(
        made,
        text=text,
        tokens=made.tokens[: trigger.kept],
        logprobs=made.logprobs[: trigger.kept],
        finish_reason="stop",
    )
    return reply._replace(text=text, raw=text, generation=made)


async def _retrieve(
    question: Question,
    query: str,
    tools: Tools,
    config: Config,
    trace: steps.Trace,
    record: dict[str, Any],
) -> tuple[int, ...]:
    """Passages for a query, or for the question where it is empty."""
    found: steps.Trace = {}
    asked = dataclasses.replace(question, text=query or question.text)
    rows = await steps.retrieve(asked, tools, config, found)
    path = f"generation {len(trace['generations'])}"
    searches = [{**search, "path": path} for search in found["searches"]]
    trace.setdefault("searches", []).extend(searches)
    record |= {"query": query, "ids": found["selected"]["ids"]}
    return rows


def _record_gate(trace: steps.Trace, config: Config) -> None:
    """What was decided, over all generations, and the passages that were read."""
    highest = [one["highest"] for one in trace["generations"] if "highest" in one]
    ids = [passage for one in trace["generations"] for passage in one.get("ids", ())]
    trace["gate"] = {
        "name": "dragin",
        "retrieve": bool(ids),
        "highest": max(highest, default=None),
        "theta": config.theta,
        "retrieved": sum("query" in one for one in trace["generations"]),
        "of": len(highest),
    }
    if ids:
        trace["selected"] = {"ids": list(dict.fromkeys(ids))}
