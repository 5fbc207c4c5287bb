"""Exports a checkpoint, such as a GGUF file, to a Hugging Face directory."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from jaxrag.models.checkpoint.files import fingerprint, read_config, read_tensors, write_checkpoint
from jaxrag.models.decoder.families import FAMILIES
from jaxrag.models.tokenizer import load_tokenizer
from jaxrag.types import InputError


def as_directory(path: Path, cache: Path) -> Path:
    """A Hugging Face directory of a decoder: ``path`` itself, or an export cached in ``cache``.

    A GGUF file is exported with float32 weights to a directory named by its fingerprint. InputError
    if the architecture is not supported, or the disk is full.
    """
    if path.is_dir():
        return path
    target = Path(cache).absolute() / f"{path.stem}-{fingerprint(path)[:12]}"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # renamed when complete
    partial = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    try:
        export(path, partial)
        partial.rename(target)
    except OSError as error:
        if not target.exists():  # unless another process was faster
            raise InputError(f"{target} cannot be written: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def export(path: Path, directory: Path) -> None:
    """Writes config, weights and tokenizer of the decoder at ``path`` to ``directory``."""
    config = read_config(path)
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        raise InputError(
            f"{path} has model_type {config.get('model_type')!r}; supported are "
            f"{', '.join(FAMILIES)}."
        )
    tokenizer = load_tokenizer(path)
    write_checkpoint(
        directory, {**config, "architectures": [family.architecture]}, dict(read_tensors(path))
    )
    tokenizer.save_pretrained(directory)
    end = config.get("eos_token_id", tokenizer.eos_token_id)
    generation = {"eos_token_id": end, "bos_token_id": config.get("bos_token_id")}
    (directory / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
