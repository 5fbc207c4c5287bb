"""Local HTTP servers for tests: how they answer, break off, count and stop."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Answers as JSON or bytes; its server has ``lock``, ``busy`` and the ``most`` at once."""

    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *args: Any) -> None:
        pass

    def handle(self) -> None:
        """Answers; a client that breaks off, as a killed one does, is no error of the server's."""
        with suppress(ConnectionError):
            super().handle()

    @contextmanager
    def counted(self, asked: list[Any], what: Any) -> Iterator[int]:
        """Writes down what is asked, and counts as busy for as long; gives its number."""
        with self.server.lock:
            number = len(asked)
            asked.append(what)
            self.server.busy += 1
            self.server.most = max(self.server.most, self.server.busy)
        try:
            yield number
        finally:
            with self.server.lock:
                self.server.busy -= 1

    def drop(self) -> None:
        """Breaks the connection off."""
        self.close_connection = True
        with suppress(OSError):  # the other side may have closed it
            self.connection.shutdown(socket.SHUT_RDWR)

    def send(self, status: int, value: Any, **headers: str) -> bool:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), text)
        self.end_headers()
        self.wfile.write(data)
        return True


@contextmanager
def serving(handler: type[Handler], fault: Any, port: int = 0, **state: Any) -> Iterator[Any]:
    """Runs a server with ``fault`` and the given attributes; ``url`` is its address."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    server.lock, server.fault = threading.Lock(), fault
    server.busy = server.most = 0
    server.url = f"http://127.0.0.1:{server.server_port}"
    for name, value in state.items():
        setattr(server, name, value)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        # for connections that are kept alive
        server.fault = lambda handler, *_: handler.drop() or True
        server.shutdown()
        server.server_close()
        thread.join()
