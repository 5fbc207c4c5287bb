import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxrag.methods.r3.settings import SupervisedTraining
from jaxrag.methods.r3.supervised_training import Example, batches, mine
from jaxrag.retrieval.bm25.index import Bm25Index
from jaxrag.retrieval.corpus.passages import Passages, write_passages
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.types import InputError, Passage, Question
from tests.methods.r3 import small_sidr
from tests.models.bert import small_bert
from tests.training import train_small

TEXTS = (
    "Rome is the capital of Italy",
    "Paris is the capital of France",
    "the capital of France has a river",
    "the capital markets of France are in Paris",
    "a cat sat on the mat",
    "France borders Italy",
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sidr")
    train_small.make(directory / "made")
    return directory


@pytest.mark.parametrize("task", ["open", "yes_no", "labels"])
def test_words_of_closed_answers_are_no_distant_positives(tmp_path: Path, task: str) -> None:
    """A passage with the word "no" does not answer, and is a hard negative like others."""
    texts = ("no cheese is made in Oslo", "cheese of Oslo is imported")
    passages = write_passages(
        tmp_path / "corpus", (Passage(f"p{i}", "", text) for i, text in enumerate(texts))
    )
    index = Bm25Index.open(tmp_path / "bm25", passages)
    question = Question(
        "q", "is cheese made in Oslo", ("no",), ("yes", "no")[: 2 * (task == "labels")], task
    )
    with pytest.raises(InputError, match="None of the 1 questions"):
        mine([question], {}, passages, index)
    (example,) = mine([question], {"q": [1]}, passages, index)
    assert example.positives == (1,) and example.negatives == (0,)


def test_negatives_rank_high_and_contain_no_answer(tmp_path: Path) -> None:
    passages = write_passages(
        tmp_path / "corpus", (Passage(f"p{i}", "", text) for i, text in enumerate(TEXTS))
    )
    index = Bm25Index.open(tmp_path / "bm25", passages)
    known = Question("known", "what is the capital of France", ("Paris",))
    unknown = Question("unknown", "what is the capital of Italy", ("Rome",))
    lost = Question("lost", "which cat sat on the mat", ("Felix",))
    found = mine([known, unknown, lost], {"known": [1]}, passages, index)
    assert [example.question for example in found] == [known.text, unknown.text]
    # known: 1 is gold, 3 holds the answer; of the rest 2 has both words, then 0 or 5 have one
    assert found[0].positives == (1,)
    assert found[0].negatives[0] == 2 and {*found[0].negatives} == {0, 2, 5}
    # unknown has no gold: the first passage with the answer takes its place
    assert found[1].positives == (0,) and {*found[1].negatives} == {1, 2, 3, 5}
    only = mine([known, unknown], {"known": [1]}, passages, index, distant=0)
    assert [example.question for example in only] == [known.text]
    blind = dataclasses.replace(unknown, hidden=("p0", "p1"))  # no example has what is hidden
    (example,) = mine([blind], {unknown.id: [2]}, passages, index)
    assert {*example.negatives} == {3, 5}
    with pytest.raises(InputError, match="None of the 1 questions has a gold passage"):
        mine([lost], {}, passages, index)


def loader(made: Path, examples: Any = None, **changes: Any) -> Any:
    encoder = SidrEncoder.load(
        str(made / "made" / "bert"), first=4, top=8, query_length=16, passage_length=16
    )
    settings = SupervisedTraining(batch=8, microbatch=2, **changes)
    corpus = Passages.open(made / "made" / "passages")
    return batches(examples or train_small.examples(), corpus, encoder, settings)


def test_each_question_is_visited_once_an_epoch_with_its_passages(made: Path) -> None:
    named = [
        Example(f"the {word}", (i,), (20 + i, 30)) for i, word in enumerate(small_bert.WORDS[:16])
    ]
    data = loader(made, named, negatives=2)
    epochs = [[next(data) for _ in range(2)] for _ in range(2)]
    orders = []
    for epoch in epochs:
        rows = np.concatenate([batch.queries.ids[:, 2] for batch in epoch])
        assert sorted(rows) == list(range(4, 20))  # the words' ids
        orders.append(rows.tolist())
    assert orders[0] != orders[1]
    batch = epochs[0][0]
    passages = Passages.open(made / "made" / "passages")
    tokenizer = small_bert.tokenizer(small_sidr.BERT)
    for place, word in enumerate(batch.queries.ids[:, 2]):
        number = int(word) - 4
        wanted = tokenizer(passages[number].text).input_ids
        assert batch.passages.ids[place, 0, : len(wanted)].tolist() == wanted
        drawn = [tuple(batch.passages.ids[place, k, :5].tolist()) for k in (1, 2)]
        both = [tuple(tokenizer(passages[row].text).input_ids) for row in (20 + number, 30)]
        assert sorted(drawn) == sorted(both)


def test_missing_negatives_are_other_questions_positives(made: Path) -> None:
    data = loader(made, [Example("the cat", (i,), ()) for i in range(8)])
    batch = next(data)
    positives, negatives = batch.passages.ids.swapaxes(0, 1)
    assert (positives != negatives).any(axis=1).all()


def test_too_few_questions_are_refused(made: Path) -> None:
    with pytest.raises(InputError, match="3 questions to train on, fewer than a batch of 8"):
        loader(made, train_small.examples()[:3])
    with pytest.raises(InputError, match="2 different positive passages, too few"):
        loader(made, [Example("the cat", (i % 2,), ()) for i in range(8)], negatives=4)
