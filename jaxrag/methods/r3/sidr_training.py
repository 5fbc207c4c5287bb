"""Training SiDR: questions with gold passages, against hard negatives and the rest of the batch.

Zhou et al. (SiDR); docs/methods.md, "R3: SiDR" and "R3: loss". The defaults are those of the
released code: batches of 128, one hard negative of BM25, AdamW at 2e-5 without weight decay, a
linear decay, gradients clipped at 2, 40 epochs. Its warm-up of one epoch is ``update.warmup``, in
steps.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grain
import numpy as np
from jax.sharding import Mesh

from jaxrag.core.hashing import canonical, digest
from jaxrag.methods.r3.contrastive import Batch, make_step, tokenize
from jaxrag.methods.r3.schedule import Schedule
from jaxrag.models.bert.sidr import Towers
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.text.answers import contains
from jaxrag.training import grad_cache
from jaxrag.training.checkpoints import flatten, hashes
from jaxrag.training.loop import Data, Evaluation, fit
from jaxrag.training.optimisation import TrainState
from jaxrag.types import InputError, Question


class Example(NamedTuple):
    """A question to train on; passages are rows of the corpus.

    Attributes:
      question: its text.
      positives: passages that answer it; one is drawn whenever the question comes up.
      negatives: passages that seem to, best first; some are drawn.
    """

    question: str
    positives: tuple[int, ...]
    negatives: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Training(Schedule):
    """How SiDR is trained; the defaults are the paper's.

    Attributes:
      negatives: hard negatives of a question.
    """

    negatives: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.negatives < 0:
            raise InputError(f"negatives is {self.negatives}; 0 or more hard ones are drawn.")


def mine(
    questions: Sequence[Question],
    gold: Mapping[str, Sequence[int]],
    passages: Passages,
    retriever: TextRetriever,
    *,
    depth: int = 100,
    distant: int = 1,
) -> list[Example]:
    """Examples with hard negatives: what a retriever finds that is not gold and has no answer.

    A question without gold passages gets, as distant supervision, the first of those found that
    hold an answer (as DPR does, Karpukhin et al. 2020); where there is none it is left out. Where a
    retriever finds nothing without an answer, an example has no negatives, and `train` draws
    other questions' positives for it.

    Args:
      questions: with their answers.
      gold: rows of the gold passages by question id.
      passages: the corpus.
      retriever: over the same corpus, such as BM25.
      depth: passages looked at.
      distant: most positives of a question without gold; 0 leaves such questions out.

    Raises:
      InputError: no question has a positive passage.
    """
    known = [question for question in questions if distant or gold.get(question.id)]
    rankings = retriever.search_texts([question.text for question in known], depth)
    examples = []
    for question, ranking in zip(known, rankings, strict=True):
        found = list(zip(ranking.ids, passages.get(ranking.ids), strict=True))
        right = [row for row, p in found if contains(f"{p.title} {p.text}", question.answers)]
        positives = tuple(gold.get(question.id, ())) or tuple(right[:distant])
        scored = zip(ranking.ids, ranking.scores, strict=True)  # BM25 fills up with scores of 0
        wrong = [row for row, score in scored if score > 0 and row not in {*right, *positives}]
        if positives:
            examples.append(Example(question.text, positives, tuple(wrong)))
    if not examples:
        raise InputError(
            f"None of the {len(questions)} questions has a gold passage, or an answer in what was "
            "found for it: there is nothing to train a retriever on. Take a data set with qrels, "
            "or the corpus that the questions were asked of."
        )
    return examples


def batches(
    examples: Sequence[Example], passages: Passages, encoder: SidrEncoder, settings: Training
) -> Data:
    """Batches without end in an order that the seed decides, each question once an epoch.

    The next batch is read and tokenised while the last one is trained on. Every process makes the
    same whole batches, of which its devices take their rows.
    """
    if len(examples) < settings.batch:
        raise InputError(
            f"There are {len(examples)} questions to train on, fewer than a batch of "
            f"{settings.batch}: lower batch, or take more questions."
        )
    corpus = Passages.open(passages.directory)  # its own reader, since it reads in a thread
    tokenizer = copy.deepcopy(encoder.tokenizer)

    everything = np.unique([example.positives[0] for example in examples])
    most = settings.negatives + max(len(example.positives) for example in examples)
    if most > len(everything):
        raise InputError(
            f"The questions have {len(everything)} different positive passages, too few to draw "
            f"{settings.negatives} negatives of others' for each: take more questions."
        )

    def draw(example: Example, random: np.random.Generator) -> tuple[str, list[int]]:
        positive = example.positives[int(random.integers(len(example.positives)))]
        pool = list(example.negatives)
        if len(pool) < settings.negatives:
            others = random.choice(everything, most, replace=False)
            pool += [row for row in others.tolist() if row not in example.positives]
        chosen = random.choice(len(pool), settings.negatives, replace=False)
        return example.question, [positive, *(pool[i] for i in chosen)]

    def collate(drawn: Sequence[tuple[str, list[int]]]) -> Batch:
        return make_batch([q for q, _ in drawn], [rows for _, rows in drawn], corpus, encoder,
                          tokenizer)  # fmt: skip

    dataset = grain.MapDataset.source(examples).seed(settings.seed).shuffle().repeat()
    dataset = dataset.random_map(draw).batch(settings.batch, batch_fn=collate)
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    return iter(dataset.to_iter_dataset(reading))


def make_batch(
    questions: Sequence[str],
    rows: Sequence[Sequence[int]],
    passages: Passages,
    encoder: SidrEncoder,
    tokenizer: Any,
    targets: np.ndarray | None = None,
) -> Batch:
    """Tokenises questions and, for each of them, equally many passages of the corpus."""
    pad_id = encoder.module.config.pad_token_id
    texts = [encoder.passage_text(p) for p in passages.get([r for some in rows for r in some])]
    shape = (len(questions), len(rows[0]))
    return Batch(
        tokenize(tokenizer, questions, limit=encoder.query_length, pad_id=pad_id),
        tokenize(tokenizer, texts, limit=encoder.passage_length, pad_id=pad_id),
        np.zeros(shape, np.float32) if targets is None else np.asarray(targets, np.float32),
    )


def train(
    examples: Sequence[Example],
    passages: Passages,
    encoder: SidrEncoder,
    settings: Training,
    directory: Path,
    *,
    evaluate: Callable[[SidrEncoder, int], Evaluation] | None = None,
    mesh: Mesh | None = None,
) -> Towers:
    """Trains from an encoder's parameters; goes on where an earlier call in ``directory`` stopped.

    Args:
      examples: see `mine`.
      passages: the corpus.
      encoder: what training begins with; its lengths are those of training.
      settings: how.
      directory: for checkpoints and figures.
      evaluate: (encoder with the parameters of that step, step) -> each question's figures, such as
        recall.
      mesh: as of `grad_cache.data_mesh`; by default all devices.

    Raises:
      InputError: settings, data or what is in ``directory`` do not fit; or the loss is NaN.
    """
    mesh = mesh or grad_cache.data_mesh()
    grad_cache.check_batch(settings.batch, settings.microbatch, mesh)
    steps = settings.steps_over(len(examples))
    module: Any = encoder.module  # of which a type checker does not know that it can be hashed
    step = make_step(
        module, settings.update, steps=steps, microbatch=settings.microbatch, mesh=mesh
    )
    data = batches(examples, passages, encoder, settings)

    def evaluated(state: TrainState, number: int) -> Evaluation:
        assert evaluate is not None
        return evaluate(by_weights(encoder, state, mesh), number)

    state = fit(
        step.begin(encoder.params),
        data,
        step.update,
        steps=steps,
        directory=directory,
        what="training SiDR",
        save_every=settings.save_every,
        evaluate=evaluated if evaluate else None,
        evaluate_every=settings.evaluate_every,
    )
    return grad_cache.local_arrays(state.params, mesh)[0]


def at_step(encoder: SidrEncoder, state: TrainState, mesh: Mesh, number: int) -> SidrEncoder:
    """The encoder with the parameters of a state, on this process's first device.

    Its identity tells the steps of one training apart, not those of two: see `by_weights`.
    """
    return encoder.with_params(grad_cache.local_arrays(state.params, mesh)[0], step_name(number))


def by_weights(encoder: SidrEncoder, state: TrainState, mesh: Mesh) -> SidrEncoder:
    """As `at_step`, told by a hash of the parameters: for what a store keeps beyond this training.

    The same step of two trainings is two encoders.
    """
    params = grad_cache.local_arrays(state.params, mesh)[0]
    return encoder.with_params(params, digest(canonical(hashes(flatten(params)))))


def step_name(number: int) -> str:
    """What tells the parameters after so many steps from others, see `SidrEncoder.with_params`."""
    return f"step {number}"
