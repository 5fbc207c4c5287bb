"""Prompts such as runs send: questions of the factbook in the three forms that methods use."""

from pathlib import Path

from jaxrag.data.factbook import Factbook
from jaxrag.steps import prompts
from jaxrag.types import Prompt

KINDS = {"direct": 16, "context": 16, "pseudo_context": 48}
"""Roles of the prompts, and how many new tokens each gets."""


def real_prompts(cache: Path, count: int, *, passages: int = 1) -> dict[str, list[Prompt]]:
    """``count`` prompts of each kind; with so many passages where the kind reads some."""
    data = Factbook(countries=12).load(cache)
    questions = [data.questions[i % len(data.questions)] for i in range(count)]
    rows = [(37 * i + j) % len(data.passages) for i in range(count) for j in range(passages)]
    found = data.passages.get(rows)
    of_question = [found[i * passages : (i + 1) * passages] for i in range(count)]
    template = prompts.load("small")
    fields = [{"passages": template.render(some)} for some in of_question]
    return {
        kind: [
            template.role(kind).prompt(question=q.text, **(f if kind == "context" else {}))
            for q, f in zip(questions, fields, strict=True)
        ]
        for kind in KINDS
    }
