import dataclasses
import json
import math
import threading
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxrag.core.store import Store
from jaxrag.methods.r3 import training as r3
from jaxrag.methods.r3.environment import Environment, PooledQuestion, gold_logprob, make_pools
from jaxrag.methods.r3.labels import Rules
from jaxrag.methods.r3.search import BetaSearch, LateSearch, VectorSearch
from jaxrag.methods.r3.settings import R3Training, Update
from jaxrag.methods.r3.training import BatchMaker
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.retrieval.corpus.passages import Passages
from jaxrag.retrieval.sidr.bag_of_tokens import BagOfTokens, BagTokenizer
from jaxrag.retrieval.sidr.encoder import SidrEncoder
from jaxrag.steps.reader import Reader
from jaxrag.steps.tools import LanguageModelTool, Tools
from jaxrag.types import InputError, Question, Ranking
from tests.models.bert.small_bert import WORDS
from tests.retrieval.fakes import build_bag_of_tokens
from tests.training import train_small
from tests.training.contents import digest_of

PROMPTS = """
[context]
chat = false
user = "{passages}\\nQ: {question}\\nA:"
parse = "first_line"

[fact_checking]
chat = false
user = "{passages}\\nQ: {question}\\nA:"

[multiple_choice]
chat = false
user = "{passages}\\nQ: {question}\\n{choices}\\nA:"

[labels]
chat = false
user = "{passages}\\nQ: {question}\\n{choices}\\nA:"
"""


class Reads:
    """Answers "rome" where the passage has an odd first word; sure of it by the passage's length.

    What it says of a passage can thus be worked out by hand, and so can the labels.
    """

    identity = '{"model":"reads"}'

    def __init__(self, passages: Passages) -> None:
        self.texts = [passage.text for passage in passages]
        self.generated, self.scored = 0, 0

    def number(self, prompt: str) -> int:
        shown = str(prompt).split("\n")[0].removeprefix(": ")
        return self.texts.index(shown)

    def generate(self, prompts: Any, **settings: Any) -> Any:
        from jaxrag.types import Generation

        self.generated += len(prompts)
        texts = ["rome" if self.number(p) % 2 else "paris" for p in prompts]
        return [Generation(t, (1,), (-1.0,), "stop", 3) for t in texts]

    def logprob(self, prompts: Any, continuations: Any) -> Any:
        self.scored += len(prompts)
        found = []
        for prompt, text in zip(prompts, continuations, strict=True):
            number = self.number(prompt)
            value = -3.0 + 0.05 * number + (1.0 if number % 2 else 0.0)
            found.append(np.float32([value if "rome" in text else -9.0]))
        return found


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("r3")
    train_small.make(directory / "made")
    (directory / "prompts.toml").write_text(PROMPTS)
    return directory / "made"


@pytest.fixture
def passages(made: Path) -> Passages:
    return Passages.open(made / "passages")


def environment_of(made: Path, model: Any, **changes: Any) -> Environment:
    reader = Reader(prompts=str(made.parent / "prompts.toml"), answer_tokens=4)
    return Environment(Tools(llm=LanguageModelTool(model)), reader, **changes)


def question(number: int, **changes: Any) -> Question:
    fields: dict[str, Any] = {"id": f"q{number}", "text": f"{WORDS[number % 18]} {number}"}
    return Question(**fields | {"answers": ("rome",)} | changes)


def test_pools_by_hand(made: Path, passages: Passages, tmp_path: Path) -> None:
    model, store = Reads(passages), Store(None)
    questions = [question(0), question(1), question(2)]
    found = {"q0": [4, 3, 7, 2], "q1": [2, 4], "q2": [1, 3]}
    path = tmp_path / "pools.jsonl"
    [kept] = make_pools(questions, found, passages, environment_of(made, model), store, path)
    assert kept.question.id == "q0"
    assert kept.pool.positives == (3, 7) and kept.pool.negatives == (4, 2)
    # of the negatives 4 is likelier: -3 + 0.05 * 4; of the positives 3 is less likely: -2 + 0.15
    np.testing.assert_allclose(kept.pool.above, [-2.8], rtol=1e-6)
    np.testing.assert_allclose(kept.pool.below, [-1.85], rtol=1e-6)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["question_id"] for line in lines] == ["q0", "q1", "q2"]
    assert lines[0]["passes"] == [False, True, True, False]
    assert lines[1]["left_out"] == "no passage gives a right answer"
    assert lines[2]["left_out"] == "every passage gives a right answer"
    counted = model.generated, model.scored
    make_pools(questions, found, passages, environment_of(made, model), store, path)
    assert (model.generated, model.scored) == counted  # the store knew
    with pytest.raises(InputError, match=r"left to train on \(every .* answer: 1\): see .*pools"):
        make_pools(questions[2:], found, passages, environment_of(made, model), store, path)
    with pytest.raises(InputError, match="q9 has no gold answer"):
        make_pools(
            [question(9, answers=())], found, passages, environment_of(made, model), store, path
        )


def test_answer_logprobs_sum_over_tokens(made: Path, passages: Passages) -> None:
    class Spells(Reads):
        def logprob(self, prompts: Any, continuations: Any) -> Any:
            # -0.5 for the first letter, then -0.25 for each
            return [np.float32([-0.5] + [-0.25] * (len(c.strip()) - 1)) for c in continuations]

    environment = environment_of(made, Spells(passages))
    asked = question(0, answers=("rome", "paris"))
    tasks = [(0, lambda: environment.logprobs(asked, passages[3]))]
    [(_, found)] = environment.run(Store(None), tasks)
    np.testing.assert_allclose(found, [-1.25, -1.5], rtol=1e-6)


def test_closed_questions_are_scored_by_their_options(
    made: Path, passages: Passages, tmp_path: Path
) -> None:
    class Chooses(Reads):
        def logprob(self, prompts: Any, continuations: Any) -> Any:
            # says A from odd passages, B from others
            likely = ["A" if self.number(p) % 2 else "B" for p in prompts]
            pairs = zip(continuations, likely, strict=True)
            return [np.float32([-0.1 if c.strip() == one else -2.0]) for c, one in pairs]

    asked = question(0, choices=("rome", "paris"))
    model = Chooses(passages)
    path = tmp_path / "pools"
    [kept] = make_pools(
        [asked], {"q0": [4, 3, 7]}, passages, environment_of(made, model), Store(None), path
    )
    assert kept.pool.positives == (3, 7) and kept.pool.negatives == (4,)
    assert json.loads(path.read_text())["passes"] == [False, True, True]
    assert model.generated == 0


def pooled(passages: Passages, made: Path, directory: Path, count: int = 8) -> list[PooledQuestion]:
    questions = [question(i) for i in range(8)]
    found = {q.id: [i, i + 9, i + 10, i + 15] for i, q in enumerate(questions)}
    environment = environment_of(made, Reads(passages))
    return make_pools(
        questions, found, passages, environment, Store(None), directory / "pools.jsonl"
    )


def encoder_of(made: Path) -> SidrEncoder:
    return SidrEncoder.load(
        str(made / "bert"), first=4, top=8, query_length=16, passage_length=16, scale=0.3
    )


def index_of(made: Path, passages: Passages, directory: Path) -> BagOfTokens:
    tokenizer = BagTokenizer.of(load_tokenizer(made / "bert"), first=4, max_length=16)
    return build_bag_of_tokens(passages, tokenizer, directory / "bags")


SETTINGS: dict[str, Any] = {
    "steps": 4, "batch": 4, "microbatch": 2, "save_every": 4,
    "update": Update(learning_rate=2e-3, top=8),
}  # fmt: skip


def train(
    made: Path, corpus: Passages, directory: Path, *, model: Any = None, searcher: Any = None,
    evaluate: Any = None, keep_with: Any = None, **changes: Any,
) -> tuple[str, list[dict[str, Any]]]:  # fmt: skip
    """Trains in ``directory``; the parameters' hash, and the figures of the steps."""
    directory.mkdir(exist_ok=True)
    encoder = encoder_of(made)
    params = r3.train(
        pooled(corpus, made, directory),
        corpus,
        encoder,
        searcher or LateSearch(index_of(made, corpus, directory), corpus, 6),
        environment_of(made, model or Reads(corpus)),
        Store(None),
        R3Training(**SETTINGS | changes),
        directory / "run",
        evaluate=evaluate,
        keep=keep_with,
        devices=jax.devices()[:1],
    )
    lines = (directory / "run" / "metrics.jsonl").read_text().splitlines()
    figures = [json.loads(line) for line in lines]
    return digest_of(params), figures


@pytest.mark.slow
def test_the_first_half_draws_from_pools_and_the_second_from_retrieval(
    made: Path, passages: Passages, tmp_path: Path
) -> None:
    model = Reads(passages)
    whole, figures = train(made, passages, tmp_path / "whole", model=model)
    assert [line["online"] for line in figures] == [False, False, True, True]
    assert [line["asked"] for line in figures[:2]] == [0, 0]
    assert 0 < figures[2]["asked"] <= figures[3]["asked"]
    assert sum(line["online_negatives"] for line in figures[:2]) == 0
    assert all(line["online_positives"] <= 4 for line in figures)
    assert {"search_seconds", "rerank_seconds", "scoring_seconds", "update_seconds"} <= {
        *figures[3]
    }
    # asking about more at once learns the same, and asks no less
    eager = Reads(passages)
    found, more = train(made, passages, tmp_path / "eager", model=eager, ahead=6)
    assert found == whole and eager.scored >= model.scored
    assert [line["loss"] for line in more] == [line["loss"] for line in figures]
    # as does searching for a part of the batch while the model is asked about another
    found, more = train(made, passages, tmp_path / "parts", parts=3)
    assert found == whole
    same = ("loss", "asked", "reranked", "online_positives", "online_negatives")
    assert [[line.get(name) for name in same] for line in more] == [
        [line.get(name) for name in same] for line in figures
    ]


@pytest.mark.parametrize(
    ("phases", "online"),
    [("both", [False, False, True, True]), ("offline", [False] * 4), ("online", [True] * 4)],
)
def test_phases(phases: Any, online: list[bool]) -> None:
    settings = R3Training(phases=phases)
    assert [settings.is_online(step, 4) for step in range(4)] == online


def maker_of(made: Path, passages: Passages, directory: Path, **changes: Any) -> BatchMaker:
    searcher: Any = None  # what follows searches for nothing
    environment, settings = environment_of(made, Reads(passages)), R3Training(**SETTINGS | changes)
    known = pooled(passages, made, directory)
    return BatchMaker(
        known, passages, encoder_of(made), searcher, environment, Store(None), settings
    )


def test_scored_passages_exclude_the_pools(made: Path, passages: Passages, tmp_path: Path) -> None:
    kl = Update(objective="kl")  # scores all passages
    maker = maker_of(made, passages, tmp_path, update=kl)
    pool = maker.pooled[0].pool
    mine = pool.positives[0]
    for numbers, rows in (([0, 1], [[mine, 38, 39], [38]]), ([0], [[39, 37]])):
        pairs = [*zip(numbers, rows, strict=True)]
        maker._noted(pairs, maker._score(pairs))
    assert maker.scored == {0: {37, 38, 39}, 1: {38}}


def test_draws_depend_on_the_seed(made: Path, passages: Passages, tmp_path: Path) -> None:
    def drawn(seed: int) -> list[list[int]]:
        maker = maker_of(made, passages, tmp_path / str(seed), seed=seed)
        batches = [maker.make(None, range(4), step)[0] for step in range(6)]
        return [np.asarray(batch.passages.ids).ravel().tolist() for batch in batches]

    for seed in (0, 1):
        (tmp_path / str(seed)).mkdir()
    first = drawn(0)
    assert first == drawn(0) != drawn(1)
    assert len({str(batch) for batch in first}) > 1  # nor is one step another's


def test_the_next_part_is_searched_for_while_the_model_scores_one(
    made: Path, passages: Passages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts: list[int] = []
    second = threading.Event()

    class Searches:
        def at(self, encoder: Any, step: int) -> Any:
            return self.search

        def search(self, texts: Any) -> Any:
            parts.append(len(texts))
            if len(parts) == 2:
                second.set()
            return [Ranking((1, 2), (1.0, 0.5)) for _ in texts], {}

    def score(pairs: Any) -> Any:
        assert second.wait(60)  # before the first part's scores are there
        return [[] for _ in pairs]

    maker = maker_of(made, passages, tmp_path, parts=2)
    maker.searcher = Searches()
    monkeypatch.setattr(maker, "_score", score)
    retrieved, _ = maker._explore(maker.encoder, range(4), 0)
    assert parts == [2, 2] and [one.rows for one in retrieved] == [[1, 2]] * 4


@pytest.mark.parametrize("online", [False, True])
def test_kl_sets_hold_a_positive_and_a_negative(
    made: Path, passages: Passages, tmp_path: Path, online: bool
) -> None:
    """Where a question's first passages are all positive, a negative takes the last place."""
    maker = maker_of(made, passages, tmp_path, update=Update(objective="kl"))
    maker.settings = dataclasses.replace(maker.settings, passages=2)
    numbers = range(4)
    pools = [maker.pooled[number].pool for number in numbers]
    found: list[Any] = [list(pool.positives) if online else () for pool in pools]
    pairs = [*zip(numbers, found, strict=True)]
    sets = maker._sets(maker._noted(pairs, maker._score(pairs)), 0)
    for pool, some in zip(pools, sets, strict=True):
        assert len(some) == 2
        assert set(some) & set(pool.positives) and set(some) & set(pool.negatives)
    if online:
        assert [some[0] for some in sets] == [pool.positives[0] for pool in pools]


def test_targets_of_closed_questions_are_those_of_the_gold_option() -> None:
    closed = question(0, choices=("rome", "paris"), answers=("paris",))
    assert gold_logprob(closed, (-0.1, -2.0)) == -2.0
    assert gold_logprob(question(0, answers=("rome", "roma")), (-3.0, -1.0)) == -1.0


def test_retrievers_are_kept_on_the_way(made: Path, passages: Passages, tmp_path: Path) -> None:
    """After 2 and 3 of 4 steps; what is kept is what a training of that state would evaluate."""
    kept: dict[float, str] = {}
    seen: dict[int, str] = {}

    def keep(params: Any, share: float) -> None:
        kept[share] = digest_of(params)

    def evaluate(encoder: SidrEncoder, step: int) -> dict[str, Any]:
        seen[step] = digest_of(encoder.params)
        return {"right": np.array([1.0])}

    _, figures = train(
        made, passages, tmp_path, keep_with=keep, evaluate=evaluate, keep=(0.5, 0.75), evaluations=4
    )
    assert [*seen] == [0, 1, 2, 3, 4]
    assert kept == {0.5: seen[2], 0.75: seen[3]}
    scored = json.loads((tmp_path / "run" / "scored.json").read_text())
    assert sum(scored.values()) / len(scored) == figures[-1]["asked"]


def test_evaluations_are_spread_over_the_training() -> None:
    paper = R3Training(evaluations=20)
    steps = paper.steps_over(79_168)  # nq's training questions, in 80 epochs of batches of 128
    assert steps == 49_480 and paper.steps_between_evaluations(steps) == 2_474
    assert R3Training(evaluate_every=7).steps_between_evaluations(100) == 7
    assert R3Training().steps_between_evaluations(100) == 0
    assert R3Training(keep=(0.5, 0.9)).kept_after(10) == {0.5: 5, 0.9: 9}


@pytest.mark.slow
def test_kl_learns_from_all_retrieved_passages(
    made: Path, passages: Passages, tmp_path: Path
) -> None:
    update = Update(objective="kl", learning_rate=2e-3, top=8)
    model = Reads(passages)
    _, figures = train(made, passages, tmp_path, model=model, update=update, passages=4)
    assert all(0 <= line["loss"] < math.inf for line in figures)
    assert model.scored > 0


def test_training_with_beta_search(made: Path, passages: Passages, tmp_path: Path) -> None:
    searcher: Any = BetaSearch(index_of(made, passages, tmp_path), 6)
    _, figures = train(made, passages, tmp_path / "run", searcher=searcher, phases="online")
    assert [line["online"] for line in figures] == [True] * 4


def test_late_and_vector_search_agree_on_the_whole_corpus(
    made: Path, passages: Passages, tmp_path: Path
) -> None:
    """Late search over the whole corpus is the order of E(q) . E(d), as is that by vectors."""
    encoder, texts = encoder_of(made), ["the cat", "rome river bank", "paris"]
    index = index_of(made, passages, tmp_path)
    search = LateSearch(index, passages, len(passages)).at(encoder, 0)
    deep, figures = search(texts)
    assert figures["reranked"] == len(passages)
    parts = [search(texts[:1]), search(texts[1:])]  # those of a step embed nothing twice
    assert [ranking for some, _ in parts for ranking in some] == deep
    assert [more["reranked"] for _, more in parts] == [0, 0]
    vectors = VectorSearch(encoder, passages, tmp_path / "indexes", 5, len(passages))
    at_zero = encoder.with_params(encoder.params, "step 0")
    stored, _ = vectors.at(at_zero, 0)(texts)
    sparse = encoder.embed_passages(passages)
    full = np.zeros((len(passages), encoder.dimension + 1))
    np.put_along_axis(full, np.asarray(sparse.ids, np.int64), sparse.values, axis=1)
    exact = encoder.embed(texts).astype(np.float64) @ full[:, :-1].T
    for row, (ranking, by_vectors) in enumerate(zip(deep, stored, strict=True)):
        order = np.lexsort((np.arange(len(passages)), -exact[row].astype(np.float32)))
        assert ranking.ids == tuple(order)
        # float16 keeps 11 bits
        np.testing.assert_allclose(by_vectors.scores, np.sort(exact[row])[::-1], rtol=2e-3)


def test_too_few_questions_are_refused(made: Path, passages: Passages, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="8 questions with pools to train on, fewer than a b"):
        train(made, passages, tmp_path, batch=16, microbatch=8)
    assert Rules().sampling == "A"


def test_encoders_of_two_trainings_have_different_identities(
    made: Path, passages: Passages, tmp_path: Path
) -> None:
    """Encoders at one step of two trainings must not be taken for the same one."""
    seen: dict[str, list[str]] = {"offline": [], "online": []}
    for phases, names in seen.items():

        def evaluate(encoder: SidrEncoder, step: int, names: list[str] = names) -> dict[str, Any]:
            names.append(encoder.identity)
            return {}

        train(made, passages, tmp_path / phases, evaluate=evaluate, evaluate_every=1, phases=phases)
    offline, online = seen.values()
    assert len(offline) == len(online) == 5
    assert offline[0] == online[0]  # both begin with the same network
    assert len({*offline, *online}) == 9
