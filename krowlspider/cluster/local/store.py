"""A register in memory, with the keys, sessions and transactions of Consul."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from krowlspider.cluster.register.port import SessionGoneError
from krowlspider.cluster.ring.live_members import RegisterEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from krowlspider.cluster.register.port import Step

# A session ends at so many TTLs after its last renewal.
_SESSION_TTLS = 2
_WRITES = frozenset({"set", "cas", "lock", "unlock"})


class RegisterStore:
    """Keys with their values, first those given, and sessions. ``now`` returns seconds."""

    def __init__(self, now: Callable[[], float], keys: Mapping[str, bytes]) -> None:
        self._now = now
        self._index = 1
        self._keys = {key: RegisterEntry(key, keys[key], None, 1) for key in keys}
        # The index of the last change below each folder, and TTL and end of each session.
        self._changed: dict[str, int] = {}
        self._sessions: dict[str, tuple[float, float]] = {}

    def get(self, key: str) -> RegisterEntry | None:
        self._expire()
        return self._keys.get(key)

    def list(self, prefix: str) -> tuple[int, Sequence[RegisterEntry]]:
        """Return the index of the register, and the keys below ``prefix`` in order."""
        self._expire()
        return self._index, [
            self._keys[key] for key in sorted(self._keys) if key.startswith(prefix)
        ]

    def index(self, folder: str) -> str:
        """Return the index of the last change in a folder, whose name ends with a slash."""
        self._expire()
        return str(self._changed.get(folder, 1))

    def transact(self, steps: Sequence[Step]) -> Sequence[RegisterEntry] | None:
        """As of `Register`."""
        self._expire()
        if not all(map(self._allows, steps)):
            return None
        return [entry for step in steps for entry in self._do(step)]

    def _allows(self, step: Mapping[str, Any]) -> bool:
        verb, entry = step["Verb"], self._keys.get(step["Key"])
        if verb == "lock" and step["Session"] not in self._sessions:
            raise SessionGoneError(f"no session {step['Session']}")
        session = None if entry is None else entry.session
        match verb:
            case "check-not-exists":
                return entry is None
            case "check-index":
                return entry is not None and entry.modified == step["Index"]
            case "check-session" | "unlock":
                return session is not None and session == step["Session"]
            case "cas":
                return bool(step["Index"] == (entry.modified if entry else 0))
            case "lock":
                return session in {None, step["Session"]}
            case "set" | "delete" | "get-tree":
                return True
        raise ValueError(f"a register has no step {verb!r}")

    def _do(self, step: Mapping[str, Any]) -> Sequence[RegisterEntry]:
        verb, key = step["Verb"], step["Key"]
        if verb == "get-tree":
            return self.list(key)[1]
        if verb == "delete" and self._keys.pop(key, None) is not None:
            self._count_change(key)
        if verb not in _WRITES:
            return ()
        before = self._keys.get(key)
        session = before.session if before else None
        session = {"lock": step.get("Session"), "unlock": None}.get(verb, session)
        entry = RegisterEntry(key, b64decode(step["Value"]), session, self._count_change(key))
        self._keys[key] = entry
        return [replace(entry, value=b"")]

    def _count_change(self, key: str) -> int:
        self._index += 1
        self._changed[key[: key.rindex("/") + 1]] = self._index
        return self._index

    def open_session(self, ttl: float) -> str:
        session = token_hex(8)
        self._sessions[session] = ttl, self._now() + _SESSION_TTLS * ttl
        return session

    def renew_session(self, session: str) -> None:
        """:raises SessionGoneError: the session has ended"""
        self._expire()
        if session not in self._sessions:
            raise SessionGoneError(f"no session {session}")
        ttl, _ = self._sessions[session]
        self._sessions[session] = ttl, self._now() + _SESSION_TTLS * ttl

    def end_session(self, session: str) -> None:
        self._sessions.pop(session, None)
        for key, entry in self._keys.items():
            if entry.session == session:
                self._keys[key] = replace(entry, session=None, modified=self._count_change(key))

    def _expire(self) -> None:
        now = self._now()
        for session in [each for each, (_, end) in self._sessions.items() if end <= now]:
            self.end_session(session)
