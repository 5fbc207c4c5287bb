import dataclasses
import subprocess
import sys

import pytest
from absl import flags

from experiments.configuration import load, parse
from experiments.sweep import with_value
from jaxrag.types import InputError

CONFIGS = ["cot", "dpr_ais", "dtr", "hyde", "llm_judge", "no_retrieval", "pairs", "q2d", "r3",
           "rerank", "standard_rag"]  # fmt: skip


def run_of(*arguments):
    def define(values):
        flags.DEFINE_string("workdir", "", "", flag_values=values)

    return parse(["run", *arguments], define)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize(
    "variant",
    ["tiny", "quickstart", "factbook", "hotpotqa", "paper-nq", "tiny+vllm", "paper-nq+server"],
)
def test_every_config_has_every_variant(name, variant):
    run = load(f"configs/{name}.py:{variant}")
    assert run.name == name


def test_overrides_reach_the_dataclass_and_keep_the_rest():
    run, values = run_of(
        "--config=configs/dtr.py:tiny", "--config.method.gate.threshold=0.25",
        "--config.method.candidates.n=7", "--config.limit=3", "--workdir=w",
    )  # fmt: skip
    plain = load("configs/dtr.py:tiny")
    assert run.method.gate.threshold == 0.25 and run.method.candidates.n == 7 and run.limit == 3
    assert run.method.select == plain.method.select and values.workdir == "w"


def test_config_may_stand_apart():
    run, _ = run_of("--config", "configs/dtr.py:tiny", "--config.limit=2")
    assert run.limit == 2


@pytest.mark.parametrize(
    "arguments, named",
    [
        ((), "give --config"),
        (("--config=configs/nothing.py",), r"configs/nothing\.py"),
        (("--config=configs/dtr.py:tinny",), "tinny.*tiny"),
        (("--config=configs/parts.py",), "get_config"),
        (("--config=configs/dtr.py:tiny+llama",), r"no engine 'llama'"),
        (
            ("--config=configs/dtr.py:tiny", "--config.method.gate.treshold=1"),
            r"nearest is --config\.method\.gate\.threshold",
        ),
        (("--config=configs/dtr.py:tiny", "--config.limmit=1"), r"--config\.limit"),
        (("--config=configs/dtr.py:tiny", "--config.limit=many"), "many"),
        (("--config=configs/dtr.py:tiny", "--config.limit=-1"), "limit is -1"),
        (("--config=configs/dtr.py:tiny", "--config.method.gate.threshold=-1"), "threshold"),
        (("--config=configs/dtr.py:tiny", "--workdri=x"), "workdri"),
        (("--config=configs/dtr.py:tiny", "stray"), "stray"),
    ],
)
def test_what_is_wrong_is_named(arguments, named):
    with pytest.raises(InputError, match=named):
        run_of(*arguments)


def test_a_config_that_returns_something_else(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def get_config():\n    return {}\n")
    with pytest.raises(InputError, match="not a jaxrag"):
        load(str(file))


def test_sweep_sets_one_value():
    run = load("configs/dtr.py:tiny")
    swept = with_value(run, "method.gate.threshold", "0.5")
    assert swept.method.gate.threshold == 0.5 and swept.name == "dtr threshold=0.5"
    for key, text in [("method.gate.tresh", "1"), ("method.gate", "1"), ("limit", "few")]:
        with pytest.raises(InputError):
            with_value(run, key, text)


ABLATIONS = ["pairs_exclude_num", "dpr_ais_rerank", "dpr_ais_dynamic", "dpr_ais_cosine_sum",
             "dpr_ais_wo_dpr_q", "dpr_ais_wo_dpr_p", "dpr_ais_wo_ais_2q1p", "dpr_ais_wo_ais_1q2p",
             "dtr_wo_ugt", "dtr_wo_dpr", "dtr_wo_ais_2q1p", "dtr_wo_ais_1q2p"]  # fmt: skip


@pytest.mark.parametrize("name", ABLATIONS)
@pytest.mark.parametrize("where", ["tiny", "paper-nq"])
def test_every_ablation_of_the_papers_has_a_config(name, where):
    run = load(f"configs/ablations.py:{name}@{where}")
    whole = load(
        f"configs/{name.split('_wo_')[0].removesuffix('_exclude_num')}.py:{where}"
        if "_wo_" in name or name.startswith("pairs")
        else f"configs/dpr_ais.py:{where}"
    )
    parts = dataclasses.asdict(whole.method).keys()
    changed = {p for p in parts if getattr(run.method, p) != getattr(whole.method, p)}
    assert run.name == name and changed and "reader" not in changed


def test_an_unknown_ablation_lists_the_known():
    with pytest.raises(InputError, match="dtr_wo_ugt"):
        load("configs/ablations.py:dtr_wo_luck@tiny")


LOSES_ONE = """
import gc, os, signal, sys, time
from experiments.configuration import script

def collected(phase, info):
    if lost:
        os.kill(os.getpid(), lost.pop())

def main(argv):
    gc.callbacks.append(collected)
    gc.collect()  # the interrupt comes within its callback, where Python drops it
    time.sleep(20)
    return 0

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
lost = [getattr(signal, sys.argv[1])] * int(sys.argv[2])
script(main)
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupt_that_python_dropped_comes_again(name: str, code: int, times: int) -> None:
    words = [sys.executable, "-c", LOSES_ONE, name, str(times)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert found.returncode == code, found.stderr
    assert "interrupted: run the same command again" in found.stderr
