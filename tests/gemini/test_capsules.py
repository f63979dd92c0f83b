"""The server of capsules does what its answers say."""

from __future__ import annotations

import socket
import ssl
import time
from typing import TYPE_CHECKING

import pytest

from tests.gemini.answers import MALFORMED, Answer, page
from tests.gemini.capsules import CapsuleProcess, Capsules, Paths
from tests.gemini.certificates import Identity
from tests.gemini.tree import Tree
from tests.gemini.visits import Visit, hasty, unasked

if TYPE_CHECKING:
    from pathlib import Path


def ask(url: str, port: int, *, name: str = "capsule.test", most: int = 10_000_000) -> Asked:
    """Return what a server answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname=name, suppress_ragged_eofs=False) as tls,
    ):
        tls.sendall(f"{url}\r\n".encode())
        return Asked(tls, most)


class Asked:
    """What a client reads, to the end or ``most`` bytes."""

    def __init__(self, tls: ssl.SSLSocket, most: int) -> None:
        self.certificate = tls.getpeercert(binary_form=True)
        self.content, self.end = b"", "most"
        try:
            while len(self.content) < most:
                piece = tls.recv(65_536)
                if not piece:
                    self.end = "notify"
                    break
                self.content += piece
        except (ssl.SSLEOFError, ConnectionResetError):
            # Python 3.11 gives the first for both.
            self.end = "cut"


@pytest.mark.parametrize("how", ["notify", "cut", "reset"])
def test_an_answer_ends_as_it_says(how: str):
    answer = Answer(body=b"# Page\n" * 10, close=how)
    with Capsules(Paths({"/": answer})) as capsules:
        asked = ask(capsules.url(), capsules.port)
    assert asked.end == ("notify" if how == "notify" else "cut")
    if how != "reset":
        assert asked.content == answer.header + answer.body
    [visit] = capsules.visits
    assert (visit.url, visit.host) == (capsules.url(), f"capsule.test:{capsules.port}")
    assert (visit.status, visit.server_name, visit.is_whole) == ("20", "capsule.test", True)


def test_answers_may_be_slow_and_huge():
    slow = Answer(body=b"12345678", piece=10, pause=0.05)
    with Capsules(Paths({"/slow": slow, "/huge": Answer(body=b"a" * 65_536, times=500)})) as web:
        begun = time.monotonic()
        assert ask(web.url("/slow"), web.port).content.endswith(b"12345678")
        assert time.monotonic() - begun > 0.1
        huge = ask(web.url("/huge"), web.port, most=10_000_000)
        assert (huge.end, len(huge.content) < 11_000_000) == ("most", True)
        assert ask(web.url("/other"), web.port).content == b"51 not found\r\n"


def test_malformed_headers_are_sent_as_they_are():
    with Capsules(Paths({"/": MALFORMED["three digits"]})) as web:
        assert ask(web.url(), web.port).content == b"200 text/gemini\r\n# no\n"


def test_a_certificate_is_that_of_the_name_and_may_change():
    paths = Paths({"/": page("# Page\n")})
    with Capsules(paths) as web:
        first, again = (ask(web.url(), web.port).certificate for _ in range(2))
        other = ask(web.url(), web.port, name="other.test").certificate
        paths.identities["capsule.test"] = Identity(generation=1)
        changed = ask(web.url(), web.port).certificate
    assert first == again
    assert len({first, other, changed}) == 3


def test_a_tree_is_served_by_a_process(tmp_path: Path):
    """Each page is found from the seed by a client that reads links, and the log has each visit."""
    with CapsuleProcess(Tree(hosts=3, pages=20, filler=10), tmp_path) as server:
        tree = server.tree
        assert ask(tree.seed, tree.port, name="capsule-0.test").content.startswith(b"20 text/gem")
        visits = server.stop()
    assert [visit.url for visit in visits] == [tree.seed]
    assert len(tree.all_pages()) == 60
    assert tree.answer("capsule-1.test", "/robots.txt").body.startswith(b"User-agent")
    assert tree.answer("capsule-1.test", "/old/17").header == b"30 /p/17.gmi\r\n"
    assert {tree.answer("capsule-2.test", path).status for path in ("/p/20.gmi", "/p/x")} == {"51"}


def test_haste_is_found():
    visits = [Visit("a:1", "u", "20", *times) for times in ((0.0, 0.1), (1.2, 1.3), (1.8, 2.0))]
    assert [text.split(" s ")[0] for text in hasty(visits, 1.0)] == ["a:1: 0.500"]
    assert hasty(visits, 0.5) == []


def test_a_page_before_its_robots_file_is_found():
    robots = Visit("a:1", "gemini://a:1/robots.txt", "51", 1.0, 1.1)
    assert unasked([robots, Visit("a:1", "gemini://a:1/", "20", 1.0, 1.2)]) == ["a:1"]
    assert unasked([robots, Visit("a:1", "gemini://a:1/", "20", 1.2, 1.3)]) == []
