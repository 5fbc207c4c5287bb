"""A tokenizer of words, for models that a test scripts."""

import re

WORDS_AND_BREAKS = r"\n| ?[^\s]+"
"""Words with the blank before them, and line breaks."""


class WordTokenizer:
    """Tokens are the matches of a pattern, by default words without blanks.

    Args:
      pattern: a regular expression.
      chat_template: "" where the model takes no chats.
    """

    def __init__(self, pattern=r"\S+", *, chat_template="made up"):
        self._pattern, self.chat_template = re.compile(pattern), chat_template or None

    def encode(self, text, **_):
        return self._pattern.findall(text)

    def apply_chat_template(self, messages, **_):
        return "\n".join(message["content"] for message in messages)
