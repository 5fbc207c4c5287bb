"""A local model over the devices of several processes, such as the hosts of a TPU slice.

The first process executes the run and sends each call of its model to the other processes, which
make the same call. So all run the same programs in the same order, which JAX requires of programs
over the devices of several processes.

    with agreed():                       # in all processes
        model = settings.load(cache)
    if not is_first():
        model.follow()                   # until the first one calls end()
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Iterator, Sequence
from typing import Any, Unpack

import jax
import numpy as np

from jaxrag.engines.language_model import DecodingKeywords
from jaxrag.engines.local.inspection import InspectableModel, Inspection
from jaxrag.models.decoder.inspection import StatePart
from jaxrag.models.processes import exchange, is_first
from jaxrag.types import Generation, InputError, Message, Prompt

_AGREED = contextvars.ContextVar("agreed", default=False)


@contextlib.contextmanager
def agreed() -> Iterator[None]:
    """All processes load the same models in this context, so that one may span their devices."""
    token = _AGREED.set(True)
    try:
        yield
    finally:
        _AGREED.reset(token)


def check_agreed() -> None:
    """Refuses a model over several processes where not all of them load it.

    Raises:
      InputError: this is such a place.
    """
    if jax.process_count() > 1 and not _AGREED.get():
        raise InputError(
            "spanning is set for a model that is not config.model of a run: only that one can be "
            "over the devices of several processes."
        )


class SpanningModel:
    """A model that all processes hold a part of; the first one calls it, the others `follow`.

    Attributes:
      identity, tokenizer, max_length, gives_logprobs: those of the model.
    """

    gives_logprobs = True

    def __init__(self, model: InspectableModel, *, tokenizer: Any, max_length: int) -> None:
        self._model, self.identity = model, model.identity
        self.tokenizer, self.max_length = tokenizer, max_length
        self._one_call = threading.Lock()

    def generate(
        self, prompts: Sequence[Prompt], **options: Unpack[DecodingKeywords]
    ) -> list[Generation]:
        """See `LanguageModel.generate`."""
        return self._lead("generate", prompts, **options)

    def logprob(self, prompts: Sequence[Prompt], continuations: Sequence[str]) -> list[np.ndarray]:
        """See `LanguageModel.logprob`."""
        return self._lead("logprob", prompts, continuations=continuations)

    def inspect(
        self,
        prompts: Sequence[Prompt],
        continuations: Sequence[str],
        *,
        layer: int | None = None,
        part: StatePart = "residual",
        ended: bool = False,
    ) -> list[Inspection]:
        """See `InspectableModel.inspect`."""
        how = {"layer": layer, "part": part, "ended": ended}
        return self._lead("inspect", prompts, continuations=continuations, **how)

    def _lead(self, name: str, prompts: Sequence[Prompt], **options: Any) -> Any:
        if not is_first():
            raise InputError("Only the first process calls a model that spans several of them.")
        plain = {key: list(v) if isinstance(v, tuple) else v for key, v in options.items()}
        with self._one_call:
            exchange({"call": name, "prompts": list(prompts), "options": plain})
            return getattr(self._model, name)(prompts, **options)

    def follow(self) -> None:
        """Makes the calls of the first process, until it calls `end`."""
        while call := exchange(None)[0]:
            prompts = [_prompt(one) for one in call["prompts"]]
            # what the first process refuses is refused here, too, before anything is computed
            with contextlib.suppress(InputError):
                getattr(self._model, call["call"])(prompts, **call["options"])

    def end(self) -> None:
        """Ends `follow` in the other processes."""
        exchange(None)


def _prompt(plain: Any) -> Prompt:
    """A prompt from its JSON value."""
    return plain if isinstance(plain, str) else tuple(Message(*turn) for turn in plain)
