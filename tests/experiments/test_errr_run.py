"""The trainable ERRR as a whole run of small files, and its decoder's config."""

import dataclasses
from pathlib import Path

from jaxrag.configs import errr as errr_config
from jaxrag.engines.local.engine import Local
from jaxrag.engines.seq2seq import Seq2Seq
from jaxrag.evaluation.records import read_run
from jaxrag.methods.errr import errr
from jaxrag.methods.errr.queries import Trained
from jaxrag.runs.config_file import load
from jaxrag.runs.run import execute
from jaxrag.steps.candidates import Search
from jaxrag.steps.reader import Reader
from tests.experiments.small_run import write_small_run
from tests.methods.errr.test_query_pairs import MORE
from tests.models.t5 import small_t5

QUESTIONS = 4


def test_the_trainable_method_uses_the_optimizer(tmp_path: Path) -> None:
    run = load(str(write_small_run(tmp_path, questions=QUESTIONS)))
    (tmp_path / "prompts.toml").write_text(MORE)
    small_t5.write(tmp_path / "t5", small_t5.CONFIGS["1.0"])
    optimizer = Trained(model=Seq2Seq(str(tmp_path / "t5")), tokens=12)
    reader = Reader(prompts=str(tmp_path / "prompts.toml"), answer_tokens=6, passage_tokens=6)
    method = errr.Config(optimizer, Search(m=3, read=2), reader=reader)
    found = execute(dataclasses.replace(run, method=method), tmp_path / "run")
    assert found["answered"] == QUESTIONS and not found["errors"]
    records = read_run(tmp_path / "run")
    assert records.config["helpers"]["optimizer.model"]["name"] == "t5"
    assert "weights" in str(records.config["helpers"]["optimizer.model"])
    assert all(line["cost"]["llm_calls"] == 3 for line in records.records)


def test_a_decoder_student_gets_an_ending_after_its_input() -> None:
    (run, pairs) = (errr_config.get_config(f"{name}_errr_decoder@popqa") for name in
                    ("trainable", "make_pairs"))  # fmt: skip
    optimizer = run.method.optimizer  # type: ignore[attr-defined]
    assert optimizer.model == Local("") and run.name == "trainable_errr_decoder"  # type: ignore[attr-defined]
    assert optimizer.reads.text("Who?", "A man.").endswith(" Who? Context: A man.\nQueries:")
    assert pairs.run.method.student == optimizer.reads  # type: ignore[attr-defined]
