"""Arrays in files: a damaged header is a ValueError or gives another array."""

from pathlib import Path

import numpy as np
import pytest

from jaxrag.core.arrays import load_array


@pytest.mark.parametrize("mapped", [False, True])
def test_a_damaged_header_is_read_or_refused(mapped: bool, tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    np.save(file, np.arange(6, dtype=np.uint64))
    whole = file.read_bytes()
    np.testing.assert_array_equal(load_array(file, mapped=mapped), np.arange(6))
    refused = 0
    for at in range(75):  # the header, up to its padding
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        try:
            load_array(file, mapped=mapped)
        except ValueError:
            refused += 1
    assert refused > 50


def test_missing_empty_and_pickled_files_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    with pytest.raises(ValueError, match="No such file"):
        load_array(file)
    file.write_bytes(b"")
    with pytest.raises(ValueError, match="No data left"):
        load_array(file)
    np.save(file, np.array([{"x": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        load_array(file)
