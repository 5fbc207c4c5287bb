"""What iterative methods share: questions with their choices, and the answer of a text."""

from __future__ import annotations

from collections.abc import Sequence

from jaxrag.data import question_kinds
from jaxrag.steps import asking as steps
from jaxrag.steps import kinds, prompts
from jaxrag.text.stated_answer import last_sentence, stated_answer
from jaxrag.types import Generation, Question


def told(question: Question) -> str:
    """The question, with lettered choices where it has some."""
    fields = kinds.fields(question)
    return f"{fields['question']}\n{fields['choices']}" if fields["choices"] else fields["question"]


def conclude(
    question: Question, said: Sequence[steps.Reply], reader: steps.Reader, trace: steps.Trace
) -> steps.Reply:
    """What the sentences say the answer is; the trace marks as junk that they state none.

    Then their last sentence stands for the answer. u is over all tokens of all generations.
    """
    text = " ".join(one.text for one in said)
    stated, role = stated_answer(text), question_kinds.role_of(question)
    template = prompts.load(reader.prompts).role(kinds.asked_role(question))
    read = kinds.read(stated or last_sentence(text), question, template)
    parts = [one.generation for one in said]
    whole = Generation(
        text,
        tuple(token for part in parts for token in part.tokens),
        tuple(logprob for part in parts for logprob in part.logprobs),
        parts[-1].finish_reason if parts else "stop",
        sum(part.prompt_tokens for part in parts),
    )
    reply = steps.Reply(read, text, steps.mean_nll(whole, reader.fidelity), whole)
    trace["task"] = "open" if role == "context" else role
    trace["answer"] = {**reply.record(), "junk": stated is None}
    kinds.note_option(read, question, trace)
    return reply
