"""Training data of SiDR and DPR: gold passages, against hard negatives and the rest of the batch.

Source: Zhou et al. (SiDR), Karpukhin et al. 2020 (DPR); docs/methods, "R3: SiDR", "R3: loss" and
"R3: DPR".
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from jaxrag.evaluation.metrics import passage_has, telling_answers
from jaxrag.methods.r3.contrastive import ContrastiveBatch, TowersEncoder, make_batch
from jaxrag.methods.r3.settings import SupervisedTraining
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.retriever import TextRetriever
from jaxrag.training.loop import Data
from jaxrag.training.trainer import shuffled_batches
from jaxrag.types import InputError, Question


class Example(NamedTuple):
    """A training question: its text, its positives, of which each use draws one, and its hard
    negatives, best first; passages are rows of the corpus.
    """

    question: str
    positives: tuple[int, ...]
    negatives: tuple[int, ...]


def mine(
    questions: Sequence[Question],
    gold: Mapping[str, Sequence[int]],
    passages: Passages,
    retriever: TextRetriever,
    *,
    depth: int = 100,
    distant: int = 1,
) -> list[Example]:
    """Examples with hard negatives: retrieved passages that are not gold and contain no answer.

    A question without gold passages gets, as distant supervision, the first retrieved passages that
    contain an answer (as in DPR, Karpukhin et al. 2020); if there are none, it is left out. Words
    such as yes and no are no such answer, see `telling_answers`. An example without hard negatives
    gets other questions' positives in training.

    Args:
      gold: rows of the gold passages by question id.
      retriever: over the same corpus, such as BM25.
      depth: passages retrieved for each question.
      distant: most positives of a question without gold; 0 leaves such questions out.

    InputError if no question has a positive passage.
    """
    usable = [question for question in questions if distant or gold.get(question.id)]
    rankings = retriever.search_texts([question.text for question in usable], depth)
    examples = []
    for question, ranking in zip(usable, rankings, strict=True):
        candidates = [
            (row, passage)
            for row, passage in zip(ranking.ids, passages.get(ranking.ids), strict=True)
            if passage.id not in question.hidden
        ]
        answers = telling_answers(question)
        right = [row for row, passage in candidates if passage_has(passage, answers)]
        positives = tuple(gold.get(question.id, ())) or tuple(right[:distant])
        wrong = [row for row, _ in candidates if row not in {*right, *positives}]
        if positives:
            examples.append(Example(question.text, positives, tuple(wrong)))
    if not examples:
        raise InputError(
            f"None of the {len(questions)} questions has a gold passage or a retrieved passage "
            "that contains an answer, so there is nothing to train on. Use a data set with qrels, "
            "or the corpus that the questions were written for."
        )
    return examples


def batches(
    examples: Sequence[Example],
    passages: Passages,
    encoder: TowersEncoder,
    settings: SupervisedTraining,
) -> Data:
    """Endless batches, read and tokenised during the training step; see `shuffled_batches`.
    InputError for too few questions, or too few different positives to draw negatives from.
    """
    corpus = Passages.open(passages.directory)  # its own reader, since it reads in a thread
    tokenizer = copy.deepcopy(encoder.tokenizer)

    positives = np.unique([example.positives[0] for example in examples])
    most = settings.negatives + max(len(example.positives) for example in examples)
    if most > len(positives):
        raise InputError(
            f"The questions have {len(positives)} different positive passages, too few to draw "
            f"{settings.negatives} negatives of others' for each: take more questions."
        )

    def draw(example: Example, random: np.random.Generator) -> tuple[str, list[int]]:
        positive = example.positives[int(random.integers(len(example.positives)))]
        pool = list(example.negatives)
        if len(pool) < settings.negatives:
            rows = random.choice(positives, most, replace=False)
            pool += [row for row in rows.tolist() if row not in example.positives]
        chosen = random.choice(len(pool), settings.negatives, replace=False)
        return example.question, [positive, *(pool[i] for i in chosen)]

    def collate(drawn: Sequence[tuple[str, list[int]]]) -> ContrastiveBatch:
        questions, rows = zip(*drawn, strict=True)
        return make_batch(questions, rows, corpus, encoder, tokenizer=tokenizer)

    return shuffled_batches(
        examples,
        settings.batch,
        seed=settings.seed,
        name="questions",
        draw=draw,
        collate=collate,
    )
