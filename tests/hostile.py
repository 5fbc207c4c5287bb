"""Texts that try to become markup, code, formulas or commands, and a run that is full of them."""

from pathlib import Path
from typing import Any

from jaxrag.evaluation.records import RunDirectory
from jaxrag.types import Passage
from tests.evaluation import fabricate

HOST = "canary.example"
_RAN = "document.documentElement.dataset.ran='yes'"
TEXTS = {
    "script": f"</script><script>{_RAN}</script>",
    "handlers": f'<img src=http://{HOST}/i onerror="{_RAN}"> \'"><svg onload={_RAN}>',
    "link": f"<a href='javascript:{_RAN}' ping=http://{HOST}/p>x</a><iframe src=http://{HOST}/f>",
    "style": f"</style><style>@import url(http://{HOST}/s)</style><link rel=preload href=//{HOST}>",
    "ends": "--> ]]></title></pre></svg></textarea></details></iframe>",
    "markdown": f"[x](javascript:1) [y][z] ![m](http://{HOST}/m) <http://{HOST}> https://{HOST}",
    "more Markdown": f"**b** _i_ __b__ ~~s~~ `c` $x$ | a | \\| &lt; &#60;b> www.{HOST} \\",
    "lines": "a\n| --- | --- |\n\n# head\r\n```\n[z]: javascript:1\n<b>",
    "rich": f"[red]r[/red] [/] [link=http://{HOST}]l[/link] :warning: [/nothing] \\",
    "terminal": "\x1b]0;title\x07\x1b[31mred\x9b1m\x1b[2J\x08\x7f\x00\x0b\x0c\x1b]8;;http://x\x1b\\",
    "order": "\u202egnol\u2066x\u2069\u202c",
    "no characters": "\ufffe\uffff half \udcff",
    "spreadsheet": f'=HYPERLINK("http://{HOST}","x") @SUM(A1) +1 -1 \t=1 "," ;',
    "LaTeX": r"\input{/etc/passwd} $x$ % & # _ { } ~ ^ \write18{id}",
    "templates": "$title ${sections} {{ 7*7 }} {% raw %} %s {0}",
}
ALL = " ".join(TEXTS.values())
UNESCAPED = " ".join(TEXTS[name] for name in ("script", "handlers", "style"))
"""HTML that runs a script and asks the network, where nothing stops it."""


def run(path: Path, text: str = ALL) -> Path:
    """A finished run of 12 questions; every field that is a text holds ``text``."""
    config = {
        "method": {"name": text, text: text, "threshold": 0.3},
        "dataset": {"name": text, "identity": text, "questions": 12, "passages": 9},
        "language_model": {"name": text, "dtype": text},
        "retriever": {"name": text, "index": text},
    }
    environment = {**fabricate.ENVIRONMENT, "system": text, "commit": text}
    records = [_record(i, text) for i in range(12)]
    times = [{"question_id": one["question_id"], "seconds": 1.0} for one in records]
    with RunDirectory.open(path, config, environment=environment) as directory:
        directory.append(records, times)
        found = [Passage(name, text, text) for name in directory.named_passages()]
        directory.finish([one["question_id"] for one in records], passages=found)
    return path


def _record(i: int, text: str) -> dict[str, Any]:
    ids = [f"p{i} {text}", f"p{i + 1} {text}"]
    base = {
        "question_id": f"{i} {text}",
        "question": text,
        "gold_answers": [text, "x"],
        "gold_passages": ids[:1],
    }
    if i == 11:
        return base | {"error": text}
    direct = {"text": text, "raw": text, "u": 0.1 * i + 0.01, "logprobs": [-0.5], "tokens": 1}
    gate = {"name": "nll", "value": direct["u"], "threshold": 0.3, "retrieve": True}
    search = {"path": text, "query": text, "ids": ids, "scores": [0.5, 0.25]}
    candidates = [{"id": name, "s1": 0.5, "s2": 0.25, "score": 0.125} for name in ids]
    trace = {
        "direct": direct,
        "gate": gate if i % 2 else {**gate, "name": text, "threshold": None, "verdict": text},
        "pseudo_context": text,
        "searches": [search],
        "selected": {"ids": ids, "scores": [0.5, 0.25], "candidates": candidates},
        "answer": {"text": text, "raw": f"{text} <end>", "u": 0.5},
        text: text,
    }
    costs = {"llm_calls": 2, "prompt_tokens": 9, "new_tokens": 3, "searches": 1}
    return base | {"prediction": "x" if i % 2 else text, "trace": trace, "cost": costs}
