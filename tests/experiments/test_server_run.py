"""A whole run against servers: with and without faults, and one that is gone for good."""

import json
from pathlib import Path
from typing import Any

import pytest

from jaxrag.core import http
from jaxrag.engines.server import Server, ServerModel
from jaxrag.evaluation.report.page import write_report
from jaxrag.experiments.run import main
from tests.engines.fake_server import faulty, serving
from tests.experiments.small_run import write_small_run


@pytest.fixture
def config(tmp_path: Path, monkeypatch: Any) -> Any:
    models, load = [], Server.load

    def noted(settings: Server, cache: Path) -> ServerModel:
        models.append(load(settings, cache))
        return models[-1]

    monkeypatch.setattr(Server, "load", noted)
    monkeypatch.setattr(http, "_FIRST_PAUSE", 0.01)
    file = write_small_run(tmp_path, questions=30)
    server = "from jaxrag.engines.server import Server\n"
    text = file.read_text().replace("import Local\n", "import Local\n" + server)
    here = "tokenizer=HERE + '/model'"
    file.write_text(text.replace('Local(HERE + "/model")', f"Server('tiny', {here})"))
    yield file
    for model in models:
        model.close()


def run(config: Path, workdir: Path, *servers: Any, **settings: Any) -> int:
    settings = {"urls": ",".join(server.url for server in servers), "patience": 5.0, **settings}
    flags = [f"--config.model.{name}={value}" for name, value in settings.items()]
    flags.append("--config.check_model=False")  # whose requests would count
    return main(["run", f"--config={config}", f"--workdir={workdir}", *flags])


def test_server_faults_change_no_answer_and_repeat_no_question(
    config: Path, tmp_path: Path
) -> None:
    with serving(max_length=1024) as server:
        assert run(config, tmp_path / "plain", server) == 0
    (tmp_path / "cache" / "store.sqlite").unlink()
    with serving(faulty, max_length=1024) as one, serving(faulty, max_length=1024) as two:
        assert run(config, tmp_path / "faulty", one, two) == 0
    answered = [str(prompt) for prompt in one.answered + two.answered]
    names = ("plain", "faulty")
    plain, other = ((tmp_path / name / "answers.jsonl").read_bytes() for name in names)
    assert plain == other
    assert plain.count(b"\n") == 30
    assert len(answered) == len(set(answered)) == len(server.answered)


def test_a_run_resumes_after_its_server_failed(config: Path, tmp_path: Path, capsys: Any) -> None:
    def dies(handler: Any, number: int, body: Any) -> None:
        faulty(handler, 0 if number < 25 else 1, body)

    with serving(max_length=1024) as server:
        assert run(config, tmp_path / "plain", server) == 0
        total = len(server.bodies)
    (tmp_path / "cache" / "store.sqlite").unlink()
    with serving(dies, max_length=1024) as server, pytest.raises(Exception, match="same command"):
        run(config, tmp_path / "cut", server, patience=0.3)
    with serving(max_length=1024) as server:
        assert run(config, tmp_path / "cut", server, patience=0.3) == 0
        assert len(server.bodies) == total - 25
    names = ("plain", "cut")
    plain, other = ((tmp_path / name / "answers.jsonl").read_bytes() for name in names)
    assert plain.count(b"\n") == other.count(b"\n") == 30


def test_an_alarm_stands_under_the_table_in_the_report_and_in_the_metrics(
    config: Path, tmp_path: Path, capsys: Any
) -> None:
    def endless(handler: Any, number: int, body: Any) -> None:
        tokens = body["prompt"][: body["max_tokens"]]
        logprobs = {"token_logprobs": [-0.1] * len(tokens)}
        choice = {"text": "?", "token_ids": tokens, "finish_reason": "length"}
        handler.send(200, {"choices": [{**choice, "logprobs": logprobs}]})

    with serving(endless, max_length=1024) as server:
        assert run(config, tmp_path / "run", server) == 0
    says = "30 of 30 questions (100 %) have an answer cut at the limit of tokens: raise"
    assert says in " ".join(capsys.readouterr().out.split())
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())["alarms"]
    assert found["questions"]["cut"] == 30 and found["raised"]["cut"].startswith(says)
    write_report([tmp_path / "run"], tmp_path / "report.html")
    assert all(says in (tmp_path / f"report{end}").read_text() for end in (".html", ".md"))


def test_a_method_that_scores_texts_is_refused_at_a_chat_endpoint(
    config: Path, tmp_path: Path
) -> None:
    changed = config.read_text().replace("tokenizer=HERE + '/model'", "tokenizer=''")
    config.write_text(changed.replace("get_config(", "_first("))
    with config.open("a") as file:
        file.write(
            "\nfrom jaxrag.methods.baselines import replug\n"
            "def get_config():\n"
            "    run = _first()\n"
            "    return dataclasses.replace(run, method=replug.Config(reader=run.method.reader))\n"
            "import dataclasses\n"
        )
    with (
        serving(max_length=1024) as server,
        pytest.raises(Exception, match="compares the log-probabilities of given texts"),
    ):
        run(config, tmp_path / "run", server)
    assert not (tmp_path / "run").exists()
