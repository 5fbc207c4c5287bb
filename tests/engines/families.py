"""Small checkpoints whose tokenizers and templates behave as those of the families in use.

The templates are ours: each does what the public one named in ``source`` does with system messages,
turns, blanks, dates, begin tokens and thinking, in other words. The network says `ANSWER`, after
reasoning where the family reasons, and then the family's end of turn: each token determines the
next one.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from transformers import PreTrainedTokenizerFast

from jaxrag.models.checkpoint.files import write_checkpoint
from jaxrag.models.decoder.checkpoint import parameter_shapes
from jaxrag.models.decoder.config import read_decoder_config
from jaxrag.models.decoder.families import FAMILIES as networks
from jaxrag.models.decoder.network import Decoder
from jaxrag.types import Message
from tests.models.decoder.reference import stored

ANSWER = "Lima"
SYSTEM, QUESTION, REPLY = "Answer in a word.", "Capital of Norway?", "Oslo"
LAST = " Capital of Peru, not ◇? "  # ◇ stands for the name of a control token
SIZE = 384  # of vocabulary and hidden state: embeddings are unit vectors

_SPLIT = (
    "{% set first = messages[0].content if messages[0].role == 'system' else '' %}"
    "{% set turns = messages[1:] if first else messages %}"
)
_ALTERNATE = (
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('user and assistant take turns') }}{% endif %}"
)
_CHATML = (
    "{% if messages[0].role != 'system' and greeting %}<|im_start|>system\n{{ greeting }}<|im_end|>"
    "\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_GREETED = "{% set greeting = 'You help.' %}" + _CHATML
_LLAMA3 = (
    "{% for m in turns %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
)
_GEMMA = "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
_GEMMA_END = (
    "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
_IM = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_CHATML_TEXT = (
    "<|im_start|>system\n{s}<|im_end|>\n<|im_start|>user\n{q}<|im_end|>\n<|im_start|>assistant\n"
    "{a}<|im_end|>\n<|im_start|>user\n{u}<|im_end|>\n<|im_start|>assistant\n"
)
_HEAD3 = "<|start_header_id|>{}<|end_header_id|>\n\n"
_LLAMA3_TURNS = "".join(
    _HEAD3.format(role) + text
    for role, text in [
        ("user", "{q}<|eot_id|>"),
        ("assistant", "{a}<|eot_id|>"),
        ("user", "{t}<|eot_id|>"),
        ("assistant", ""),
    ]
)
_GEMMA_TEXT = (
    "<bos><start_of_turn>user\n{s}\n\n{q}<end_of_turn>\n<start_of_turn>model\n{a}<end_of_turn>\n"
    "<start_of_turn>user\n{t}<end_of_turn>\n<start_of_turn>model\n"
)
_THINKS = ("<think>", "\nHm.\n", "</think>", "\n\n")


@dataclasses.dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
      source: the public template that was read: repository, path, name within.
      kind: the tokenizer's: "bytes", or pieces with a blank before each stretch of text ("before
        all"), before the first ("before first") or before none ("no blank").
      template: ours.
      prompt: what `chat` becomes: {s} system message, {q} first question, {a} reply, {u} last
        question, {t} the same without blanks around it.
      special: control tokens; the first begins a text, unless ``begins`` is false, and ``end`` ends
        a turn.
      eos: the token that config.json and tokenizer name.
      model: ``model_type``.
      options: arguments of the template.
      says: reasoning before the answer, token by token.
      named: whether generation_config.json names ``end``.
      swallows: whether control tokens take the blanks after them.
    """

    source: str
    kind: str
    template: str
    prompt: str
    special: tuple[str, ...]
    end: str
    eos: str
    model: str
    begins: bool = True
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    says: tuple[str, ...] = ()
    named: bool = False
    swallows: bool = False

    @property
    def chat(self) -> tuple[Message, ...]:
        """Messages of which the last has the end of a turn in its text."""
        last = Message("user", LAST.replace("◇", self.end))
        return (
            Message("system", SYSTEM),
            Message("user", QUESTION),
            Message("assistant", REPLY),
            last,
        )

    def shown(self) -> str:
        """The text that `chat` becomes, with ◇ for the name in the data."""
        parts = {"s": SYSTEM, "q": QUESTION, "a": REPLY, "u": LAST, "t": LAST.strip()}
        return self.prompt.format(**parts)

    def names(self) -> list[str]:
        """The vocabulary, in the order of its ids."""
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        if self.kind != "bytes":
            letters = [f"<0x{i:02X}>" for i in range(256)] + ["▁", *map(chr, range(33, 127))]
        extra = [self.written(one) for one in ("\nHm.\n", "Hm.\n", "\n\n")]
        return [*self.special, *MARKS, *letters, *extra, *([f"▁{ANSWER[0]}"] * self.blank)]

    @property
    def blank(self) -> bool:
        """Whether answers begin with a blank, which their text leaves out."""
        return self.kind.startswith("before")

    def written(self, text: str) -> str:
        """A text as tokens of the vocabulary write it."""
        if self.kind != "bytes":
            return text
        letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        return "".join(part for part, _ in letters.pre_tokenize_str(text))

    def tokens(self, shown: str) -> list[int]:
        """Ids of a text, by what is known of the tokenizer; in it, ◇ is a name in data."""
        ids = {name: i for i, name in enumerate(self.names())}
        control = "|".join(map(re.escape, [*self.special, *MARKS]))
        parts = re.split(f"({control})" + r"\s*" * self.swallows, shown)
        found: list[int] = []
        for i, part in enumerate(parts):
            if i % 2 or not part:
                found += [ids[part]] if part else []
                continue
            text = part.replace("◇", self.end)
            before = self.kind == "before all" or (self.kind == "before first" and not i)
            text = " " * before + text
            for one in self.written(text):
                name = "▁" if one == " " else "<0x0A>" if one == "\n" else one
                found.append(ids[name])
        return found

    def said(self) -> list[int]:
        """What the model says: ids of reasoning, answer and end."""
        ids = {name: i for i, name in enumerate(self.names())}
        answer = [f"▁{ANSWER[0]}" if self.blank else ANSWER[0], *ANSWER[1:]]
        return [
            ids[one if one in ids else self.written(one)] for one in (*self.says, *answer, self.end)
        ]


MARKS = ("<think>", "</think>")  # in no tokenizer here a special token

FAMILIES = {
    "Llama 2": Family(
        source="chujiezheng/chat_templates chat_templates/llama-2-chat.jinja",
        kind="before all",
        template=_SPLIT + "{% for m in turns %}" + _ALTERNATE + "{% set text = '<<SYS>>\n' + first "
        "+ '\n<</SYS>>\n\n' + m.content if first and loop.first else m.content %}"
        "{% if m.role == 'user' %}{{ bos_token }}[INST] {{ text.strip() }} [/INST]{% else %} "
        "{{ text.strip() }} {{ eos_token }}{% endif %}{% endfor %}",
        prompt="<s>[INST] <<SYS>>\n{s}\n<</SYS>>\n\n{q} [/INST] {a} </s><s>[INST] {t} [/INST]",
        special=("<s>", "</s>"),
        end="</s>",
        eos="</s>",
        model="llama",
    ),
    "Llama 3.2": Family(
        source="ggerganov/llama.cpp models/templates/meta-llama-Llama-3.2-3B-Instruct.jinja",
        kind="bytes",
        template=_SPLIT + "{% if date_string is not defined %}{% set date_string = "
        'strftime_now("%d %b %Y") %}{% endif %}{{ bos_token }}' + _HEAD3.format("system")
        + "Today: {{ date_string }}\n\n{{ first | trim }}<|eot_id|>" + _LLAMA3
        + "{% if add_generation_prompt %}" + _HEAD3.format("assistant") + "{% endif %}",
        prompt="<|begin_of_text|>" + _HEAD3.format("system")
        + "Today: 05 Mar 2025\n\n{s}<|eot_id|>" + _LLAMA3_TURNS,
        special=("<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "<|start_header_id|>",
                 "<|end_header_id|>"),
        end="<|eot_id|>",
        eos="<|end_of_text|>",
        model="llama",
        options={"date": "2025-03-05"},
        named=True,
    ),
    "Mistral 0.3": Family(
        source="ggml-org/llama.cpp tests/test-chat-template.cpp (Mistral-Large-2407, 'v3')",
        kind="before first",
        template=_SPLIT + "{{ bos_token }}{% for m in turns %}" + _ALTERNATE
        + "{% if m.role == 'user' %}[INST] {{ first + '\n\n' if first and loop.last }}"
        "{{ m.content }}[/INST]{% else %} {{ m.content | trim + eos_token }}{% endif %}"
        "{% endfor %}",
        prompt="<s>[INST] {q}[/INST] {a}</s>[INST] {s}\n\n{u}[/INST]",
        special=("<s>", "</s>", "[INST]", "[/INST]"),
        end="</s>",
        eos="</s>",
        model="mistral",
    ),
    "Qwen2.5": Family(
        source="chujiezheng/chat_templates chat_templates/qwen2.5-instruct.jinja",
        kind="bytes",
        template=_GREETED,
        prompt=_CHATML_TEXT,
        special=_IM,
        end="<|im_end|>",
        eos="<|endoftext|>",
        model="qwen2",
        begins=False,
        named=True,
    ),
    "Qwen3": Family(
        source="ye-NX/llama.cpp models/templates/Qwen-Qwen3-0.6B.jinja",
        kind="bytes",
        template=_CHATML + "{% if add_generation_prompt and enable_thinking is defined and not "
        "enable_thinking %}{{ '<think>\n\n</think>\n\n' }}{% endif %}",
        prompt=_CHATML_TEXT,
        special=_IM,
        end="<|im_end|>",
        eos="<|im_end|>",
        model="qwen3",
        begins=False,
        says=_THINKS,
    ),
    "Gemma 2": Family(
        source="ye-NX/llama.cpp models/templates/google-gemma-2-2b-it.jinja",
        kind="no blank",
        template="{{ bos_token }}{% if messages[0].role == 'system' %}"
        "{{ raise_exception('no system') }}{% endif %}{% for m in messages %}" + _ALTERNATE
        + _GEMMA + _GEMMA_END,
        prompt=_GEMMA_TEXT,
        special=("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        end="<end_of_turn>",
        eos="<eos>",
        model="gemma2",
    ),
    "Phi-3": Family(
        source="ggml-org/llama.cpp tests/test-chat-template.cpp (Phi-3-mini)",
        kind="before all",
        template="{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<|user|>\n"
        "{{ m.content }}<|end|>\n<|assistant|>\n{% elif m.role == 'assistant' %}{{ m.content }}"
        "<|end|>\n{% endif %}{% endfor %}",
        prompt="<s><|user|>\n{s}\n\n{q}<|end|>\n<|assistant|>\n{a}<|end|>\n<|user|>\n{u}<|end|>\n"
        "<|assistant|>\n",
        special=("<s>", "<|endoftext|>", "<|user|>", "<|assistant|>", "<|end|>"),
        end="<|end|>",
        eos="<|endoftext|>",
        model="phi3",
        swallows=True,
    ),
    "R1 distillation": Family(
        source="ggml-org/llama.cpp models/templates/deepseek-ai-DeepSeek-R1-Distill-Qwen-32B.jinja",
        kind="bytes",
        template=_SPLIT + "{{ bos_token }}{{ first }}{% for m in turns %}{% if m.role == 'user' %}"
        "<｜User｜>{{ m.content }}{% else %}<｜Assistant｜>{{ m.content.split('</think>')[-1] }}"
        "<｜end▁of▁sentence｜>{% endif %}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<｜Assistant｜><think>\n' }}{% endif %}",
        prompt="<｜begin▁of▁sentence｜>{s}<｜User｜>{q}<｜Assistant｜>{a}<｜end▁of▁sentence｜><｜User｜>"
        "{u}<｜Assistant｜><think>\n",
        special=("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>",
                 "<｜Assistant｜>"),
        end="<｜end▁of▁sentence｜>",
        eos="<｜end▁of▁sentence｜>",
        model="qwen2",
        says=("Hm.\n", "</think>", "\n\n"),
    ),
    "OLMo 2": Family(
        source="allenai/open-instruct open_instruct/dataset_transformation.py (tulu), after a "
        "begin token that is the end token, too",
        kind="bytes",
        template="{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}"
        "{{ eos_token if m.role == 'assistant' }}"
        "{{ '\n' if m.role != 'assistant' or not loop.last }}"
        "{% if loop.last and add_generation_prompt %}<|assistant|>\n{% endif %}{% endfor %}",
        prompt="<|endoftext|><|system|>\n{s}\n<|user|>\n{q}\n<|assistant|>\n{a}<|endoftext|>\n"
        "<|user|>\n{u}\n<|assistant|>\n",
        special=("<|endoftext|>",),
        end="<|endoftext|>",
        eos="<|endoftext|>",
        model="olmo2",
        begins=False,
    ),
}  # fmt: skip
FAMILIES["Qwen3, no thinking"] = dataclasses.replace(
    FAMILIES["Qwen3"],
    prompt=_CHATML_TEXT + "<think>\n\n</think>\n\n",
    options={"enable_thinking": False},
    says=(),
)


def write_family(directory: Path, family: Family, *, model: str = "") -> Path:
    """Writes the family's small checkpoint, or one with the network of another ``model``."""
    family = dataclasses.replace(family, model=model or family.model)
    _tokenizer(family).save_pretrained(directory)
    names = family.names()
    ids = {name: i for i, name in enumerate(names)}
    config = {
        "architectures": [
            networks[family.model].architecture if family.model in networks else "Olmo2ForCausalLM"
        ],
        "model_type": family.model,
        "vocab_size": SIZE,
        "hidden_size": SIZE,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 12,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": "gemma" in family.model,
        "sliding_window": 512 if "gemma" in family.model else None,
        "query_pre_attn_scalar": 32,
        "pad_token_id": None,
        "bos_token_id": 0,
        "eos_token_id": ids[family.eos],
    }
    chain = [family.tokens(family.shown())[-1], *family.said()]
    assert len(set(chain)) == len(chain), "each token determines the next one"
    write_checkpoint(directory, config, _tensors(config, chain))
    if family.named:
        named = {"eos_token_id": [ids[family.eos], ids[family.end]]}
        (directory / "generation_config.json").write_text(json.dumps(named))
    return directory


def _tokenizer(family: Family) -> PreTrainedTokenizerFast:
    pieces = family.kind != "bytes"
    vocabulary = {name: i for i, name in enumerate(family.names())}
    backend: Any = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=pieces))
    if not pieces:
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
    else:
        blank = normalizers.Replace(" ", "▁")
        steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        if family.kind == "before first":
            backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
        elif family.kind == "before all":
            backend.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), blank])
        else:
            backend.normalizer = blank
        steps += [decoders.Strip(" ", 1, 0)] if family.blank else []
        backend.decoder = decoders.Sequence(steps)
    own = {"normalized": False, "rstrip": family.swallows}
    backend.add_special_tokens([AddedToken(one, special=True, **own) for one in family.special])
    backend.add_tokens([AddedToken(one, special=False, normalized=False) for one in MARKS])
    if family.begins:
        begin = family.special[0]
        backend.post_processor = TemplateProcessing(
            single=f"{begin} $A", special_tokens=[(begin, 0)]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        chat_template=family.template,
        bos_token=family.special[0] if family.begins or family.special[0] == family.eos else None,
        eos_token=family.eos,
        clean_up_tokenization_spaces=False,
    )


def _tensors(config: dict[str, Any], chain: list[int]) -> dict[str, np.ndarray]:
    """Weights with which the layer adds to a token of the chain four times the next one."""
    kind, layer = config["model_type"], "model.layers.0."
    like = "llama" if kind == "olmo2" else kind
    plain = read_decoder_config({**config, "model_type": like}, source="family")
    tensors = {
        name: np.full(shape, float("norm" in name and like != "gemma2"), np.float32)
        for name, shape in parameter_shapes(Decoder(plain)).items()
    }
    after = f"{layer}post_feedforward_layernorm.weight"
    if kind == "olmo2":  # its norms come after attention and MLP
        for name, width in (("q", 384), ("k", 128)):
            tensors[f"{layer}self_attn.{name}_norm.weight"] = np.ones(width, np.float32)
        tensors[after] = tensors.pop(f"{layer}input_layernorm.weight")
    elif like == "gemma2":  # the factor is 1 + weight
        tensors[after] += 3
    for name in ("model.embed_tokens.weight", "lm_head.weight"):
        if name in tensors:
            tensors[name] = np.eye(SIZE, dtype=np.float32)
    rows, now, following = np.arange(len(chain) - 1), chain[:-1], chain[1:]
    tensors[f"{layer}mlp.gate_proj.weight"][rows, now] = 1
    tensors[f"{layer}mlp.up_proj.weight"][rows, now] = 1
    tensors[f"{layer}mlp.down_proj.weight"][following, rows] = 4 if kind == "olmo2" else 4 / SIZE
    return stored(config, tensors)
