import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from jaxrag.text.characters import tokens


@given(st.text(st.characters(max_codepoint=0x2FFFF), max_size=12))
def test_tokens_are_runs_of_letters_marks_and_digits(text: str) -> None:
    """Beside a splitter of characters one by one."""
    found: list[str] = []
    before = ""
    for character in unicodedata.normalize("NFD", text):
        kind = unicodedata.category(character)[0]
        if kind in "LMN" and before in ("L", "M", "N"):
            found[-1] += character
        elif kind not in "ZC":
            found.append(character)
        before = kind
    assert tokens(text) == found
