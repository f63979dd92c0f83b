"""Captures of Gemini, as the crawler hands them to the archive."""

from __future__ import annotations

from krowlspider.archive.write.records import Capture, RecordIds, Wire
from tests.archive.captures import STARTED
from tests.gemini.answers import Answer, page

_IDS = RecordIds()
URL = "gemini://example.org/a.gmi"
TLS = ("TLSv1.3", "TLS_AES_256_GCM_SHA384")
PAGE = page("# Title of it\n\nWords of the page.\n=> /b Next\n", kind="text/gemini; lang=en")
DER = bytes(range(256)) * 2


def capture(
    answer: Answer = PAGE, *, url: str = URL, truncated: str = "", certificate: bytes = b""
) -> Capture:
    """Return the capture of an answer to a request of ``url``."""
    return Capture(
        identity=_IDS.new(),
        url=url,
        request_bytes=url.encode() + b"\r\n",
        response_bytes=answer.header + answer.body,
        head=len(answer.header),
        payload=answer.body,
        status=int(answer.header[:2]),
        media_type="",
        started=STARTED,
        truncated=truncated,
        wire=Wire("192.0.2.7", tls=TLS),
        protocol="gemini",
        certificate=certificate,
    )
