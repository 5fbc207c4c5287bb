"""Models that are fine-tuned to write text: a T5 or one of our decoders, behind one interface.

A student reads a source and learns to write a target after it. A T5 reads the source with its
encoder; a decoder reads it as the beginning of its own text. Parameters are float32 whatever is
computed in, so that small steps are not lost.
"""

from jaxrag.training.students_checkpoint import load_student, new_t5, write_student
from jaxrag.training.students_engine import engine
from jaxrag.training.students_kinds import NewT5, Pairs, Student
from jaxrag.training.students_network import target_logprobs
from jaxrag.training.students_text import encode, source_tokens, within

__all__ = [
    "NewT5",
    "Pairs",
    "Student",
    "encode",
    "engine",
    "load_student",
    "new_t5",
    "source_tokens",
    "target_logprobs",
    "within",
    "write_student",
]
