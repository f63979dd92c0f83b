"""A real S3 server (moto's), a proxy before it that fails on request, and a process that uploads.

``python -m tests.archive.upload.s3 serve`` is the server. ``... upload FOLDER URL ENDPOINT
[WATCH]`` is the process, which removes the files that it has uploaded. ``WATCH`` is the address of
the `Watch` for its system calls."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from contextlib import contextmanager
from enum import Enum, auto
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from krowlspider.archive.uploader import upload_folder
from krowlspider.archive.uploads import NOTES, Destination
from krowlspider.extensions.upload import Upload
from tests.archive.syscalls import be_watched
from tests.support.crawling import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

KEY_ID = "TESTKEYID"
SECRET = "testsecret/testsecret"
# Where the client looks for credentials; no region of the machine's own, and no proxy, may come
# between.
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": KEY_ID,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_REGION": "us-east-1",
    "NO_PROXY": "127.0.0.1",
    "no_proxy": "127.0.0.1",
}


class ImpatientUpload(Upload):
    """Waits only a short time for a store that accepts nothing."""

    stalled_after = 1.5


class Request(NamedTuple):
    """A request to the store: ``target`` is path and query."""

    method: str
    target: str

    @property
    def starts_parts(self) -> bool:
        return self.method == "POST" and self.target.endswith("?uploads=")

    @property
    def ends_parts(self) -> bool:
        return self.method == "POST" and "?uploadId=" in self.target

    def is_part(self, number: int) -> bool:
        return self.method == "PUT" and f"partNumber={number}&" in self.target

    @property
    def sends(self) -> bool:
        return self.method in {"PUT", "POST"}


class Fate(Enum):
    """The effect on a request."""

    PASS = auto()
    # The connection is closed, and the store knows nothing.
    CUT = auto()
    ERROR = auto()
    DENIED = auto()
    # The store gets another last byte.
    SPOILED = auto()
    # Nothing comes back: the store knows nothing, or has done it.
    HUNG = auto()
    DONE_AND_HUNG = auto()
    # The answer has an ETag that is no MD5, as of an object encrypted by KMS.
    OPAQUE = auto()
    # Both.
    SPOILED_AND_OPAQUE = auto()


_STATUS = {Fate.ERROR: 503, Fate.DENIED: 403}


class Proxy(ThreadingHTTPServer):
    """Passes requests on to a store, unless `fate` returns another effect."""

    daemon_threads = True

    def __init__(self, store: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.store = urlsplit(store)
        self.fate: Callable[[Request], Fate] = lambda _: Fate.PASS
        self.requests: list[Request] = []
        # Set when a request hangs; cleared by the test.
        self.hung = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def sent(self) -> list[Request]:
        """Return the requests that would change the store."""
        return [request for request in self.requests if request.sends]

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a client that was killed or cancelled."""

    def stop(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        request = Request(self.command, self.path)
        self.server.requests.append(request)
        fate = self.server.fate(request)
        if fate in {Fate.HUNG, Fate.CUT}:
            self._break_off(hang=fate is Fate.HUNG)
        elif fate in _STATUS:
            self.send_response(_STATUS[fate])
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            self._pass_on(fate, body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

    def _break_off(self, *, hang: bool) -> None:
        self.close_connection = True
        if hang:
            self.server.hung.set()
            # Until the client goes away.
            self.rfile.read(1)

    def _pass_on(self, fate: Fate, body: bytes) -> None:
        if fate in {Fate.SPOILED, Fate.SPOILED_AND_OPAQUE} and body:
            body = body[:-1] + bytes([body[-1] ^ 1])
        connection = HTTPConnection(self.server.store.netloc, timeout=60)
        connection.request(self.command, self.path, body, dict(self.headers))
        response = connection.getresponse()
        content = response.read()
        connection.close()
        if fate is Fate.DONE_AND_HUNG:
            self._break_off(hang=True)
            return
        opaque = fate in {Fate.OPAQUE, Fate.SPOILED_AND_OPAQUE} and self.command in {"GET", "HEAD"}
        self.send_response_only(response.status)
        for name, value in response.getheaders():
            if name.lower() not in {"transfer-encoding", "connection"}:
                self.send_header(name, f'"{"0" * 32}"' if opaque and name == "ETag" else value)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Log nothing: failures are part of the tests."""


class S3Server:
    """moto's S3 server in its own process, on its own port; it keeps the objects in memory."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.archive.upload.s3", "serve"]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **CREDENTIALS},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._process.kill()
        self._process.communicate()

    def ask(self, method: str, target: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return status and body of a plain request, without client and proxy."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, target, body, {"Authorization": f"AWS {KEY_ID}:unchecked"})
        response = connection.getresponse()
        answer = response.status, response.read()
        connection.close()
        return answer

    def make_bucket(self, name: str) -> None:
        assert self.ask("PUT", f"/{name}")[0] == 200

    def objects(self, bucket: str) -> dict[str, bytes]:
        """Return the content of the objects by their keys."""
        listing = self.ask("GET", f"/{bucket}?list-type=2")[1].decode()
        keys = re.findall(r"<Key>([^<]+)</Key>", listing)
        answers = {key: self.ask("GET", f"/{bucket}/{key}") for key in keys}
        assert all(status == 200 for status, _ in answers.values())
        return {key: content for key, (_, content) in answers.items()}

    def unfinished(self, bucket: str) -> int:
        """Return the uploads in parts that were neither completed nor aborted."""
        return self.ask("GET", f"/{bucket}?uploads")[1].count(b"<UploadId>")


@contextmanager
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    try:
        yield server
    finally:
        server.stop()


def start_upload(folder: Path, url: str, endpoint: str, *watch: str) -> subprocess.Popen[bytes]:
    """Start a process that uploads a folder and removes the uploaded files."""
    command = [
        sys.executable,
        "-m",
        "tests.archive.upload.s3",
        "upload",
        str(folder),
        url,
        endpoint,
    ]
    return subprocess.Popen([*command, *watch], cwd=ROOT, env={**os.environ, **CREDENTIALS})


def contents(folder: Path) -> Mapping[str, bytes]:
    """Return the content of the files in a folder that must be uploaded."""
    return {path.name: path.read_bytes() for path in folder.glob("*.*") if _goes(path.name)}


def _goes(name: str) -> bool:
    return name.endswith((".warc.gz", ".cdxj"))


def noted(folder: Path) -> list[str]:
    """Return the files that are noted as uploaded, in order."""
    lines = map(json.loads, (folder / NOTES).read_text().splitlines())
    return [line["name"] for line in lines if line["etag"] is not None]


def noise(size: int, seed: int = 0) -> bytes:
    """Return bytes that do not repeat."""
    return hashlib.shake_128(seed.to_bytes(4)).digest(size)


def _serve() -> None:
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer  # noqa: PLC0415

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        _serve()
    for watch in sys.argv[5:]:
        be_watched(watch)
    where = Destination.parse(*sys.argv[3:5])
    upload_folder(Path(sys.argv[2]), where, delete=True)
