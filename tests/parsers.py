"""Every function that reads a model's or a web page's text, as a function of that text alone."""

from collections.abc import Callable

from jaxrag.methods.ars.relevance import word_judgement
from jaxrag.methods.ars.rewrites import parse_rewrites
from jaxrag.methods.baselines.cor import read_order
from jaxrag.methods.errr import parsed_queries
from jaxrag.methods.inspecting import words
from jaxrag.methods.iterative import actions
from jaxrag.methods.iterative.adaptive_rag import first_label
from jaxrag.methods.self_rag import reflection
from jaxrag.retrieval.web import engines, pages
from jaxrag.steps import kinds, loops
from jaxrag.steps.prompts import truncation
from jaxrag.text import answers, model_output, sentences
from jaxrag.types import Generation, Question

CHOICES = ("2 N to the left", "2 N", "Vitamin A", "none of the above", "+1/2")
CHOICE = Question("q", "Which one?", (CHOICES[0],), CHOICES)
ONE_WORD = Question("q", "Which one?", ("a",), ("a", "true", "Q"))

PARSERS: dict[str, Callable[[str], object]] = {
    "normalize": answers.normalize,
    "exact_match": lambda text: answers.exact_match(text, ("Rome", "the US")),
    "token_f1": lambda text: answers.token_f1(text, "the city of Rome"),
    "contains": lambda text: answers.contains(text, ("Rome", "a a a b")),
    "parse_queries": lambda text: parsed_queries.parse_queries(text, "who?"),
    "parse_queries, truncated": lambda text: parsed_queries.parse_queries(
        text, "who?", truncated=True
    ),
    "sentences": sentences.sentences,
    "word_key": sentences.word_key,
    "bare": sentences.bare,
    "first_word": sentences.first_word,
    "stated_answer": sentences.stated_answer,
    "last_sentence": sentences.last_sentence,
    **{
        f"parse_answer, {how}": lambda text, how=how: model_output.parse_answer(text, how)
        for how in ("tags", "first_line", "text")
    },
    "named_choices": lambda text: kinds.named_choices(text, CHOICE),
    "named_choices, of one word": lambda text: kinds.named_choices(text, ONE_WORD),
    "first_named": lambda text: kinds.first_named(text, ("NOT_ENOUGH_INFO", "mostly true", "true")),
    "words_of": words.words_of,
    "Word.content": lambda text: words.Word(text, 0, len(text)).content,
    "word_ends": truncation.word_ends,
    "parse_rewrites": lambda text: parse_rewrites(text, "who?", 10),
    "parse_rewrites, cut": lambda text: parse_rewrites(text, "who?", 10, cut=True),
    "word_judgement": lambda text: word_judgement(text, ("relevant", "irrelevant")),
    "first_label": lambda text: first_label(text, ("A", "B", "C")),
    "read_order": lambda text: read_order(text, 20),
    "read_action": actions.read_action,
    "lookup": lambda text: actions.lookup(actions.Page((text, "Rome")), text),
    "first_line": actions.first_line,
    "with_full_stop": loops.with_full_stop,
    "whole": lambda text: reflection.whole(text, Generation(text, (), (), "stop", 0)),
    "plain": pages.plain,
    "plain, tags": lambda text: pages.plain(text, tags=True),
    "shortened": engines.shortened,
}
