"""Rerankers: a score of how well a passage answers a query."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxrag.core.hashing import canonical
from jaxrag.engines.language_model import LanguageModel
from jaxrag.models.bert.checkpoint import load_classifier
from jaxrag.models.bert.network import BertClassifier
from jaxrag.models.checkpoint.files import fingerprint, locate
from jaxrag.models.precision import compute_dtype
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.retrieval import buckets
from jaxrag.types import InputError, Message

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

QUERY_LIKELIHOOD_PROMPT = (
    "Here is a passage:\n{passage}\n\nWrite a question that this passage answers."
)


class Reranker(Protocol):
    """Scores pairs; a score depends on nothing but its pair."""

    @property
    def identity(self) -> str:
        """Canonical JSON of all that determines the scores."""
        ...

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> Float[np.ndarray, " n"]:
        """Score of each query with the passage beside it, float32; higher is better."""
        ...


@dataclasses.dataclass(frozen=True)
class CrossEncoderReranker:
    """A network that reads query and passage together (Nogueira and Cho, 2019)."""

    identity: str
    module: BertClassifier
    params: dict[str, Any]
    tokenizer: PreTrainedTokenizerFast
    max_length: int
    batching: buckets.Batching

    @classmethod
    def load(cls, spec: str) -> CrossEncoderReranker:
        """Reads a sequence classifier with one label, such as bge-reranker or ms-marco-MiniLM.

        A pair is cut, the longer part first, to as many tokens as the network has positions.
        InputError for an invalid checkpoint.
        """
        path = locate(spec)
        module, params = load_classifier(path, dtype=compute_dtype())
        if module.config.num_labels != 1:
            raise InputError(
                f"{spec} has {module.config.num_labels} labels; a reranker has one, the score."
            )
        settings = {
            "weights": fingerprint(path),
            "dtype": jnp.dtype(module.dtype).name,
            "max_length": module.config.max_tokens,
        }
        return cls(
            identity=canonical({"cross_encoder": settings}),
            module=module,
            params=params,
            tokenizer=load_tokenizer(path),
            max_length=module.config.max_tokens,
            batching=buckets.Batching(),
        )

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> Float[np.ndarray, " n"]:
        """The network's logit for each pair, without a sigmoid."""
        _check_pairs(queries, passages)

        blocks = buckets.stream(
            score_tokens,
            self.params,
            zip(queries, passages, strict=True),
            self,
            limit=self.max_length,
            features=1,
            fields=("ids", "segments", "lengths"),
            module=self.module,
        )
        return buckets.joined(blocks, 1)[:, 0]


@functools.partial(jax.jit, static_argnames="module")
def score_tokens(
    params: dict[str, Any],
    ids: Int[Array, "b t"],
    segments: Int[Array, "b t"],
    lengths: Int[Array, " b"],
    *,
    module: BertClassifier,
) -> Float[Array, "b l"]:
    """A classifier's logits for right-padded texts, float32."""
    where = jnp.arange(ids.shape[1]) < lengths[:, None]
    logits: Any = module.apply({"params": params}, ids, segments, where=where)
    return logits


@dataclasses.dataclass(frozen=True)
class QueryLikelihoodReranker:
    """A language model's likelihood of the query given the passage (UPR, Sachan et al. 2022).

    The mean natural-log probability of the query's tokens (their eq 2) as the reply to
    `QUERY_LIKELIHOOD_PROMPT`. A passage too long for the model is an error, never cut.
    """

    model: LanguageModel

    @property
    def identity(self) -> str:
        """Canonical JSON of the language model and the prompt."""
        model = {"model": self.model.identity, "prompt": QUERY_LIKELIHOOD_PROMPT}
        return canonical({"query_likelihood": model})

    def score(self, queries: Sequence[str], passages: Sequence[str]) -> Float[np.ndarray, " n"]:
        """Mean log probability per token of each query, in nats; at most 0."""
        _check_pairs(queries, passages)
        prompts = [
            (Message("user", QUERY_LIKELIHOOD_PROMPT.replace("{passage}", passage)),)
            for passage in passages
        ]
        logprobs = self.model.logprob(prompts, queries)
        return np.array([np.mean(part) for part in logprobs], np.float32)


def _check_pairs(queries: Sequence[str], passages: Sequence[str]) -> None:
    if len(queries) != len(passages):
        raise InputError(
            f"{len(queries)} queries but {len(passages)} passages; give one passage for each query."
        )
    if empty := [i for i, query in enumerate(queries) if not query.strip()]:
        raise InputError(f"Query {empty[0]} is empty; there is nothing to score passages by.")
