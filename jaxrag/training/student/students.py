"""Text generators to fine-tune: a T5 or one of our decoders, behind one interface.

A student reads a source and learns to write a target. A T5 reads the source with its encoder; a
decoder continues it. Parameters are float32 in any dtype of computation, so that small updates are
not lost to rounding.
"""

from jaxrag.training.student.checkpoint import load_student, new_t5, write_student
from jaxrag.training.student.engine import engine
from jaxrag.training.student.kinds import NewT5, Student, TokenPairs
from jaxrag.training.student.network import target_logprobs
from jaxrag.training.student.text import encode, source_tokens, truncate

__all__ = [
    "NewT5",
    "Student",
    "TokenPairs",
    "encode",
    "engine",
    "load_student",
    "new_t5",
    "source_tokens",
    "target_logprobs",
    "truncate",
    "write_student",
]
