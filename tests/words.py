"""A tokenizer of words, for models that a test scripts."""

from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

WORDS_AND_BREAKS = r"\n| ?[^\s]+"
"""Words with the blank before them, and line breaks."""
_JOINED = "{% for m in messages %}{{ m.content }}{{ '' if loop.last else '\\n' }}{% endfor %}"


def word_tokenizer(pattern=r"\S+", *, chat=True):
    """A tokenizer whose tokens are the matches of a pattern, by default words without blanks.

    All of them are the same token. ``chat`` says whether the model takes chats.
    """
    backend = Tokenizer(models.WordLevel({"word": 0}, unk_token="word"))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, chat_template=_JOINED if chat else None
    )
