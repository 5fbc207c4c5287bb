"""The trace of one question, step by step: as text, in colours for a terminal, and as HTML.

Texts come from models, questions and passages. They are escaped in HTML, and what controls a
terminal is removed. The HTML needs neither scripts nor style sheets, which notebooks remove.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from jaxrag.core.printable import html_text, printable
from jaxrag.types import Passage

_CHARACTERS = 240  # of a passage in a terminal; in HTML the whole text opens on a click
_DRAWN = ("direct", "gate", "pseudo_context", "searches", "selected", "answer")
_PATHS = {
    "q": "Search by the question",
    "p": "Search by the pseudo-context",
    "q+p": "Search by the question and the pseudo-context",
}
_SCORES = "the highest scores, made of the similarities to the question and to the pseudo-context"
_BOX = "border-left:3px solid rgba(128,128,128,.45);padding:2px 0 2px 12px;margin:8px 0"


class PassageLine(NamedTuple):
    """A passage of a step: its scores as text, and whether it was given to the reader."""

    passage: Passage
    scores: str
    kept: bool


class TraceStep(NamedTuple):
    """A step of a method: a heading, a text, a sentence that explains it, and passages."""

    heading: str
    text: str = ""
    reason: str = ""
    passages: Sequence[PassageLine] = ()


def trace_steps(
    trace: Mapping[str, Any], passages: Mapping[str, Passage], answer: str
) -> list[TraceStep]:
    """The steps of a trace in order; a passage that is not in ``passages`` is shown as its id."""
    return [
        *_decision(trace),
        *_retrieval(trace, passages),
        *_others(trace),
        *_reading(trace, answer),
    ]


def _decision(trace: Mapping[str, Any]) -> Iterator[TraceStep]:
    if direct := trace.get("direct"):
        u = f", uncertainty u = {_nats(direct['u'])} nats a token" if "u" in direct else ""
        yield TraceStep(f"Direct answer{u}", _said(direct))
    if gate := trace.get("gate"):
        yield TraceStep("Decision", reason=_verdict(gate))
    if pseudo := trace.get("pseudo_context"):
        yield TraceStep("Pseudo-context, written by the model", str(pseudo))


def _said(output: Mapping[str, Any]) -> str:
    """What a model wrote; with the text before it was parsed, where that differs."""
    text, raw = str(output.get("text", "")), str(output.get("raw", "")).strip()
    answer = text or "(empty)"
    return f"{answer}\n(the model wrote: {raw})" if raw and raw != text.strip() else answer


def _verdict(gate: Mapping[str, Any]) -> str:
    verdict = "it retrieves" if gate.get("retrieve") else "it answers without retrieval"
    name, value, threshold = gate.get("name", "gate"), gate.get("value"), gate.get("threshold")
    if name == "nll" and isinstance(threshold, int | float):
        relation = "above" if gate.get("retrieve") else "not above"
        return f"u = {_nats(value)} is {relation} the threshold {threshold:g}: {verdict}"
    if isinstance(value, int | float) and isinstance(threshold, int | float):
        return f"{name} = {value:.3g}, threshold {threshold:g}: {verdict}"
    if "agree" in gate and isinstance(gate.get("second"), Mapping):
        how = "contain a number" if gate.get("excluded") else "agree" if gate["agree"] else "differ"
        return (
            f"the direct answer and “{gate['second'].get('text', '')}”, read from a passage that "
            f"the model wrote, {how}: {verdict}"
        )
    quoted = f"“{gate['verdict']}”: " if gate.get("verdict") else ""
    return f"{quoted}{verdict} ({name})"


def _retrieval(trace: Mapping[str, Any], passages: Mapping[str, Passage]) -> Iterator[TraceStep]:
    selected = trace.get("selected") or {}
    ids = selected.get("ids", ())
    for search in trace.get("searches", ()):
        pairs = zip(search["ids"], search["scores"], strict=False)
        lines = [_line(name, f"{score:.3f}", name in ids, passages) for name, score in pairs]
        path = str(search.get("path", ""))
        query = "" if path in ("q", "p") else str(search.get("query", ""))
        yield TraceStep(_PATHS.get(path, f"Search {path}"), query, passages=lines)
    if ids:
        of = f" of {len(selected['candidates'])}" if selected.get("candidates") else ""
        columns = {candidate["id"]: candidate for candidate in selected.get("candidates", ())}
        scores = dict(zip(ids, selected.get("scores", ()), strict=False))
        pairs = [(name, _columns(columns.get(name), scores.get(name))) for name in ids]
        lines = [_line(name, scores_text, True, passages) for name, scores_text in pairs]
        yield TraceStep(
            f"Given to the reader: {len(ids)}{of} passage{'s' * (len(ids) > 1 or bool(of))}",
            reason=_SCORES if any("s2" in column for column in columns.values()) else "",
            passages=lines,
        )


def _line(name: str, scores: str, kept: bool, passages: Mapping[str, Passage]) -> PassageLine:
    return PassageLine(passages.get(name, Passage(name, name, "")), scores, kept)


def _columns(candidate: Mapping[str, Any] | None, score: float | None) -> str:
    if score is None:
        return ""
    if candidate is None or "s1" not in candidate:
        return f"{score:.3f}"
    parts = [f"question {candidate['s1']:.3f}"]
    if "s2" in candidate:
        parts.append(f"pseudo-context {candidate['s2']:.3f}")
    return f"{score:.3f} ({', '.join(parts)})"


def _others(trace: Mapping[str, Any]) -> Iterator[TraceStep]:
    """Entries of other methods, as JSON; the task where it is not an open question."""
    for name, value in trace.items():
        if name not in _DRAWN and (name, value) != ("task", "open"):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            yield TraceStep(name.replace("_", " ").capitalize(), text)


def _reading(trace: Mapping[str, Any], answer: str) -> Iterator[TraceStep]:
    raw = str((trace.get("answer") or {}).get("raw", "")).strip()
    differs = raw and raw != answer.strip()
    yield TraceStep(
        "Answer", f"{answer or '(empty)'}", f"the model wrote: {raw}" if differs else ""
    )


def _nats(u: Any) -> str:
    return f"{u:.3g}" if isinstance(u, int | float) else "∞ (empty answer)"


def trace_text(question: str, steps: Sequence[TraceStep], cost: Mapping[str, int]) -> Text:
    """The steps for a terminal; printed by ``rich`` it has colours."""
    text = Text()
    text.append(f"{printable(question)}\n", "bold")
    for number, step in enumerate(steps, start=1):
        text.append(f"\n{number}. {printable(step.heading)}\n", "bold cyan")
        if step.text:
            style = "bold green" if step.heading == "Answer" else ""
            text.append(f"{_indented(step.text)}\n", style)
        if step.reason:
            text.append(f"{_indented(step.reason)}\n", "yellow")
        for line in step.passages:
            text.append(f"   {'*' if line.kept else ' '} ", "bold green")
            text.append(f"{line.scores}  " if line.scores else "", "magenta")
            text.append(f"{printable(line.passage.title or line.passage.id)} ", "bold")
            text.append(f"{_cut(line.passage.text)}\n", "dim")
    text.append(f"\n{_costs(cost)}", "dim")
    return text


def plain(text: Text) -> str:
    """A text for ``rich`` without colours, wrapped at 100 columns."""
    buffer = io.StringIO()
    # without force_jupyter, rich prints into the cell of a notebook, not into the buffer
    Console(file=buffer, width=100, force_terminal=False, force_jupyter=False).print(text)
    return buffer.getvalue().rstrip("\n")


def _indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in printable(text).splitlines())


def _cut(text: str) -> str:
    flat = " ".join(printable(text).split())
    return flat if len(flat) <= _CHARACTERS else f"{flat[: _CHARACTERS - 1]}…"


def _costs(cost: Mapping[str, int]) -> str:
    costs = (f"{name.replace('_', ' ')} {count:,}" for name, count in cost.items())
    return printable(" · ".join(costs))


def trace_html(question: str, steps: Sequence[TraceStep], cost: Mapping[str, int]) -> str:
    """The steps as HTML for a notebook's cell; passages open on a click."""
    parts = [f"<p><b>{html_text(question)}</b></p>", *map(_step_html, steps)]
    note = f'<p style="opacity:.7;font-size:90%">{html_text(_costs(cost))}</p>'
    # Jupyter would draw text between dollar signs as formulas
    return f'<div class="tex2jax_ignore mathjax_ignore">{"".join(parts)}{note}</div>'


def _step_html(step: TraceStep) -> str:
    bold = step.heading == "Answer"
    text = html_text(step.text).replace("\n", "<br>")
    parts = [
        f'<div style="opacity:.75;font-size:90%">{html_text(step.heading)}</div>',
        f"<div>{f'<b>{text}</b>' if bold else text}</div>" if text else "",
        f"<div><i>{html_text(step.reason)}</i></div>" if step.reason else "",
        *map(_passage_html, step.passages),
    ]
    return f'<div style="{_BOX}">{"".join(parts)}</div>'


def _passage_html(line: PassageLine) -> str:
    title = html_text(line.passage.title or line.passage.id)
    mark = "✓ " if line.kept else ""
    scores = f"<code>{html_text(line.scores)}</code> " if line.scores else ""
    return (
        f"<details><summary>{mark}{scores}{title}</summary>"
        f'<div style="margin-left:1.2em">{html_text(line.passage.text)}</div></details>'
    )
