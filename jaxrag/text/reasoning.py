"""Reasoning that a model writes before its answer, such as ``<think>...</think>``."""

from __future__ import annotations

import re

_TAGS = r"(?:(?:(?!end_)[a-z]+[_:|])?(?:think(?:ing|_fast(?:er)?)?|thoughts?|reasoning)"
_TAGS += r"|reason|scratchpad|analysis)"
_CHANNEL = r"<\|channel\|>(?:{})(?:[^<]|<\|constrain\|>)*<\|message\|>"  # of gpt-oss
_OPENING = "|".join(
    [
        rf"<\|?{_TAGS}(?:\s+\w+=[^<>\n]*|\s*)\|?>",
        r"\[THINK\]|◁think▷",
        _CHANNEL.format("analysis|commentary"),
        r"<\|channel>thought",
        r"<\|begin_of_thought\|>",  # OpenThinker
        r"<\|START_THINKING\|>",  # Command A
        r"<\|inner_prefix\|>",  # Apertus
        "<unused94>thought",  # MedGemma
        r"(?<!.)here(?: is|'s) my thought process:",  # Granite
        r"\A\s*here are my reasoning steps:",  # Apriel
        r"(?-i:\Aanalysis(?=[A-Z]))",  # gpt-oss's, from a server that leaves control tokens out
    ]
)
_CLOSING = "|".join(
    [
        rf"<(?:/\|?|\|/){_TAGS}\s*\|?>",
        r"\[/THINK\]|◁/think▷|<unused95>",
        _CHANNEL.format("final"),
        r"<channel\|>",
        r"<\|(?:end_of_thought|END_THINKING|inner_suffix)\|>",
        r"(?<!.)here(?: is|'s) my response:|\[BEGIN FINAL RESPONSE\]",
        "(?<=.)assistantfinal",
    ]
)
# what Granite, ERNIE, Marco-o1, OpenThinker and Command A write before the answer
_WRAPPER = r"<\|?(?:response|output|solution|start_response|begin_of_solution)\|?>\s*"
_MARK = re.compile(rf"(?P<opening>{_OPENING})|(?:{_CLOSING})\s*(?:{_WRAPPER})?", re.I)

MARK_TOKENS = frozenset(
    {
        *("<think>", "</think>", "[THINK]", "[/THINK]", "<|channel|>", "<|message|>"),
        *("<|START_THINKING|>", "<|END_THINKING|>", "<unused94>", "<unused95>"),
        *("<|inner_prefix|>", "<|inner_suffix|>"),
    }
)
"""Marks, or parts of them, that are special tokens of some tokenizers."""


def opens_reasoning(prompt: str) -> bool:
    """Whether a prompt ends inside reasoning: its template has opened it and not closed it."""
    ending = prompt[-64:].rstrip().rpartition("\n")[2]
    return any(mark["opening"] and mark.end() == len(ending) for mark in _MARK.finditer(ending))


def answer_start(text: str, *, opened: bool = False) -> int:
    """Where the answer begins: after the last block of reasoning and the blanks after it.

    0 without reasoning, and the length of the text where reasoning is unfinished: then there is no
    answer. An end mark without a begin ends reasoning whose begin was in the prompt (``opened``).
    """
    start = len(text) if opened else 0
    for mark in _MARK.finditer(text):
        start = len(text) if mark["opening"] else mark.end()
    return start
