"""A web of capsules that is made of numbers: the same for the same shape, and known to the page."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from random import Random
from typing import TYPE_CHECKING

from tests.gemini.answers import NOT_FOUND, Answer, page, redirect, refusal
from tests.gemini.certificates import Identity

if TYPE_CHECKING:
    from pathlib import Path

_WORDS = (
    *("capsule", "gemlog", "river", "mountain", "terminal", "compiler", "garden", "recipe"),
    *("letter", "station", "orbit", "launch", "signal", "weather", "archive", "printer"),
    *("keyboard", "library", "winter", "summer", "bicycle", "railway", "harbour", "poem"),
)
# The robots.txt of each host is one of these. All but the first deny /private to a crawler that
# archives and indexes.
_ROBOTS = (
    None,
    "User-agent: *\nDisallow: /private/\n",
    "User-agent: indexer\nDisallow: /private/\n\nUser-agent: gus\nDisallow: /\n",
    "# both\nUser-agent: archiver\nUser-agent: researcher\nDisallow: /private/\n",
)
# Of so many pages one is reached by a redirect.
_MOVED = 17
# The further pages to which a page links.
_CHILDREN = 4


@dataclass(frozen=True, slots=True)
class Tree:
    """``hosts`` capsules of ``pages`` pages each, at `capsule-N.test` and one port.

    The page 0 of each host links to two other hosts, each page to up to four further pages of its
    host, so all is found from host 0. Each page also has links that lead nowhere: to /private/,
    which robots.txt denies, to a page that is gone, to other schemes, to what asks for input.
    ``changing`` hosts, the last ones, have another certificate after 3 connections. ``filler`` is
    the number of words on a page.
    """

    hosts: int = 10
    pages: int = 20
    port: int = 1965
    changing: int = 0
    filler: int = 150

    @classmethod
    def parse(cls, text: str) -> Tree:
        """Return the tree of a text like "hosts=200,pages=100"."""
        known = {field.name for field in fields(cls)}
        values = dict(part.split("=", 1) for part in text.split(",") if part)
        if unknown := values.keys() - known:
            raise ValueError(f"not a part of a tree: {', '.join(sorted(unknown))}")
        return cls(**{name: int(value) for name, value in values.items()})

    def at(self, port: int) -> Tree:
        """Return the same tree at another port."""
        return replace(self, port=port)

    def write(self, folder: Path) -> None:
        """Write each host as a folder of files, for servers of files.

        They cannot redirect but from a folder without its slash: there each ``redirects`` leads to
        itself and a slash, a page that leads on. ``others`` and what is denied have no file.
        """
        for host in range(self.hosts):
            root = folder / f"capsule-{host}.test"
            (root / "p").mkdir(parents=True)
            if rules := _ROBOTS[host % len(_ROBOTS)]:
                (root / "robots.txt").write_text(rules)
            for number in range(self.pages):
                path = root / (f"p/{number}.gmi" if number else "index.gmi")
                path.write_bytes(self._page(host, number).body)
                if number and number % _MOVED == 0:
                    (root / f"old/{number}").mkdir(parents=True)
                    (root / f"old/{number}/index.gmi").write_text(f"=> /p/{number}.gmi\n")

    @property
    def seed(self) -> str:
        return self.url(0, 0)

    def base(self, host: int) -> str:
        port = "" if self.port == 1965 else f":{self.port}"
        return f"gemini://capsule-{host}.test{port}"

    def url(self, host: int, number: int) -> str:
        """Return the URL of a page, in normal form."""
        return f"{self.base(host)}/" + (f"p/{number}.gmi" if number else "")

    def all_pages(self) -> set[str]:
        """Return the URL of each page that a crawl must ask for."""
        return {
            self.url(host, number) for host in range(self.hosts) for number in range(self.pages)
        }

    def redirects(self) -> set[str]:
        """Return the URL of each redirect to a page."""
        return {
            f"{self.base(host)}/old/{number}"
            for host in range(self.hosts)
            for number in range(1, self.pages)
            if number % _MOVED == 0
        }

    def others(self) -> set[str]:
        """Return the URLs that a crawl may ask for, and of which it gets no page."""
        return {
            f"{self.base(host)}/{path}" for host in range(self.hosts) for path in ("gone", "ask")
        }

    def identity(self, host: str, connections: int) -> Identity:
        """Return what the certificate of a host is, at its nth connection."""
        number = _number(host)
        is_changed = connections >= 3 and number >= self.hosts - self.changing
        return Identity(generation=int(is_changed))

    def answer(self, host: str, target: str) -> Answer:
        """Return the answer of a host to a URL's path and query."""
        number = _number(host)
        if not 0 <= number < self.hosts:
            return refusal(53, "not this capsule")
        if target == "/robots.txt":
            rules = _ROBOTS[number % len(_ROBOTS)]
            return NOT_FOUND if rules is None else page(rules, kind="text/plain")
        if target.startswith("/old/"):
            return redirect(f"/p/{target.removeprefix('/old/')}.gmi", status=30)
        if target == "/ask":
            return refusal(10, "your name?")
        if target.startswith("/private/"):
            return page("# private\n")
        if target == "/":
            return self._page(number, 0)
        name = target.removeprefix("/p/").removesuffix(".gmi")
        if target == f"/p/{name}.gmi" and name.isdecimal() and 0 < int(name) < self.pages:
            return self._page(number, int(name))
        return refusal(52 if target == "/gone" else 51, "not here")

    def _page(self, host: int, number: int) -> Answer:
        random = Random(f"{host} {number}")
        words = " ".join(random.choices(_WORDS, k=self.filler))
        lines = [f"# Page {number} of capsule {host}", "", words, ""]
        lines += [self._link(host, each) for each in self._children(number)]
        if number == 0:
            lines += [
                f"=> {self.base(each)} Capsule {each}"
                for each in (2 * host + 1, 2 * host + 2)
                if each < self.hosts
            ]
        lines += [
            f"=>{self.url(host, random.randrange(self.pages))}#top Elsewhere",
            "=> /gone",
            "=> /ask What is your name?",
            "=> mailto:a@b.test Write to me",
            "=> gopher://old.test/1 Gopher",
            "```",
            "=> /not-a-link In a preformatted block",
            "```",
        ]
        if host % len(_ROBOTS):
            lines.append(f"=> /private/{number}.gmi Not for robots")
        kind = "text/gemini; lang=en" if number % 2 else "text/gemini; charset=utf-8"
        return page("\n".join(lines) + "\n", kind=kind)

    def _children(self, number: int) -> list[int]:
        first = number * _CHILDREN + 1
        return [each for each in range(first, first + _CHILDREN) if each < self.pages]

    def _link(self, host: int, number: int) -> str:
        if number % _MOVED == 0:
            return f"=> /old/{number} Moved {number}"
        forms = (
            f"=> /p/{number}.gmi Page {number}",
            f"=>\t/p/./x/../{number}.gmi\tPage {number}",
            f"=> {self.url(host, number).replace('gemini:', 'GEMINI:')} Page {number}",
            f"=> //capsule-{host}.test:{self.port}/p/{number}.gmi",
        )
        return forms[number % len(forms)]


def _number(host: str) -> int:
    """Return the number of a capsule's name; -1 if it has another name."""
    name = host.removeprefix("capsule-").removesuffix(".test")
    return int(name) if name.isdecimal() and host == f"capsule-{name}.test" else -1
