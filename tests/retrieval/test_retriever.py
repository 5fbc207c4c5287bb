import numpy as np
import pytest

from jaxrag.retrieval.retriever import check_queries
from jaxrag.types import InputError


@pytest.mark.parametrize(
    ("queries", "k", "message"),
    [
        (np.zeros((2, 3)), 1, r"shape \[q, 2\].*\(2, 3\)"),
        (np.zeros(2), 1, r"shape \[q, 2\]"),
        (np.zeros((1, 2)), 0, "k is 0; it must be at least 1"),
        (np.array([[0, 0], [0, np.nan]]), 1, "query 1 has a number that is not finite"),
    ],
)
def test_invalid_queries_are_refused(queries, k, message) -> None:
    with pytest.raises(InputError, match=message):
        check_queries(queries, k, 2)
