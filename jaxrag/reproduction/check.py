"""Requirements of a reproduction, from settings alone: no data, model or index is read."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from jaxrag.core.json_text import parse_json
from jaxrag.core.progress import duration_text, size_text
from jaxrag.data.benchmark import Benchmark
from jaxrag.data.conversion import QuestionFiles
from jaxrag.data.corpora import CORPORA, named_part, open_corpus
from jaxrag.data.dataset import OWN
from jaxrag.data.draw import Draw
from jaxrag.data.folder import Folder
from jaxrag.data.origins import unbuilt
from jaxrag.data.sets import named_set
from jaxrag.engines.local.engine import Local
from jaxrag.engines.memory import Memory, decoder_of, device_count, on_disk, run_memory, vllm_share
from jaxrag.engines.server import Server
from jaxrag.engines.vllm import Vllm
from jaxrag.evaluation.prices import Price
from jaxrag.evaluation.records import describe_environment
from jaxrag.evaluation.report.tables import Grid
from jaxrag.models.checkpoint.files import locate
from jaxrag.models.decoder.config import DecoderConfig
from jaxrag.models.device_memory import Devices
from jaxrag.reproduction.measures import answering_seconds
from jaxrag.reproduction.prompt_files import sets_in_use
from jaxrag.reproduction.work import Work
from jaxrag.retrieval.bm25.index import Bm25
from jaxrag.retrieval.dense.dpr import Dpr
from jaxrag.retrieval.dense.exact import Exact, exact_footprint
from jaxrag.retrieval.dense.scann.index import Scann, ScannSettings, scann_footprint
from jaxrag.retrieval.settings import Footprint
from jaxrag.retrieval.sidr.settings import Sidr
from jaxrag.retrieval.web.index import Web
from jaxrag.retrieval.wiki_dpr.index import WikiDpr
from jaxrag.runs.calibration import calibration_data
from jaxrag.runs.calls import RECORD_CALLS, expected_costs
from jaxrag.runs.job import RUN, Job
from jaxrag.runs.needs import Requiring, check_needs
from jaxrag.runs.run import Run
from jaxrag.runs.settings import parts_in_use
from jaxrag.runs.table_job import TableJob
from jaxrag.types import InputError

TOTALS = ("llm_calls", "prompt_tokens", "new_tokens", "llm_scores", "searches")
UNKNOWN = "unknown"

_TOKENS = ("prompt_tokens", "new_tokens", "helper_prompt_tokens", "helper_new_tokens")

_WORDS = 100  # of a passage
_POSTING = 8  # bytes of a word of a passage in the index of BM25
_BERT_BASE = 768  # numbers of a vector
_SIDR_TOKENS = 128  # of a passage, at most


class PublishedModels(NamedTuple):
    """Facts about published checkpoints, by their names.

    These are lengths of vectors, numbers of parameters in billions, and shapes of language models.
    """

    dimensions: Mapping[str, int]
    parameters: Mapping[str, float]
    decoders: Mapping[str, DecoderConfig]


class Rate(NamedTuple):
    """Tokens of prompts that a model reads, and tokens that it writes, a second."""

    reading: float
    writing: float


class Need(NamedTuple):
    """Requirements of one job.

    Attributes:
      questions, passages: their numbers, of questions at most the run's limit; None if not known.
      costs: of all questions by name, see `jaxrag.runs.calls`; None if not known, as of trainings
        that ask a language model.
    """

    name: str  # of the job's directory
    model: str = ""  # the language model that answers; "" for a job without one
    questions: int | None = None
    passages: int | None = None
    corpus: str = ""  # what is searched
    costs: Mapping[str, float] | None = MappingProxyType({})
    index: str = ""  # the index with its bytes on disk and in memory
    api: str = ""  # the model of a paid service
    paid_search: bool = False  # whether each search is paid for

    def seconds(self, rates: Mapping[str, Rate]) -> float | None:
        """Seconds of reading and writing all tokens, by rates of models, "" of others; or None."""
        rate = rates.get(self.model, rates.get(""))
        if self.costs is None or rate is None:
            return None
        tokens = (self.costs.get(name, 0) for name in ("prompt_tokens", "new_tokens"))
        return sum(count / speed for count, speed in zip(tokens, rate, strict=True))


def requirements(name: str, job: Job, published: PublishedModels, devices: Devices) -> Need:
    """The requirements of a job, whose directory has this name, on some devices."""
    run, count = _run(job), _count_of(job)
    need = Need(name, questions=count)
    if run is None:
        return need
    _, passages, corpus, task = sizes(run.data)
    model: Any = run.model
    server = isinstance(model, Server) and "api.openai.com" in model.urls
    costs = None
    if isinstance(job, Run | TableJob) and count and (each := expected_costs(run, {task: 1})):
        costs = {name: count * cost for name, cost in each.items()}
    need = need._replace(model=model.name, costs=costs, api=model.model if server else "")
    if not run.needs.search:
        return need
    paid = isinstance(run.index, Web) and run.index.engine == "brave" and not run.index.offline
    index = f"{type(run.index).__name__} of a corpus whose size is not known"
    if passages is not None:
        takes = _footprint(run.index, passages, published, devices).text
        index = ": ".join(filter(None, (type(run.index).__name__, takes)))
    return need._replace(passages=passages, corpus=corpus, index=index, paid_search=paid)


def _footprint(
    index: Any, passages: int, published: PublishedModels, devices: Devices
) -> Footprint:
    if isinstance(index, Sidr):
        size = 2 * (1 + _SIDR_TOKENS) * passages
        return Footprint(size, size, "at most, of 128 tokens a passage")
    if isinstance(index, Bm25):
        size = _POSTING * _WORDS * passages
        return Footprint(size, 4 * passages, "at most, of 100 different words a passage")
    if isinstance(index, Dpr | WikiDpr):
        return exact_footprint(passages * _BERT_BASE, 0.0, devices)
    checkpoint = getattr(getattr(index, "encoder", None), "checkpoint", "")
    dimension = published.dimensions.get(checkpoint)
    if dimension and isinstance(index, Scann):
        return scann_footprint(passages, dimension, ScannSettings())
    if dimension and isinstance(index, Exact):
        return exact_footprint(passages * dimension, index.memory_gb, devices)
    return Footprint()


class MemoryFit(NamedTuple):
    """Memory of a job on each device, estimated; None if not known. Whether that is there."""

    memory: Memory | None
    fits: bool


def memory_by_models(
    jobs: Mapping[Path, Job], published: PublishedModels, devices: Devices
) -> dict[str, dict[str, MemoryFit]]:
    """Memory of jobs by the language models that they load, and by the jobs' names."""
    memory: dict[str, dict[str, MemoryFit]] = {}
    for path, job in jobs.items():
        if run := _run(job):
            models = [part for part in parts_in_use(job) if isinstance(part, Local | Vllm)]
            names = " and ".join(sorted({model.name for model in models})) or "servers' models"
            fit = _fit(job, run, dict.fromkeys(models), published, devices)
            memory.setdefault(names, {})[path.name] = fit
    return memory


def _fit(
    job: Job,
    run: Run,
    models: Collection[Local | Vllm],
    published: PublishedModels,
    devices: Devices,
) -> MemoryFit:
    """The index is that of the job's run, the encoders are the published ones."""
    index, passages = 0.0, sizes(run.data)[1]
    if run.needs.search and (devices.cpu or not isinstance(run.index, Scann | Bm25 | Web)):
        takes = _footprint(run.index, passages, published, devices) if passages else Footprint()
        if takes.memory is None:
            return MemoryFit(None, True)
        index = takes.memory / devices.count
    names = {*checkpoints(job)} - published.decoders.keys()
    encoders = sum(published.parameters.get(name, 0.0) for name in names)
    try:
        shapes = {model: decoder_of(model.checkpoint, published.decoders) for model in models}
    except InputError:  # yet to be trained, or of no supported decoder
        return MemoryFit(None, True)
    memory = run_memory(shapes, devices, index, 1e9 * encoders * (4 if devices.cpu else 2))
    if memory is None:
        return MemoryFit(None, True)
    shares = [vllm_share(model, devices) for model in models if isinstance(model, Vllm)]
    small = bool(shares) and memory.weights + memory.cache > 1.001 * sum(shares)
    limit = devices.memory / (devices.share if shares else 1)
    return MemoryFit(memory, memory.peak <= limit and not small)


def _run(job: Any) -> Run | None:
    """The run that has a job's models and index, see `Job`; None without language model."""
    if hasattr(job, "reading"):
        return job.reading()
    run = job if isinstance(job, Run) else getattr(job, "run", None)
    return run if isinstance(run, Run) else None


def _count_of(job: Job) -> int | None:
    """The number of questions of a job's own data or its run's, at most its limit, if known."""
    owner: Any = job if hasattr(job, "data") else getattr(job, "run", None)
    data: Any = getattr(owner, "data", ())
    count = sum(sizes(part)[0] or 0 for part in (data if isinstance(data, tuple) else (data,)))
    return min((number for number in (count, getattr(owner, "limit", 0)) if number), default=None)


def key_variables(value: Any) -> Iterator[str]:
    """Environment variables that must hold keys of closed services, in a tree of settings."""
    for part in parts_in_use(value):
        if isinstance(part, Server) and "api.openai.com" in part.urls:
            yield part.key_variable
        if isinstance(part, Web) and not part.offline and part.variable:
            yield part.variable


def checkpoints(value: Any) -> Iterator[str]:
    """Checkpoints of the hub, and names of served models, in a tree of settings."""
    for part in parts_in_use(value):
        for field in dataclasses.fields(part):
            entry = getattr(part, field.name)
            for text in entry if isinstance(entry, tuple) else (entry,):
                if isinstance(text, str) and text.startswith("hub:"):
                    yield text
        if getattr(part, "model", "") and hasattr(part, "urls"):
            yield f"{part.model} behind {part.urls}"


def sizes(data: Any) -> tuple[int | None, int | None, str, str]:
    """Numbers of questions and passages, name of the corpus, and task, of settings of data."""
    if isinstance(data, Draw):
        counts = {"train": data.train, "both": data.train + data.test}
        return counts.get(data.part, data.test), *sizes(data.test_source or data.source)[1:]
    if not isinstance(data, Benchmark):
        return None, None, type(data).__name__, getattr(data, "task", "open")
    published = named_set(data.name)
    count = data.first or published.splits[data.split or published.evaluated]
    corpus = data.corpus or published.corpus
    if part := named_part(corpus):
        return count, part.others, corpus, published.task  # and the gold passages
    if corpus == OWN or corpus not in CORPORA:
        return count, published.contexts_size or None, published.contexts_name, published.task
    return count, CORPORA[corpus].passages, corpus, published.task


def problems(
    jobs: Mapping[Path, Job], root: Path, published: PublishedModels, devices: Devices
) -> dict[str, list[str]]:
    """What stops jobs, found in one pass before the first: messages, each with its jobs' names.

    Servers get no request; checkpoints below ``root``, the directories' parent, are made by jobs.
    """
    messages: dict[str, list[str]] = {}
    for path, job in jobs.items():
        for message in dict.fromkeys(_problems(job, root, devices)):
            messages.setdefault(message, []).append(path.name)
    for names, fits in memory_by_models(jobs, published, devices).items():
        if failing := [name for name, fit in fits.items() if not fit.fits]:
            message = (
                f"{names}: {_largest(fits[name].memory for name in failing)} of each device, which "
                f"has {size_text(devices.memory)}: more devices (--tensor_parallel), "
                "--quantization, --memory, --index_memory or --engine=server (docs/recipes.md)"
            )
            messages[message] = failing
    return messages


def _problems(job: Any, root: Path, devices: Devices) -> Iterator[str]:
    used, parts = _run(job), [*parts_in_use(job)]
    cache = Path(getattr(job, "cache", "") or getattr(used, "cache", ""))
    if used:
        yield from _refusal(lambda: parts.append(calibration_data(used)))
        # helpers whose checkpoints other jobs will have trained, or the job itself
        later: dict[str, Any] = {
            field: None
            for field, helper in used.needs.helpers.items()
            if root in Path(helper.checkpoint or "").parents
            or (used is not job and not helper.checkpoint)
        }
        yield from _refusal(lambda: check_needs(used, given=later))
    for name in key_variables(job):
        if not os.environ.get(name):
            yield f"${name} is not set: it holds the key of a service"
    for part in parts:
        # Exact serves instead of Scann
        if isinstance(part, Requiring) and not isinstance(part, Scann | Local):
            yield from _refusal(part.require)
        if isinstance(part, Local | Vllm) and (count := device_count(part)) > devices.count:
            yield f"{part.name} lies on {count} devices, and there are {devices.count}"
        if isinstance(part, Benchmark):
            for build in unbuilt(part, cache):
                size = build.size.partition("; ")[0]  # without vectors, which depend on the encoder
                yield f"{build.name} is not built ({size}): {build.command}"
            if "/" in part.corpus and not (Path(part.corpus) / "corpus.jsonl").is_file():
                yield from _refusal(lambda: open_corpus(part.corpus, cache))  # noqa: B023
        if isinstance(part, WikiDpr):
            yield from _refusal(lambda: part.is_imported(cache))  # noqa: B023
        if isinstance(part, QuestionFiles) and not Path(part.path).expanduser().exists():
            yield f"no questions at {part.path}: give --data=SET=FOLDER, or --only=-SET"
        elif isinstance(part, Folder):
            yield from _refusal(part.files)
        spec = getattr(part, "checkpoint", None) or ""
        helper = hasattr(part, "check")  # has been checked with the method's needs
        if spec and not helper and root not in Path(spec).parents:
            if not spec.startswith("hub:"):
                yield from _refusal(lambda: locate(spec))  # noqa: B023
            elif os.environ.get("HF_HUB_OFFLINE") and on_disk(spec) is None:
                yield f"{spec} is not on this machine, and $HF_HUB_OFFLINE forbids the download"


def _refusal(check: Callable[[], object]) -> Iterator[str]:
    """The message of the InputError that a check raises, if it does."""
    try:
        check()
    except InputError as error:
        yield str(error)


def measured_rates(workdir: Path) -> dict[str, Rate]:
    """Tokens a second of each model, in its largest finished run on these devices.

    Runs that found results in a store are left out: they say nothing of the speed.
    """
    longest: dict[str, tuple[float, float]] = {}
    devices = describe_environment()["devices"]
    for file in (f for p in ("*", f"*/{RUN}") for f in workdir.glob(f"*/runs/{p}/metrics.json")):
        totals = parse_json(file.read_bytes())["totals"]
        head = parse_json((file.parent / "config.json").read_bytes())
        if totals["seconds"] is None or any(e["devices"] != devices for e in head["environments"]):
            continue
        name = head["config"]["language_model"]["name"]
        tokens = totals["prompt_tokens"] + totals["new_tokens"]
        if seconds := answering_seconds(file.parent):
            longest[name] = max(longest.get(name, (0.0, 0.0)), (tokens, tokens / seconds))
    return {name: Rate(rate, rate) for name, (_, rate) in longest.items()}


def needs_grid(by_table: Mapping[str, Sequence[Need]], rates: Mapping[str, Rate]) -> Grid:
    """Sums over the jobs of each table that no table before it has, and over all."""
    costs = (cost.replace("_", " ") for cost in TOTALS)
    headings = ("table or figure", "jobs", "questions", *costs, "time", "jobs not known")
    lines = {**by_table, "all": [need for needs in by_table.values() for need in needs]}
    return Grid(headings, [_line(name, needs, rates) for name, needs in lines.items()])


def _line(name: str, needs: Sequence[Need], rates: Mapping[str, Rate]) -> tuple[str, ...]:
    """A line of the grid: sums over the known jobs that ask a language model; empty if none do."""
    asking = [need for need in needs if need.model]
    if not asking:
        return (name, f"{len(needs):,}", *[""] * (len(TOTALS) + 3))
    questions = [need.questions for need in asking if need.questions is not None]
    times = [need.seconds(rates) for need in asking]
    known = [seconds for seconds in times if seconds is not None]
    unknown = sum(need.costs is None for need in asking)
    return (
        name,
        f"{len(needs):,}",
        _count(sum(questions) if questions else None),
        *(_count(_sum(asking, cost)) for cost in TOTALS),
        duration_text(sum(known)) if known else UNKNOWN,
        f"{unknown} of {len(asking)}" if unknown else "",
    )


def _sum(needs: Iterable[Need], cost: str) -> float | None:
    """A cost of all jobs that are known; None if none is."""
    values = [need.costs.get(cost, 0) for need in needs if need.costs is not None]
    return sum(values) if values else None


def _count(value: float | None) -> str:
    if value is None:
        return UNKNOWN
    return f"{value / 1e6:,.1f} M" if value >= 1e5 else f"{round(value):,}"


def _unknown(needs: Sequence[Need]) -> str:
    """How many jobs are not in a sum, as the end of a sentence."""
    count = sum(need.costs is None for need in needs)
    return f"; {count} of {len(needs)} jobs are unknown and not counted" if count else ""


def read_rate(given: Sequence[str]) -> Rate:
    """The rate of one number, or of two: of tokens read and written; InputError for others."""
    try:
        numbers = [float(text) for text in given]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or min(numbers) <= 0:
        raise InputError(
            f"--tokens_per_second is {','.join(given)}: give one number, or those of tokens read "
            "and of tokens written, such as 20000,2000."
        )
    return Rate(numbers[0], numbers[-1])


def refuse_problems(work: Work, published: PublishedModels, devices: Devices) -> None:
    """InputError with all that stops the jobs that are not finished, before the first begins."""
    todo = {path: job for path, job in work.jobs.items() if not work.finished(path)}
    lines = []
    for message, (job, *others) in problems(todo, work.root, published, devices).items():
        more = f" and {len(others)} other job{'s' * (len(others) > 1)}" if others else ""
        lines.append(f"  {message} ({job}{more})")
    if lines:
        raise InputError("these jobs cannot be done here yet:\n" + "\n".join(lines))


def overview(
    work: Work, needs: Collection[Need], published: PublishedModels, devices: Devices
) -> list[str]:
    """Indexes, memory, models to download, and prompt sets of some jobs."""
    unknown = sorted({n.name.partition("-")[0] for n in needs if n.model and n.costs is None})
    indexes = (
        f"{need.index}; over {need.corpus}"
        + (f", {need.passages:,} passages" if need.passages else "")
        for need in needs
        if need.index
    )
    return [
        "\n".join(["Indexes:", *dict.fromkeys(indexes)]),
        memory_text(memory_by_models(work.jobs, published, devices), devices),
        f"Models: {models_text(work.jobs.values(), published.parameters) or 'none to download'}",
        f"Prompts: {', '.join(sets_in_use(work.jobs.values())) or 'none'}",
        "Time of the language models at the speed of runs of --workdir or of --tokens_per_second; "
        "scored texts, trainings and indexes come on top",
        *([f"Unknown calls: {', '.join(unknown)}: {RECORD_CALLS}"] if unknown else []),
    ]


def memory_text(memories: Mapping[str, Mapping[str, MemoryFit]], devices: Devices) -> str:
    """The largest estimated memory of a device, a line for each set of models."""
    kind = "CPU devices that share the host" if devices.cpu else "devices"
    lines = [
        f"Memory of each of {devices.count} {kind} ({size_text(devices.memory)}), estimated; "
        "states of trainings and batches of encoders come on top:"
    ]
    for names, fits in memories.items():
        unknown = sum(fit.memory is None for fit in fits.values())
        rest = f", {unknown} of them unknown" if unknown else ""
        largest = _largest(fit.memory for fit in fits.values())
        lines.append(f"{names}: {largest}; {len(fits)} jobs{rest}")
    return "\n".join(lines)


def _largest(memories: Iterable[Memory | None]) -> str:
    """The largest peak that is known, and what it consists of."""
    known = [memory for memory in memories if memory is not None]
    if not known:
        return UNKNOWN
    largest = max(known, key=lambda memory: memory.peak)
    words = {"cache": "keys and values", "work": "activations"}
    parts = largest._asdict().items()
    texts = (f"{size_text(size)} {words.get(name, name)}" for name, size in parts if size)
    return f"up to {size_text(largest.peak)} ({', '.join(texts)})"


def paid_lines(
    needs: Iterable[Need], prices: Mapping[str, Price], search_price: float | None
) -> list[str]:
    """What paid services and searches cost, a line each; ``search_price``: dollars for 1,000."""
    lines, searching = [], [need for need in needs if need.paid_search]
    for name in sorted({need.api for need in needs if need.api}):
        jobs, price = [need for need in needs if need.api == name], prices.get(name)
        spent = price and price.of_question({cost: _sum(jobs, cost) or 0 for cost in _TOKENS})
        dated = f", at the price of {price.date}" if price else ""
        way_out = "name its price in the file of $JAXRAG_PRICES"
        lines.append(f"{name}: {_paid(jobs, 'llm_calls', spent, way_out)}{dated}{_unknown(jobs)}")
    if searching:
        spent = search_price and (_sum(searching, "searches") or 0) * search_price / 1000
        way_out = "give --search_price, the dollars for 1,000"
        lines.append(f"web: {_paid(searching, 'searches', spent, way_out)}{_unknown(searching)}")
    return lines


def _paid(needs: Sequence[Need], cost: str, dollars: float | None, way_out: str) -> str:
    """How many of a cost, and the dollars for them; None: there is no price."""
    count = _sum(needs, cost)
    name = cost.removeprefix("llm_")
    if dollars is None:
        return f"{_count(count)} {name}, {way_out}"
    return f"{_count(count)} {name}, dollars: {UNKNOWN if count is None else f'{dollars:,.2f}'}"


def models_text(jobs: Iterable[Job], parameters: Mapping[str, float]) -> str:
    """The models that jobs need, with the bytes of their weights in bfloat16."""
    names = sorted({name for job in jobs for name in checkpoints(job)})
    return ", ".join(
        f"{name} ({size_text(2e9 * parameters[name])})" if name in parameters else name
        for name in names
    )
