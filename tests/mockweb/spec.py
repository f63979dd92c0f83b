"""A site of hand-written rules. The first rule that matches answers; without one it is a 404."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.mockweb.reply import Framing, Reply, gzipped
from tests.mockweb.traps import TRAPS, Trap

_KEYS = frozenset(
    {
        "host",
        "path",
        "status",
        "headers",
        "body",
        "body_base64",
        "body_file",
        "latency",
        "first",
        "close_early",
        "size",
        "drip",
        "gzip",
        "chunked",
        "raw_base64",
        "redirect",
        "retry_after",
        "close",
        "trap",
    }
)
"""The keys of a rule.

- `host` (without port), `path` (with query): must equal those of the request. A value that begins
  with `^` is a regular expression that is searched. Without the key, every request matches.
- `first`: the rule answers this many requests for a URL, then the next rule that matches does.
- `trap`: that function of traps.py makes the answer, after `latency`.
- `redirect`: sets Location and status 302.
- `retry_after`: sets the header.
- `size`, `drip`, `close_early`, `latency`: as in `Reply`.
- `close`: the end of the connection ends the body.

`{port}` and `{tls_port}` in headers and body become those of the server.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One rule, ready to answer."""

    host: str | None
    path: str | None
    first: int | None
    reply: Reply
    trap: Trap | None = None

    def fits(self, host: str, target: str) -> bool:
        """Return whether the rule matches a request."""
        return _fits(self.host, host) and _fits(self.path, target)

    def answer(self, host: str, target: str, nth: int, port: int) -> Reply:
        """Return the rule's answer, made by its trap if it has one."""
        if self.trap is None:
            return self.reply
        return replace(self.trap(host, target, nth, port), latency=self.reply.latency)


def _fits(wanted: str | None, found: str) -> bool:
    if wanted is not None and wanted.startswith("^"):
        return re.search(wanted, found) is not None
    return wanted is None or wanted == found


class SpecSite:
    """Serves rules in order.

    :raises ValueError: a rule has an unknown key
    """

    def __init__(self, rules: Iterable[Mapping[str, Any]], port: int, tls_port: int) -> None:
        self._rules = [_rule(rule, port, tls_port) for rule in rules]
        self._port = port
        self._missing = Reply(404, [("Content-Type", "text/plain")], b"no rule for this\n")

    def answer(self, host: str, target: str, nth: int) -> Reply:
        """See `Site.answer`."""
        for rule in self._rules:
            if not rule.fits(host, target):
                continue
            if rule.first is None or nth < rule.first:
                return rule.answer(host, target, nth, self._port)
            nth -= rule.first
        return self._missing


def read_spec(path: Path) -> list[dict[str, Any]]:
    """Read the rules in a JSON file.

    :raises TypeError: the file does not hold a list
    """
    rules = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(rules, list):
        raise TypeError(f"{path} holds no list of rules")
    return rules


def _rule(rule: Mapping[str, Any], port: int, tls_port: int) -> Rule:
    if unknown := set(rule) - _KEYS:
        raise ValueError(f"unknown keys {sorted(unknown)} in a rule; there are {sorted(_KEYS)}")
    ports = {"{port}": str(port), "{tls_port}": str(tls_port)}
    host = rule.get("host")
    trap = TRAPS[rule["trap"]] if "trap" in rule else None
    return Rule(
        host and host.lower(), rule.get("path"), rule.get("first"), _reply(rule, ports), trap
    )


def _reply(rule: Mapping[str, Any], ports: Mapping[str, str]) -> Reply:
    headers = [(name, _filled(str(value), ports)) for name, value in _headers(rule)]
    body = _body(rule, ports)
    if rule.get("gzip"):
        headers.append(("Content-Encoding", "gzip"))
        body = gzipped(body)
    framing: Framing = "length"
    if rule.get("chunked"):
        framing = "chunked"
    elif rule.get("close"):
        framing = "close"
    raw = rule.get("raw_base64")
    return Reply(
        rule.get("status", 302 if "redirect" in rule else 200),
        headers,
        body,
        framing,
        latency=rule.get("latency", 0.0),
        size=rule.get("size", 0),
        drip=rule.get("drip", 0.0),
        close_early=rule.get("close_early"),
        raw=None if raw is None else base64.b64decode(raw),
    )


def _headers(rule: Mapping[str, Any]) -> list[tuple[str, Any]]:
    given = rule.get("headers", {})
    headers = list(given.items()) if isinstance(given, Mapping) else [tuple(h) for h in given]
    if not any(name.lower() == "content-type" for name, _ in headers):
        headers.append(("Content-Type", "text/html; charset=utf-8"))
    if "redirect" in rule:
        headers.append(("Location", rule["redirect"]))
    if "retry_after" in rule:
        headers.append(("Retry-After", rule["retry_after"]))
    return headers


def _filled(text: str, ports: Mapping[str, str]) -> str:
    for mark, port in ports.items():
        text = text.replace(mark, port)
    return text


def _body(rule: Mapping[str, Any], ports: Mapping[str, str]) -> bytes:
    if "body_base64" in rule:
        return base64.b64decode(rule["body_base64"])
    if "body_file" in rule:
        # latin-1 keeps every byte of a file in any charset.
        text = Path(rule["body_file"]).read_bytes().decode("latin-1")
        return _filled(text, ports).encode("latin-1")
    return _filled(rule.get("body", ""), ports).encode()
