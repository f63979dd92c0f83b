"""Crawls that sign their requests, and a site that lets only the signed one in."""

from __future__ import annotations

import json
import re
import socket
import ssl
import subprocess
import sys
from base64 import urlsafe_b64encode
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scrapy import Request

from krowlspider.engine.handler import DownloadHandler
from krowlspider.fetch.signing import Signer, SigningKey, read_key
from krowlspider.job.parts import signer
from tests.support.archived import valid_records
from tests.support.crawling import ROOT, Crawl, scrapy, write_seeds
from tests.support.crawls import AT_ONCE, anchors, crawl_raw, crawled, page
from tests.support.debian import program
from tests.support.rawweb import Raw, RawWeb
from tests.support.settings import project_settings
from tests.support.simulated_loop import clocks
from tests.support.simulated_web import SimulatedRawWeb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AGENT = "https://bot.library.internal"
SIGNED = b"\r\nSignature-Input: "


def key_at(path: Path) -> SigningKey:
    key = SigningKey.new()
    path.write_bytes(key.pem())
    path.chmod(0o600)
    return key


def crawl_of(folder: Path, key: Path, *seeds: str) -> Crawl:
    return Crawl(
        folder / "job",
        arguments={"seeds": write_seeds(folder / "seeds", seeds)},
        settings={
            **AT_ONCE,
            "KROWL_RETRY_DELAY": 0.01,
            "KROWL_SIGN_KEY": key,
            "KROWL_SIGN_AGENT": AGENT,
        },
    )


def answer(status: str, body: str = "", head: str = "") -> bytes:
    length = f"Content-Length: {len(body)}\r\nContent-Type: text/html\r\n"
    return f"HTTP/1.1 {status}\r\n{length}{head}\r\n{body}".encode()


def test_only_the_host_that_asks_gets_signatures_each_of_its_own(tmp_path: Path) -> None:
    """They go to each hop for itself: not with a redirect, nor again with a retry. The archive has
    what was sent."""
    refused, missing = answer("403 Forbidden"), answer("404 Not Found")
    links = "<a href=/busy>b</a><a href=/moved>m</a><a href=/secret>s</a><a href=/none>n</a>"
    elsewhere = {b"Host: b.test": answer("200 OK", "elsewhere")}
    moved: dict[bytes, bytes] = {}
    # The robots.txt that an unsigned request gets would allow everything.
    web = RawWeb(
        {
            "/robots.txt": Raw(
                refused,
                others={
                    b"Host: b.test": missing,
                    b"Host: c.test": missing,
                    SIGNED: answer("200 OK", "User-agent: *\nDisallow: /secret\n"),
                },
            ),
            "/": Raw(refused, others={**elsewhere, SIGNED: answer("200 OK", links)}),
            "/busy": Raw(refused, others={SIGNED: answer("500 Oops")}),
            "/moved": Raw(refused, others=moved),
            "/page": Raw(refused, others={SIGNED: answer("200 OK", "page")}),
        }
    )
    with web:
        moved[SIGNED] = answer("302 Found", head=f"Location: {web.url('b.test', '/')}\r\n")
        key_at(tmp_path / "key.pem")
        page = web.url("c.test", "/page")
        crawl = crawl_of(tmp_path, tmp_path / "key.pem", web.url("a.test"), page).run()
    at_a, at_b, at_c = (
        [request for _, request in web.requests if b"\r\nHost: %b.test" % name in request]
        for name in (b"a", b"b", b"c")
    )
    # The robots.txt of a.test asks, at c.test its page.
    assert [SIGNED in request for request in at_a] == [False] + [True] * (len(at_a) - 1)
    assert not any(b"Signature" in request for request in at_b)
    assert [SIGNED in request for request in at_c] == [False, False, True]
    assert sorted(web.asked) == sorted(
        [*["/robots.txt"] * 4, "/", "/", *["/busy"] * 3, "/moved", "/none", "/page", "/page"]
    )
    for pattern in (rb'nonce="([^"]+)"', rb"\r\nSignature: (.+)\r\n"):
        found = [re.findall(pattern, request) for request in at_a[1:]]
        assert len({values[0] for values in found}) == len(found)
    statuses = {(item["url"], item["status"]) for item in crawl.items}
    assert statuses == {
        (web.url("a.test", "/"), 200),
        (web.url("a.test", "/busy"), 500),
        (web.url("a.test", "/none"), 404),
        (web.url("b.test", "/"), 200),
        (page, 200),
    }
    archived = valid_records(crawl.jobdir / "warc").of_kind("request")
    assert sorted(record.block for record in archived) == sorted(each for _, each in web.requests)
    stats = {name: crawl.stats.get(f"krowl/identity/{name}_count", 0) for name in
             ("challenged", "signed", "refused")}  # fmt: skip
    assert stats == {"challenged": 2, "signed": len(at_a), "refused": 0}
    assert crawl.complaints == []


def test_pages_wait_for_a_new_key_when_theirs_expires(tmp_path: Path) -> None:
    """Their host is deferred, others go on. The next start, with a new key, fetches the rest."""
    refused, fine = answer("403 Forbidden"), answer("200 OK", "page")
    links = answer("200 OK", "".join(f"<a href=/{number}>x</a>" for number in range(10)))
    leaf = Raw(refused, others={b"Host: b.test": fine, SIGNED: fine})
    site = {
        "/robots.txt": Raw(answer("404 Not Found")),
        "/": Raw(refused, others={b"Host: b.test": links, SIGNED: links}),
        **{f"/{at}": leaf for at in range(10)},
    }
    with SimulatedRawWeb(site) as web:
        seeds = [web.url("a.test"), web.url("b.test")]

        def crawl(key_life: float) -> tuple[Crawl, list[bool], int]:
            """Return the crawl, of each page that a.test was asked for whether it was signed, and
            the number of pages of b.test."""
            web.requests.clear()
            key = expiring_key(tmp_path / "key.jwk", clocks.wall() + key_life)
            more = {"KROWL_SIGN_KEY": key, "KROWL_SIGN_AGENT": AGENT, "KROWL_DELAY_MIN": 10}
            found = crawl_raw(tmp_path, seeds, **more)
            asked = [request for path, request in web.requests if path != "/robots.txt"]
            at_a = [SIGNED in request for request in asked if b"\r\nHost: a.test" in request]
            return found, at_a, len(asked) - len(at_a)

        first, early, others = crawl(55)
        name = seeds[0].split("/")[2]
        assert first.log.count(f"has expired: {name} gets signed requests, and is deferred") == 1
        last, late, none = crawl(10_000)
    assert (others, none) == (11, 0)
    # The first page shows that the host asks. The next start knows it.
    assert early == [False] + [True] * sum(early)
    assert late == [True] * sum(late)
    assert 3 <= sum(early) <= 6
    assert sum(early) + sum(late) == 11
    assert last.stats["krowl/frontier/queued"] == 0
    rows = map(json.loads, scrapy("frontier", last.jobdir, "--pages").stdout.splitlines())
    assert [row.get("status", 200) for row in rows] == [200] * 22


def expiring_key(path: Path, end: float) -> Path:
    private = Ed25519PrivateKey.generate()
    secret = urlsafe_b64encode(private.private_bytes_raw()).decode().rstrip("=")
    path.write_text(json.dumps({**SigningKey(private, expires=end).jwk(), "d": secret}))
    path.chmod(0o600)
    return path


def test_the_settings_make_the_signer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert signer(project_settings(), lambda: 0.0) is None
    path = tmp_path / "key.pem"
    key_at(path)
    given = {"KROWL_SIGN_KEY": str(path), "KROWL_SIGN_AGENT": f"{AGENT}/"}
    for sign, signs in (("challenged", False), ("always", True)):
        made = signer(project_settings(**given, KROWL_SIGN=sign), lambda: 0.0)
        assert made is not None
        assert made.signs("a.test") is signs
    assert caplog.text == ""
    path.chmod(0o640)
    signer(project_settings(**given), lambda: 0.0)
    assert f"KROWL_SIGN_KEY={path} can be read by other users" in caplog.text
    assert f"chmod 600 {path}" in caplog.text


@pytest.mark.parametrize("header", ["Signature", "Signature-Agent", "signature-input"])
def test_a_request_with_a_signature_header_of_its_own_is_not_signed(header: str) -> None:
    """With two Signature-Agent or Signature headers, no signature can be read."""
    always = Signer(SigningKey.new(), AGENT, always=True, life=60, wall=lambda: 0.0)
    flight: Any = SimpleNamespace(host=SimpleNamespace(name="a.test"))
    handler: Any = None
    for headers, signs in (({}, True), ({header: "x"}, False)):
        request = Request("http://a.test/", headers=headers)
        sign = DownloadHandler._signing(handler, always, request, flight)
        assert (sign is not None) is signs


# --- A site of nginx and a verifier of another author ---


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the verifier; what it needs is in this environment."""
    target = tmp_path_factory.mktemp("verifier") / "library"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
    wanted = str(ROOT / "tests" / "signature-requirements.txt")
    subprocess.run([*pip, "--target", str(target), "-r", wanted], check=True)
    return target


class Verifier:
    """Answers nginx whether a request is signed by ``key``, once for each nonce.

    ``outcomes`` are path and "ok", or why it is refused.
    """

    def __init__(self, key: SigningKey):
        from http_message_signatures import (  # type: ignore[import-not-found]  # noqa: PLC0415
            HTTPMessageVerifier,
            HTTPSignatureKeyResolver,
            algorithms,
        )

        class Resolver(HTTPSignatureKeyResolver):  # type: ignore[misc]
            def resolve_public_key(self, key_id: str) -> Any:
                return key._private.public_key() if key_id == key.keyid else None

        self._verifier = HTTPMessageVerifier(
            signature_algorithm=algorithms.ED25519, key_resolver=Resolver()
        )
        self._nonces: set[str] = set()
        self._lock = Lock()
        self.outcomes: list[tuple[str, str]] = []

    def take(self, method: str, url: str, headers: dict[str, str]) -> bool:
        message = SimpleNamespace(method=method, url=url, headers=headers)
        with self._lock:
            outcome = "ok"
            try:
                (found,) = self._verifier.verify(
                    message,
                    expect_tag="web-bot-auth",
                    require_components=("@authority", '"signature-agent";key="sig1"'),
                )
                if found.nonce in self._nonces:
                    raise ValueError("nonce used")
                self._nonces.add(found.nonce)
            except Exception as error:  # noqa: BLE001 - it raises many
                outcome = str(error) or type(error).__name__
            self.outcomes.append(
                (url.partition("/")[2].partition("/")[2].partition("/")[2], outcome)
            )
        return outcome == "ok"


@contextmanager
def site(folder: Path, key: SigningKey) -> Iterator[tuple[int, Verifier]]:
    """Serve pages over TLS by nginx, which asks a verifier before each; robots.txt is free."""
    verifier = Verifier(key)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            url = f"https://{headers['host']}{headers.pop('x-original-uri')}"
            is_signed = verifier.take(headers.pop("x-original-method"), url, headers)
            self.send_response(204 if is_signed else 403)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    pages = folder / "pages"
    pages.mkdir(parents=True)
    (pages / "index.html").write_text("<title>Home</title><a href=/a.html?x=1>a</a>")
    (pages / "a.html").write_text("<title>A</title><a href=/index.html>home</a>")
    trustme.CA().issue_cert("a.test").private_key_and_cert_chain_pem.write_to_path(folder / "tls")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,)).start()
        (folder / "nginx.conf").write_text(
            f"""
            daemon off; master_process off; pid {folder}/pid; error_log {folder}/errors;
            events {{}}
            http {{
                access_log {folder}/access;
                {
                " ".join(
                    f"{kind}_temp_path {folder}/temp;"
                    for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
                )
            }
                types {{ text/html html; }}
                server {{
                    listen 127.0.0.1:{port} ssl;
                    ssl_certificate {folder}/tls; ssl_certificate_key {folder}/tls;
                    root {pages};
                    location = /robots.txt {{ return 404; }}
                    location / {{ auth_request /verify; }}
                    location = /verify {{
                        internal;
                        proxy_pass http://127.0.0.1:{server.server_port};
                        proxy_set_header Host $http_host;
                        proxy_set_header X-Original-URI $request_uri;
                        proxy_set_header X-Original-Method $request_method;
                    }}
                }}
            }}
            """
        )
        nginx = subprocess.Popen([program("nginx"), "-p", folder, "-c", folder / "nginx.conf"])
        try:
            _await_port(port)
            yield port, verifier
        finally:
            nginx.terminate()
            nginx.wait(30)
            server.shutdown()


def _await_port(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            Event().wait(0.05)
        else:
            return
    raise AssertionError("nginx does not listen")


def sent_again(port: int, request: bytes) -> str:
    """Return the status of an answer to these bytes."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), 10) as plain,
        context.wrap_socket(plain, server_hostname="a.test") as connection,
    ):
        connection.sendall(request)
        return connection.recv(65_536).split(b" ")[1].decode()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_site_lets_the_signed_crawl_in_and_no_forged_one(
    tmp_path: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The verifier is http-message-signatures; each crawl is of a process of its own."""
    monkeypatch.syspath_prepend(str(library))
    key = key_at(tmp_path / "key.pem")
    key_at(tmp_path / "forged.pem")
    with site(tmp_path / "site", key) as (port, verifier):
        urls = [f"https://a.test:{port}{path}" for path in ("/index.html", "/a.html?x=1")]
        signed = crawl_of(tmp_path / "signed", tmp_path / "key.pem", urls[0]).run()
        assert {(item["url"], item["status"]) for item in signed.items} == {(u, 200) for u in urls}
        assert [outcome for _, outcome in verifier.outcomes][1:] == ["ok", "ok"]
        assert [path for path, _ in verifier.outcomes] == ["index.html"] * 2 + ["a.html?x=1"]
        requests = valid_records(signed.jobdir / "warc").of_kind("request").about(urls[1])
        # What was archived is what was signed; it cannot be used again, nor for another page.
        sent = requests.only.block
        assert SIGNED in sent
        for forged in (sent, sent.replace(b"/a.html?x=1", b"/index.html"),
                       sent.replace(b"a.test", b"b.test", 1)):  # fmt: skip
            assert sent_again(port, forged) == "403"
        assert verifier.outcomes[3][1] == "nonce used"
        del verifier.outcomes[:]
        forged = crawl_of(tmp_path / "forged", tmp_path / "forged.pem", urls[0]).run()
        assert {(item["url"], item["status"]) for item in forged.items} == {(urls[0], 403)}
        assert [outcome == "ok" for _, outcome in verifier.outcomes] == [False, False]
        assert forged.stats["krowl/identity/refused_count"] == 1
    assert read_key(tmp_path / "key.pem", 0.0).keyid == key.keyid
    assert json.loads((signed.jobdir / "job.json").read_text()).get("KROWL_SIGN_KEY") is None


# --- Prices ---


def test_a_price_is_recorded_and_a_host_with_nothing_else_put_off(tmp_path: Path) -> None:
    """Each page is asked for once, and nothing is paid. A host with free pages too goes on."""
    terms = {"Content-Usage": "train-ai=n", "Link": '</rsl.xml>; rel="license"'}
    priced = {"status": 402, "headers": {"Crawler-Price": "USD 0.01"}}
    spec = [
        page("/robots.txt", "", status=404),
        page("/", anchors(*(f"/{number}" for number in range(20))), host="^dear"),
        {"host": "^dear", "path": "^/", **priced},
        page("/", anchors(*(f"/{number}" for number in range(20))), host="^mixed"),
        {"host": "^mixed", "path": "^/.*[02468]$", "status": 402, "body": "pay"},
        {**page("^/", "free", host="^mixed"), "headers": terms},
    ]
    crawl, log = crawled(tmp_path, spec, "dear.test/", "mixed.test/")
    urls = sorted(f"{entry.host.partition(':')[0]}{entry.path}" for entry in log)
    free = [f"{host}.test{path}" for host in ("dear", "mixed") for path in ("/", "/robots.txt")]
    # Five answers 402 in a row; every page once.
    assert urls == sorted(
        free + [f"dear.test/{n}" for n in range(5)] + [f"mixed.test/{n}" for n in range(20)]
    )
    assert crawl.stats["krowl/prices/asked_count"] == 5 + 10
    assert {item.get("price") for item in crawl.items if item["status"] == 402} == {
        "USD 0.01",
        None,
    }
    assert all("price" not in item for item in crawl.items if item["status"] == 200)
    lines = scrapy("frontier", crawl.jobdir, "--pages").stdout.splitlines()
    rows = {row["url"]: row.get("price") for row in map(json.loads, lines)}
    assert rows == {item["url"]: item.get("price") for item in crawl.items}
    assert crawl.stats["krowl/frontier/deferred"] == 15
    table = (crawl.jobdir / "reports" / "prices.tsv").read_text().splitlines()
    names = [entry.host for entry in log if entry.path == "/robots.txt"]
    dear, mixed = sorted(names)
    assert table == [
        "host\tlast price\tanswers 402",
        f"{mixed}\t\t10",
        f"{dear}\tUSD 0.01\t5",
    ]
    seen = scrapy("frontier", crawl.jobdir, "--host", mixed).stdout.decode().splitlines()
    assert [line.partition(" (")[0] for line in seen if line.startswith("terms")] == [
        "terms    Content-Usage: train-ai=n",
        'terms    Link: </rsl.xml>; rel="license"',
    ]
