"""A whole run of small files in one folder: data, models and config, as a user would write them."""

import json
from pathlib import Path

from tests.engines.tiny_model import write_tiny_model
from tests.models.bert import small_bert

CONFIG = """
from jaxrag.methods import dtr
from jaxrag.steps.candidates import DualPath
from jaxrag.methods.dtr import UncertaintyGate
from jaxrag.steps.passage_selectors import AIS
from jaxrag.steps.reader import Reader
from jaxrag.runs.run import Run
from jaxrag.retrieval.dense.encoder import BiEncoder
from jaxrag.retrieval.dense.exact import Exact
from jaxrag.data.folder import (Folder)
from jaxrag.engines.local.engine import Local

HERE = {here!r}


def get_config():
    reader = Reader(prompts=HERE + "/prompts.toml", answer_tokens=6, passage_tokens=12)
    return Run(
        method=dtr.Config(UncertaintyGate({threshold}), DualPath(n=3), AIS(k=2), reader),
        data=Folder(HERE + "/data"),
        model=Local(HERE + "/model"),
        index=Exact(BiEncoder(HERE + "/encoder", max_length=32)),
        cache=HERE + "/cache",
        live=10,
    )
"""
PROMPTS = """
[direct]
chat = false
user = "Q: {question}\\nA:"
parse = "first_line"

[context]
chat = false
user = "{passages}\\nQ: {question}\\nA:"
parse = "first_line"

[pseudo_context]
chat = false
user = "Q: {question}\\nP:"
"""


def write_small_run(here: Path, *, questions: int = 60, threshold: float = 2.0) -> Path:
    """Writes everything below ``here``; returns the config file."""
    write_tiny_model(here / "model", max_position_embeddings=1024)
    small_bert.write(here / "encoder", small_bert.BERT, classifier=False)
    words = small_bert.WORDS
    rows = [
        {
            "id": f"q{i}",
            "question": f"is {words[i % 18]} {words[i // 18 % 18]} {i}",
            "answers": ["a"],
        }
        for i in range(questions)
    ]
    corpus = [
        {"id": f"p{i}", "title": words[i % 18], "text": f"the {words[i % 7]} of {words[i % 5]} {i}"}
        for i in range(40)
    ]
    (here / "data").mkdir()
    for name, lines in (("queries", rows), ("corpus", corpus), ("qrels", [])):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (here / "data" / f"{name}.jsonl").write_text(text)
    (here / "prompts.toml").write_text(PROMPTS)
    config = here / "config.py"
    config.write_text(CONFIG.format(here=str(here), threshold=threshold))
    return config
