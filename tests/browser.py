"""A real browser without a window, all of whose requests end at a listener of this process."""

import contextlib
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import hostile

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
needed = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium")
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --disable-extensions"
)
OPEN_ALL = """<script>
setTimeout(() => {
  for (let round = 0; round < 3; round++)
    for (const one of document.querySelectorAll('details')) one.open = true;
}, 1000);
setTimeout(() => {
  for (const one of document.querySelectorAll('details')) one.open = true;
  document.body.dataset.opened = 'yes';
}, 2000);
</script>"""
"""Opens everything that opens on a click; questions draw their traces only then."""


class Visit(NamedTuple):
    """What happened on a page.

    Attributes:
      dom: the page when all scripts had run.
      title: its title.
      ran: whether a script of `tests.hostile` ran.
      asked: first bytes of the connections that name its host.
    """

    dom: str
    title: str
    ran: bool
    asked: list[bytes]


def without_policy(page: str) -> str:
    """A page that lets the browser run and load everything."""
    return re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)


def visit(page: str, directory: Path) -> Visit:
    """Opens a page in a fresh profile below ``directory``."""
    with _listener() as (port, heard):
        dump = ("--virtual-time-budget=6000", "--dump-dom")
        command = _command(page, directory, port, *dump)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.DOTALL)
    asked = [one for one in heard if hostile.HOST.encode() in one]
    ran = 'data-ran="yes"' in done.stdout
    return Visit(done.stdout, unescape(title[1]) if title else "", ran, asked)


def first_request(page: str, directory: Path, *, timeout: float = 120.0) -> str:
    """Opens a page in real time until it requests something of the host; gives the request.

    Raises:
      TimeoutError: it requested nothing in ``timeout`` seconds.
    """
    with _listener() as (port, heard):
        command = _command(page, directory, port, "--remote-debugging-port=0")
        quiet = subprocess.DEVNULL
        with subprocess.Popen(command, stdout=quiet, stderr=quiet) as process:
            try:
                until = time.monotonic() + timeout
                while time.monotonic() < until:
                    for one in list(heard):
                        if hostile.HOST.encode() in one:
                            return one.decode("utf-8", "replace")
                    time.sleep(0.02)
            finally:
                process.terminate()
    raise TimeoutError(f"the page requested nothing in {timeout:g} s")


def _command(page: str, directory: Path, port: int, *options: str) -> list[str]:
    """Chromium with a fresh profile for a page, and every host at a port of this machine."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "page.html"
    file.write_text(page, "utf-8")
    profile = f"--user-data-dir={directory / 'profile'}"
    route = f"--host-resolver-rules=MAP * 127.0.0.1:{port}"
    return [str(CHROMIUM), *OPTIONS.split(), profile, route, *options, file.as_uri()]


@contextlib.contextmanager
def _listener() -> Iterator[tuple[int, list[bytes]]]:
    """A port, and the first bytes of each connection to it; HTTPS names its host in them, too."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            with contextlib.suppress(OSError):  # closed at the end
                while True:
                    connection, _ = server.accept()
                    connection.settimeout(2.0)
                    with connection, contextlib.suppress(OSError):
                        heard.append(connection.recv(4096))

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5.0)
