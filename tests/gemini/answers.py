"""Answers of capsules: any header and body, slow, huge, cut."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent to a request.

    ``header`` is sent as it is, with its line end, if it has one; then ``body``, ``times`` times.
    ``wait`` are the seconds before the first byte. With ``piece`` the answer is sent in pieces of
    so many bytes, with ``pause`` seconds behind each. ``close`` is how the connection ends:

    - ``"notify"``: with close_notify, as the specification has it
    - ``"cut"``: by the end of the TCP connection alone
    - ``"reset"``: by a reset
    - ``"never"``: not before the client closes
    """

    header: bytes = b"20 text/gemini\r\n"
    body: bytes = b""
    times: int = 1
    wait: float = 0.0
    piece: int = 0
    pause: float = 0.0
    close: str = "notify"

    @property
    def status(self) -> str:
        """The first two bytes of the header, as text."""
        return self.header[:2].decode("latin-1")


def page(body: str, *, kind: str = "text/gemini") -> Answer:
    """Return a page."""
    return Answer(f"20 {kind}\r\n".encode(), body.encode())


def redirect(target: str, *, status: int = 31) -> Answer:
    return Answer(f"{status} {target}\r\n".encode())


def refusal(status: int, meta: str = "") -> Answer:
    """Return an answer without body."""
    return Answer(f"{status} {meta}\r\n".encode())


NOT_FOUND = refusal(51, "not found")

# One answer of each status of the specification that has no body.
REFUSALS = {
    **{status: refusal(status, "your name?") for status in (10, 11)},
    **{status: refusal(status, "try later") for status in (40, 41, 42, 43)},
    44: refusal(44, "2"),
    **{status: refusal(status, "no") for status in (50, 51, 52, 53, 59, 60, 61, 62)},
}
# Headers that the specification does not allow. A client must end each soon, without a page.
MALFORMED = {
    "nothing": Answer(b""),
    "no line end": Answer(b"20 text/gemini", close="cut"),
    "line feed alone": Answer(b"20 text/gemini\n", b"# no\n"),
    "one digit": Answer(b"2 text/gemini\r\n", b"# no\n"),
    "three digits": Answer(b"200 text/gemini\r\n", b"# no\n"),
    "no digits": Answer(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n", b"<p>no"),
    "unknown class": Answer(b"70 text/gemini\r\n", b"# no\n"),
    "class zero": Answer(b"02 text/gemini\r\n", b"# no\n"),
    "other digits": Answer("٢٠ text/gemini\r\n".encode(), b"# no\n"),
    "meta of 1,025 bytes": Answer(b"20 text/gemini; x=" + b"a" * 1010 + b"\r\n", b"# no\n"),
    "endless meta": Answer(b"20 ", b"a" * 65_536, times=1_000),
    "not UTF-8": Answer(b"20 text/\xff\xfe\r\n", b"# no\n"),
    "control characters": Answer(b"20 text/gem\x00ini\r\n", b"# no\n"),
    "redirect to nowhere": Answer(b"31 \r\n"),
    "redirect to no URL": Answer(b"31 ://::\r\n"),
    "slow down without a number": Answer(b"44 later\r\n"),
    "slow down for ever": Answer(b"44 99999999999999999999\r\n"),
}
# Answers that cost a client time or memory, if it lets them.
COSTLY = {
    "silent": Answer(b"", close="never"),
    "a byte a second": Answer(body=b"# slow\n" * 100, piece=1, pause=1.0),
    "never closed": Answer(body=b"# open\n", close="never"),
    "huge": Answer(body=b"a" * 65_536, times=16_000),
    "huge in lines": Answer(body=b"=> /a b\n" * 8_192, times=1_600),
    "one line": Answer(body=b"#" * 65_536, times=150),
    "cut": Answer(body=b"# cut\n=> /a b\n", close="cut"),
    "reset": Answer(body=b"# reset\n", close="reset"),
}
