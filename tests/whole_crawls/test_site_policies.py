"""Each key of a sheet that decides the pop or the fetch changes what is sent and kept."""

from __future__ import annotations

from base64 import b64encode
from typing import TYPE_CHECKING

from tests.mockweb.server import certificate
from tests.support.archived import valid_records
from tests.support.crawls import crawl_raw
from tests.support.rawweb import Raw
from tests.support.simulated_web import SimulatedRawWeb

if TYPE_CHECKING:
    from pathlib import Path

COOKIES = """# Netscape HTTP Cookie File
.a.test\tTRUE\t/\tFALSE\t0\tsession\ts3cret
a.test\tFALSE\t/deep\tFALSE\t4102444800\tdeep\td33p
#HttpOnly_a.test\tFALSE\t/\tTRUE\t0\tsecure\tonly-https
other.test\tFALSE\t/\tFALSE\t0\tother\tother
a.test\tFALSE\t/\tFALSE\t1000000000\told\texpired
"""
SENT = b"Basic " + b64encode(b"user:pass:word")
SHEETS = """
[[sheet]]
name = "known"
match = ["a.test", "c.test"]
user_agent_suffix = "(project 7)"
headers = { "X-Project" = "7", "accept-language" = "de" }
cookies = "cookies.txt"
auth = "auth"
auth_over_http = true

[[sheet]]
name = "by https only"
match = ["b.test", "s.test"]
auth = "auth"

[[sheet]]
name = "no words"
match = ["test,c,)/deep"]
user_agent_suffix = "(deep)"
"""


def html(*links: str) -> Raw:
    body = "".join(f"<a href={link}>x</a>" for link in links).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(body)
    return Raw(head + body)


def moved(to: str) -> Raw:
    return Raw(f"HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode())


def policies(folder: Path, text: str = SHEETS) -> Path:
    (folder / "cookies.txt").write_text(COOKIES)
    (folder / "auth").write_text("user:pass:word\n")
    path = folder / "policies.toml"
    path.write_text(text)
    return path


def headers_of(request: bytes) -> dict[bytes, bytes]:
    lines = request.split(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    return dict(line.split(b": ", 1) for line in lines)


def test_headers_cookies_and_credentials_go_to_their_site(tmp_path: Path) -> None:
    site = {"/": html("/deep/1", "/away"), "/deep/1": html(), "/plain": html()}
    with (
        SimulatedRawWeb(site) as web,
        SimulatedRawWeb({"/": html()}, tls=certificate()) as secured,
    ):
        site["/away"] = moved(web.url("x.test", "/plain"))
        seeds = [web.url(f"{name}.test", "/") for name in "abc"]
        crawl = crawl_raw(
            tmp_path,
            [*seeds, secured.url("s.test")],
            KROWL_POLICIES=policies(tmp_path),
        )
        sent = {}
        for _, request in web.requests + secured.requests:
            found = headers_of(request)
            host = found[b"Host"].decode().partition(":")[0]
            sent[host, request.split(b" ")[1].decode()] = found
    assert {key for key, found in sent.items() if b"Authorization" in found} == {
        key for key in sent if key[0] in ("a.test", "c.test", "s.test")
    }
    assert {found[b"Authorization"] for found in sent.values() if b"Authorization" in found} == {
        SENT
    }
    assert {key: found[b"Cookie"] for key, found in sent.items() if b"Cookie" in found} == {
        ("a.test", "/robots.txt"): b"session=s3cret",
        ("a.test", "/"): b"session=s3cret",
        ("a.test", "/away"): b"session=s3cret",
        ("a.test", "/deep/1"): b"deep=d33p; session=s3cret",
    }
    agent = sent["b.test", "/"][b"User-Agent"]
    assert agent not in (b"", agent + b" (project 7)")
    agents = {key: found[b"User-Agent"].removeprefix(agent) for key, found in sent.items()}
    assert agents == {
        key: {"a.test": b" (project 7)", "c.test": b" (project 7)"}.get(key[0], b"") for key in sent
    } | {("c.test", "/deep/1"): b" (deep)"}
    assert {key[0] for key, found in sent.items() if b"X-Project" in found} == {"a.test", "c.test"}
    assert sent["a.test", "/"][b"Accept-Language"] == b"de"
    assert sent["b.test", "/"][b"Accept-Language"] == b"en"
    assert ("x.test", "/plain") in sent
    requests = valid_records(crawl.jobdir / "warc").of_kind("request")
    assert len(requests) == len(sent)
    blocks = b"".join(each.block for each in requests)
    assert not [word for word in (SENT, b"s3cret", b"d33p") if word in blocks]
    assert blocks.count(b"\r\nAuthorization: [removed]\r\n") == 9 + 1
    assert blocks.count(b"\r\nCookie: [removed]\r\n") == 4
    assert "s3cret" not in crawl.log
    assert "pass:word" not in crawl.log
