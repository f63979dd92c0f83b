"""Serve Debian's packages of documentation on loopback, each as a site of its own."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tests.support.realdocs import documentation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

# The folder of each host in the packages; its name may have a version.
FOLDERS = {
    "python.test": "python3.*/html",
    "sqlite.test": "sqlite3",
    "postgresql.test": "postgresql-doc-*/html",
}
# The host whose page links to the others.
START = "start.test"


class _Handler(SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, *given: Any, folders: Mapping[str, Path]):
        self._folders = folders
        super().__init__(*given)

    def send_head(self) -> Any:
        host = self.headers.get("Host", "").partition(":")[0]
        if host == START and self.path == "/":
            self._send_start()
            return None
        if host not in self._folders or self.path.endswith("/.."):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        self.directory = str(self._folders[host])
        return super().send_head()

    def _send_start(self) -> None:
        port = self.server.server_address[1]
        links = "".join(f'<li><a href="http://{host}:{port}/">{host}</a>' for host in FOLDERS)
        page = f"<!DOCTYPE html><title>Documentation</title><ul>{links}</ul>".encode()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def list_directory(self, path: Any) -> None:
        self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def sites() -> Iterator[str]:
    """Serve the sites; yield the URL of the page that links to them."""
    folders = {host: next(documentation().glob(folder)) for host, folder in FOLDERS.items()}
    handler = partial(_Handler, folders=folders)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://{START}:{server.server_port}/"
        finally:
            server.shutdown()
