"""Kinds of file systems, and a check that a file is on a disk of this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

from jaxrag.types import InputError

NETWORK = frozenset(
    {
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "afs"),
        *("pvfs2", "orangefs", "ocfs2", "gfs2", "wekafs", "panfs"),
        *(
            "fuse.gcsfuse",
            "gcsfuse",
            "fuse.sshfs",
            "fuse.s3fs",
            "fuse.rclone",
            "fuse.mountpoint-s3",
        ),
        *("fuse.glusterfs", "fuse.ceph-fuse", "fuse.juicefs", "fuse.blobfuse2", "fuse.goofys"),
    }
)
"""Types, as in /proc/self/mountinfo, of file systems that several machines may write to."""


def file_system(path: str | Path) -> str | None:
    """The type of the file system of ``path``, or of its nearest parent that exists.

    As Linux names it: "ext4", "nfs4", "fuse.gcsfuse". None where the system does not tell.
    """
    place = Path(path).absolute()
    while not place.exists():
        place = place.parent
    device = place.stat().st_dev
    return _mounted(Path("/proc/self/mountinfo")).get((os.major(device), os.minor(device)))


def _mounted(table: Path) -> dict[tuple[int, int], str]:
    """Types of the mounted file systems by their device's numbers."""
    if not table.is_file():
        return {}
    # "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw": the type follows the dash
    lines = re.finditer(r"^\d+ \d+ (\d+):(\d+) .*? - (\S+) ", table.read_text("utf-8"), re.M)
    return {(int(line[1]), int(line[2])): line[3] for line in lines}


def check_not_shared(what: str, path: str | Path, *, instead: str) -> None:
    """Checks that a file is not on a network file system.

    Args:
      what: names the file in the error.
      path: of the file, which need not exist.
      instead: what to do, for the error.

    Raises:
      InputError: it is.
    """
    if (kind := file_system(path)) in NETWORK:
        raise InputError(
            f"{what} {path} is on a network file system ({kind}). SQLite's write-ahead log needs "
            f"memory that all its processes share, so machines would damage the file: {instead}."
        )
