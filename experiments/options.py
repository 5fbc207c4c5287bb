"""All commands with their options; imports no JAX, so that ``jaxrag COMMAND --help`` is fast.

Help texts, the parser and the checks of misspelt commands are made from `COMMANDS`.
"""

from __future__ import annotations

import ast
import functools
import keyword
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from absl import flags

from jaxrag.core.store import CACHE

TEXT, SWITCH, LIST = flags.DEFINE_string, flags.DEFINE_bool, flags.DEFINE_list
SEVERAL, CHOICE = flags.DEFINE_multi_string, flags.DEFINE_enum
COUNT = functools.partial(flags.DEFINE_integer, lower_bound=0)
POSITIVE = functools.partial(flags.DEFINE_integer, lower_bound=1)
SHARE = functools.partial(flags.DEFINE_float, lower_bound=0)
SCALES, FIDELITIES = ("tiny", "small", "paper"), ("paper", "released")
ENGINES, INDEXES = ("local", "vllm", "server"), ("", "exact", "scann", "bm25")
CONFIG = "--config=FILE[:VARIANT] [--config.NAME=VALUE ...]"
_DEFAULTS = {None: "none", "": "none", False: "no", True: "yes"}


class Command(NamedTuple):
    """What stands behind ``jaxrag COMMAND`` on a command line.

    Attributes:
      arguments: the config and names, as the usage shows them.
      options: of each option absl's function that defines it, its name, default (then the values
        that are allowed, if it is one of some) and one line about it.
    """

    arguments: str
    options: Sequence[tuple[Any, ...]] = ()


_DISTRIBUTED = (TEXT, "distributed", "", "auto, or HOST:PORT,PROCESSES,PROCESS")
_BASELINE = (TEXT, "baseline", "standard_rag", "method or run directory to compare with")
COMMANDS = {
    "quickstart": Command(
        "",
        (
            (TEXT, "workdir", "runs/quickstart", "run directories"),
            (TEXT, "data", "quickstart", "data set of configs/data.py"),
        ),
    ),
    "ask": Command(
        f"{CONFIG} QUESTION...",
        ((SWITCH, "json", False, "print one line of JSON for each question"),),
    ),
    "predict": Command(
        f"{CONFIG} --questions=FILE --out=FILE",
        (
            (TEXT, "questions", "", "file of questions: lines, .csv or .jsonl"),
            (TEXT, "out", "", "file of answers to write, a JSON object a line"),
            (TEXT, "workdir", "", "run directory of the answers; none is beside the file"),
        ),
    ),
    "import": Command(
        "FOLDER --out=DIRECTORY",
        (
            (TEXT, "out", "", "directory of the data set"),
            (TEXT, "questions", "", "file of questions: .txt with tabs, .csv or .jsonl"),
            (POSITIVE, "words", 100, "most words of a passage"),
        ),
    ),
    "list": Command("[methods|data|engines|prompts]"),
    "check-model": Command(f"{CONFIG} [ROLE...]"),
    "run": Command(
        f"{CONFIG} --workdir=DIRECTORY",
        (
            (TEXT, "workdir", "", "directory of the job"),
            (SWITCH, "dry-run", False, "only print what would be done"),
            _DISTRIBUTED,
        ),
    ),
    "sweep": Command(
        f"{CONFIG} --values=A,B,C|--over=NAME=A,B,C ... --workdir=DIRECTORY",
        (
            (TEXT, "workdir", "", "parent of the run directories"),
            (TEXT, "key", "method.gate.threshold", "the setting of --values"),
            (LIST, "values", [], "its values, with commas between them"),
            (SEVERAL, "over", [], "NAME=A,B,C, a setting and its values; several make a grid"),
        ),
    ),
    "compare": Command(
        "RUN... [FILE...]",
        (_BASELINE, (SHARE, "printed", None, "exact match of a paper, in percent")),
    ),
    "judge": Command(f"RUN... {CONFIG}"),
    "cases": Command(
        "RUN...",
        (
            (LIST, "kinds", [], "kinds of questions to print, such as repaired,harmed"),
            (TEXT, "direct", "no_retrieval", "method or run directory that never retrieves"),
            (TEXT, "baseline", "standard_rag", "method or run directory that always retrieves"),
        ),
    ),
    "report": Command(
        "RUN...",
        (
            (SEVERAL, "runs", [], "the same as RUN; give it once for each run"),
            (TEXT, "out", "report.html", "page to write; its table goes beside it"),
            (TEXT, "figures", "", "directory for the page's figures as SVG files"),
            (LIST, "columns", [], "columns of .csv and .tex, such as em,retrieves; all"),
            _BASELINE,
        ),
    ),
    "status": Command("RUN...", ((TEXT, "prices", "", "JSON file with prices of models"),)),
    "explain": Command(
        f"RUN QUESTION | {CONFIG} --question=TEXT",
        (
            (TEXT, "question", "", "question to explain"),
            (SEVERAL, "passages", [], "passage id; without any, the best passages"),
            (POSITIVE, "k", 3, "number of best passages"),
            (POSITIVE, "tokens", 15, "number of tokens per passage"),
        ),
    ),
    "prompts": Command("check FILE", ((TEXT, "like", "", "name of the shipped set"),)),
    "reproduce": Command(
        "[ID...]",
        (
            (TEXT, "workdir", "runs/reproduce", "parent of all results"),
            (LIST, "only", [], "methods, series, data sets, generators and retrievers"),
            (COUNT, "limit", 0, "questions of a run; 0 is all"),
            (COUNT, "seeds", 0, "seeds of each training; 0 is 3 at scale paper, else 1"),
            (SEVERAL, "server", [], "URL, or NAME=URL of a model"),
            (TEXT, "reader", "", "checkpoint in place of the models that answer"),
            (TEXT, "judge", "", "checkpoint in place of those that judge"),
            (TEXT, "rewriter", "", "checkpoint in place of those that rewrite"),
            (TEXT, "encoder", "", "checkpoint in place of the encoder of dense indexes"),
            (TEXT, "reranker", "", "checkpoint in place of the reranker, or query_likelihood"),
            (SEVERAL, "checkpoint", [], "NAME=OTHER, a checkpoint in place of the checkpoint NAME"),
            (SEVERAL, "data", [], "SET=FOLDER, SET=NAME of another set, or a folder of folders"),
            (TEXT, "corpus", "", "corpus to search: a name, a folder, or gold+NUMBER"),
            (TEXT, "thresholds", "printed", "thresholds of gates: printed, calibrated, or a ratio"),
            (SEVERAL, "prompts", [], "NAME=FILE of a prompt set"),
            (TEXT, "dtype", "", "float type of language models"),
            (TEXT, "quantization", "", "quantization of language models"),
            (COUNT, "tensor_parallel", 0, "devices of a model's layers"),
            (COUNT, "data_parallel", 0, "devices with a copy of a model"),
            (SHARE, "memory", 0.0, "share of a device that vLLM takes"),
            (SHARE, "index_memory", 0.0, "gigabytes of all devices for an exact index's vectors"),
            (TEXT, "claims", "", "page of claims to write"),
            (TEXT, "pages", "", "directory of pages of the results"),
            (SWITCH, "list", False, "print all tables and figures"),
            (SWITCH, "check", False, "only print the requirements of the jobs"),
            (COUNT, "devices", 0, "devices of another machine, for --check"),
            (SHARE, "device_memory", 0.0, "memory of each device in GB, for --check"),
            (LIST, "tokens_per_second", [], "READ,WRITTEN, or one number, for --check's time"),
            (SHARE, "search_price", None, "dollars for 1,000 web searches, for --check"),
            (
                CHOICE,
                "scale",
                None,
                SCALES,
                "scale; small, or paper with --check",
            ),
            (CHOICE, "engine", "local", ENGINES, "engine of the language models"),
            (CHOICE, "index", "", INDEXES, "index of dense vectors"),
            (CHOICE, "sizes", None, SCALES, "scale of trainings and random draws"),
            (CHOICE, "fidelity", "paper", FIDELITIES, "follow the paper or the released code"),
        ),
    ),
    "data": Command(
        "NAME...",
        (
            (TEXT, "source", "", "directory of published files"),
            (TEXT, "workdir", CACHE, "cache of the runs"),
            (SWITCH, "list", False, "only list sets and corpora"),
            (SWITCH, "any_size", False, "accept other numbers of rows"),
            (LIST, "splits", [], "only these splits of a set"),
            (SWITCH, "gold", False, "download the files that mark gold passages"),
            (COUNT, "first", 0, "only the first passages"),
            (LIST, "gold_of", [], "sets whose gold passages are kept"),
            (COUNT, "others", 0, "further passages at random"),
            (COUNT, "seed", 0, "seed of the further passages"),
        ),
    ),
    "index": Command(CONFIG, (_DISTRIBUTED, (TEXT, "shard", "", "I/N, this machine's share of N"))),
    "store": Command(
        "report|verify|merge PATH [SOURCE...]",
        ((SWITCH, "drop", False, "remove the damaged entries (verify)"),),
    ),
}
"""By name; `module_of` is the script in this package."""


def module_of(command: str) -> str:
    """The name of a command's script."""
    return command.replace("-", "_") + "_" * keyword.iskeyword(command)


def takes_config(command: str) -> bool:
    """Whether a command takes ``--config``."""
    return CONFIG in COMMANDS[command].arguments


def define(command: str) -> flags.FlagValues:
    """The options of a command, at their defaults."""
    values = flags.FlagValues()
    values.set_gnu_getopt()
    for make, *arguments in COMMANDS[command].options:
        make(*arguments, flag_values=values)
    return values


def about(command: str) -> str:
    """The docstring of a command's script, which is read and not imported."""
    source = (Path(__file__).parent / f"{module_of(command)}.py").read_text("utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").replace("``", "`")


def usage(command: str) -> str:
    """The help of a command: usage, every option with its default, and the docstring."""
    head, _, rest = about(command).partition("\n")
    values = define(command)
    rows = [(f"--{name}", _text(values[name])) for name in values]
    if takes_config(command):
        rows.insert(0, ("--config", "config file and METHOD@DATA; with --help its settings"))
    width = max((len(name) for name, _ in rows), default=0)
    options = [f"  {name:<{width}}  {text}" for name, text in rows]
    listed = ["options:", *options, ""] if rows else []
    words = f"usage: jaxrag {command} {COMMANDS[command].arguments} {'[options]' * bool(rows)}"
    words = textwrap.fill(words, 100, subsequent_indent="    ", break_on_hyphens=False)
    return "\n".join([words, "", head, "", *listed, rest.strip("\n")])


def _text(flag: Any) -> str:
    """One line about an option, with its values and its default."""
    default = flag.default if not isinstance(flag.default, list) else ",".join(flag.default)
    plain = isinstance(default, (str, bool)) or default is None
    text = _DEFAULTS.get(default, default) if plain else default
    return f"{flag.help.partition(chr(10))[0].rstrip(';')}; default: {text}"


def overview() -> str:
    """All commands, each with the first line of its docstring."""
    lines = ["usage: jaxrag COMMAND ...; jaxrag COMMAND --help describes one.", ""]
    width = max(map(len, COMMANDS))
    lines += [f"  {name:<{width}}  {about(name).partition(chr(10))[0]}" for name in COMMANDS]
    return "\n".join(lines)
