"""The type of a path's file system, and files that must not be on a shared one."""

import os
from pathlib import Path

import pytest

from jaxrag.core import store
from jaxrag.core.store import Store
from jaxrag.types import InputError

TABLE = """\
22 27 0:21 / /proc rw,nosuid shared:12 - proc proc rw
36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue
41 35 0:52 / /home/a\\040b rw,relatime - nfs4 server:/home rw,vers=4.2
42 35 0:53 / /bucket rw shared:1 master:2 - fuse.gcsfuse bucket rw
"""


def test_a_table_of_mounts_is_read(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(TABLE)
    assert store._mounted(table) == {
        (0, 21): "proc",
        (98, 0): "ext3",
        (0, 52): "nfs4",
        (0, 53): "fuse.gcsfuse",
    }
    assert store._mounted(tmp_path / "none") == {}


def test_proc_is_known_and_a_missing_path_is_on_its_parent_s_file_system(tmp_path: Path) -> None:
    assert store.file_system("/proc/self") == "proc"
    missing = tmp_path / "a" / "b" / "c"
    assert store.file_system(missing) == store.file_system(tmp_path)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "lustre", "fuse.gcsfuse"])
def test_a_store_on_a_network_file_system_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = tmp_path.stat().st_dev
    numbers = (os.major(device), os.minor(device))
    monkeypatch.setattr(store, "_mounted", lambda table: {numbers: kind})
    with pytest.raises(InputError, match=rf"network file system \({kind}\).*config\.store"):
        Store(tmp_path / "new" / "store.sqlite")
    assert not (tmp_path / "new").exists()
    Store(None).close()  # in memory
