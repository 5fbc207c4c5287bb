"""The tables and figures of the five papers, as `jaxrag.reproduction` makes them.

A file a paper: which configs make the rows of its tables, which figures are drawn from which runs,
and what is left out, with the reason.
"""

from jaxrag.configs.papers import ars, dtr, errr, pairs, r3
from jaxrag.reproduction.tables import Declarations

ALL = Declarations.of(pairs.DECLARED, dtr.DECLARED, r3.DECLARED, errr.DECLARED, ars.DECLARED)
