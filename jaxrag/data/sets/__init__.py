"""The published sets of questions, one file each."""

from collections.abc import Mapping

from jaxrag.data.builder import BenchmarkBuilder
from jaxrag.data.sets.boolq import BoolQ

SETS: Mapping[str, type[BenchmarkBuilder]] = {one.NAME: one for one in (BoolQ,)}
