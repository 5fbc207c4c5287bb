"""A question of each kind."""

from jaxrag.types import Question

OPEN = Question("o", "Who is it?", ("Ada",))
CLAIM = Question("f", "Ice is warm.", ("false",), task="fact_checking")
CHOICE = Question("m", "What is red?", ("a rose",), ("the sea", "a rose", "the sky"))
YES_NO = Question("q", "is it so", ("yes",), task="yes_no")
LABELS = Question(
    "l",
    "Ice is warm.",
    ("refutes",),
    ("SUPPORTS", "REFUTES", "NOT ENOUGH INFO"),
    task="labels",
)
