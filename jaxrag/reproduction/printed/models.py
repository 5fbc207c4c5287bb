"""Published checkpoints of the models and retrievers that the papers name."""

from __future__ import annotations

from collections.abc import Mapping

GENERATORS: Mapping[str, str] = {
    "Qwen2.5-7B-Instruct": "Qwen/Qwen2.5-7B-Instruct",
    "Qwen2.5-32B-Instruct": "Qwen/Qwen2.5-32B-Instruct",
    "Qwen2.5-72B-Instruct": "Qwen/Qwen2.5-72B-Instruct",
    "Llama2-7B": "meta-llama/Llama-2-7b-hf",
    "Llama3-8B": "meta-llama/Meta-Llama-3-8B",
    "Llama3-8B-Instruct": "meta-llama/Meta-Llama-3-8B-Instruct",
    "Llama-3.1-8B-Instruct": "meta-llama/Llama-3.1-8B-Instruct",
    "Phi-3-mini-4k-instruct": "microsoft/Phi-3-mini-4k-instruct",
    "Mistral-7B-Instruct-v0.3": "mistralai/Mistral-7B-Instruct-v0.3",
    "Gemma2:9B": "google/gemma-2-9b-it",
    "Qwen2.5:32B": "Qwen/Qwen2.5-32B-Instruct",
    "Llama3.3:70B": "meta-llama/Llama-3.3-70B-Instruct",
}
"""On the Hugging Face hub, by the printed name."""

_SELF_RAG = {"Llama2-7B": "selfrag_llama2_7b"}
"""Names of Self-RAG's released checkpoints, by the printed name of what they were tuned from."""

RETRIEVERS: Mapping[str, tuple[str, ...]] = {
    "bge-large-en-v1.5": ("bge-large-en-v1.5",),
    "e5": ("e5-base-v2",),
    "E5": ("e5-base",),
    "E5-unsup": ("e5-base-unsupervised",),
    "Contriever": ("contriever",),
    "Contriever_MS": ("contriever-msmarco",),
    "DPR_NQ": ("dpr-ctx_encoder-single-nq-base",),
    "nomic-embed-text + Chroma": ("nomic-embed-text-v1.5",),
    "brave_web_search": ("Brave",),
    "wikidpr_dense_l2": ("WikiDPR", "dpr-ctx_encoder-single-nq-base"),
}
"""Names in our tables of the encoders and indexes that configs use, by the printed name."""

TRAINED = "retriever"
"""Name of the checkpoint that a training of SiDR, DPR or R3 writes, in our tables, too."""

_TRAINED_HERE = {"SiDR": "sidr", "R3": "sidr", "DPR_MS": "dpr", "DPR_TQA": "dpr"}
"""The kind in our tables of printed retrievers without a published checkpoint, by the beginning of
their printed names."""


def same_model(printed: str, ours: str) -> bool:
    """Whether a generator or retriever of ours, "bge-large-en-v1.5, ScaNN", is the printed one.

    What a SiDR or DPR was trained on is not in its name: any trained one counts as the printed one.
    """
    name, _, kind = ours.lower().partition(", ")
    if trained := next((k for start, k in _TRAINED_HERE.items() if printed.startswith(start)), ""):
        return kind.startswith(trained) and name == TRAINED
    names = RETRIEVERS.get(printed, ())
    if printed in GENERATORS:
        names = (GENERATORS[printed].rpartition("/")[2], _SELF_RAG.get(printed, printed))
    if not names:  # a closed model, whose version is a suffix
        return name.startswith(printed.lower())
    return name in map(str.lower, names)
