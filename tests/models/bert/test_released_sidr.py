"""Checkpoints under the names of SiDR's authors."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrag.models.bert.released_sidr import read_released
from jaxrag.models.bert.sidr import first_token, is_trained, load_towers, write_sidr
from jaxrag.models.checkpoint.files import write_checkpoint
from jaxrag.types import InputError
from tests.models.bert import small_bert
from tests.models.bert.small_bert import BERT
from tests.models.bert.test_sidr import embed, reference, texts
from tests.models.checkpoint import small_torch

FLOAT32 = jnp.dtype("float32")
FIRST = 7  # as in test_sidr.reference
SETTINGS = {"shift_vocab_num": FIRST, "topk": 768, "bert": BERT}


def tower(seed: int) -> dict[str, np.ndarray]:
    """A tower's tensors under our names."""
    random = np.random.default_rng(seed)
    plain = small_bert.random_tensors(BERT, classifier=False, seed=seed)
    named = {f"bert.{name}": tensor for name, tensor in plain.items()}
    for kind in ("weight", "bias"):
        named[f"norm.{kind}"] = random.normal(1, 0.3, BERT["hidden_size"]).astype(np.float32)
    return named


TOWERS = {"encoder_q": tower(1), "encoder_p": tower(2)}


def released(towers: dict[str, dict[str, np.ndarray]], **more: np.ndarray) -> dict[str, Any]:
    """Their tensors as a class of the authors might name them."""
    names = {"bert.": "bert_model.", "norm.": "ln."}
    found = dict(more)
    for prefix, tensors in towers.items():
        for name, tensor in tensors.items():
            for old, new in names.items():
                name = name.replace(old, new) if name.startswith(old) else name
            found[f"{prefix}.{name}"] = tensor
        words = tensors["bert.embeddings.word_embeddings.weight"]
        found[f"{prefix}.proj.weight"] = words[FIRST:]
        found[f"{prefix}.bert_model.embeddings.position_ids"] = np.arange(64)[None]
    return found


def write(path: Path, tensors: dict[str, np.ndarray], settings: dict[str, Any] = SETTINGS) -> Path:
    write_checkpoint(path, settings, tensors)
    small_bert.tokenizer(BERT).save_pretrained(path)
    return path


def assert_towers(path: Path, wanted: dict[str, dict[str, np.ndarray]]) -> None:
    module, params = load_towers(path, dtype=FLOAT32)
    assert params.keys() == wanted.keys() and module.first == FIRST and module.masked
    ids, segments, where = texts((9, 4))
    for side, tensors in wanted.items():
        found = embed(module, params[side], ids, segments, where)
        want = reference(tensors, ids, segments, where)
        np.testing.assert_allclose(found, want, atol=2e-5)


def test_both_towers_are_read(tmp_path):
    path = write(tmp_path, released(TOWERS))
    assert is_trained(path) and first_token(path) == FIRST
    assert_towers(path, {"query": TOWERS["encoder_q"], "passage": TOWERS["encoder_p"]})


def test_one_tower_serves_both(tmp_path):
    one = {"encoder_q": TOWERS["encoder_q"]}
    assert_towers(write(tmp_path, released(one)), {"both": TOWERS["encoder_q"]})


def test_an_archive_of_torch_is_read(tmp_path):
    write(tmp_path, {"unused": np.zeros(1, np.float32)})
    (tmp_path / "model.safetensors").unlink()
    small_torch.write_arrays(tmp_path / "pytorch_model.bin", released(TOWERS))
    assert_towers(tmp_path, {"query": TOWERS["encoder_q"], "passage": TOWERS["encoder_p"]})


def test_what_began_with_it_is_written_as_ours(tmp_path):
    path = write(tmp_path / "theirs", released(TOWERS))
    module, params = load_towers(path, dtype=FLOAT32)
    ours = write_sidr(tmp_path / "ours", module, params, begun_with=path)
    again, same = load_towers(ours, dtype=FLOAT32)
    assert again == module
    jax.tree.map(np.testing.assert_array_equal, params, same)


def test_sizes_are_found_by_shape_without_a_config(tmp_path):
    wide = BERT | {"hidden_size": 128, "intermediate_size": 48, "num_attention_heads": 2}
    plain = small_bert.random_tensors(wide, classifier=False)
    tensors = {f"encoder_q.{name}": tensor for name, tensor in plain.items()}
    tensors |= {"encoder_q.norm.weight": np.ones(128), "encoder_q.norm.bias": np.zeros(128)}
    found = read_released(write(tmp_path, tensors, {"max_len": 256}), first=FIRST)
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
             "num_attention_heads", "max_position_embeddings", "type_vocab_size")  # fmt: skip
    assert {name: found.config[name] for name in names} == {name: wide[name] for name in names}
    assert found.first == FIRST
    module, _ = load_towers(tmp_path, dtype=FLOAT32, first=FIRST)
    assert module.config.layer_norm_eps == 1e-12


def test_what_is_not_a_sidr_is_named(tmp_path):
    other = released(TOWERS)
    other["encoder_q.proj.weight"] = other["encoder_q.proj.weight"] + 1
    with pytest.raises(InputError, match=r"query: 'proj\.weight' \(33, 24\) is neither a layer"):
        load_towers(write(tmp_path / "a", other), dtype=FLOAT32)
    with pytest.raises(InputError, match="holds 'scale', which is of neither tower"):
        load_towers(write(tmp_path / "b", released(TOWERS, scale=np.ones(1))), dtype=FLOAT32)
    second = released(TOWERS) | {"encoder_p.other.weight": np.ones(24, np.float32)}
    with pytest.raises(InputError, match=r"passage: 'other\.weight' is a second layer norm"):
        load_towers(write(tmp_path / "c", second), dtype=FLOAT32)
    lacking = {name: t for name, t in released(TOWERS).items() if ".ln." not in name}
    with pytest.raises(InputError, match=r"missing: norm\.weight"):
        load_towers(write(tmp_path / "d", lacking), dtype=FLOAT32)
