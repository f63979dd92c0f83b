"""Orders of a person to a running crawl, and what becomes of each in a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from krowlspider.views.names import named_host

if TYPE_CHECKING:
    from krowlspider.engine.control import Control
    from krowlspider.engine.steering import Steering


class Outcome(NamedTuple):
    """Whether an order has changed anything, and what is so now."""

    done: bool
    message: str


class Ordering:
    """Carries orders out; hosts are given by name or URL.

    :raises KrowlError: the order cannot be carried out; nothing has changed
    :raises ValueError: as `KrowlError`
    """

    def __init__(self, control: Control, steering: Steering):
        self._control = control
        self._steering = steering

    def pause(self, host: str = "") -> Outcome:
        """Pause the crawl, or a host."""
        if not host:
            self._steering.pause()
            return Outcome(True, "paused: krowl.resume() lets it go on")
        name = named_host(host)
        if self._steering.pause_host(name):
            return Outcome(True, f"{name} is paused: krowl.resume({name!r}) lets it go on")
        return Outcome(
            False,
            f"{name} is deferred, so nothing is sent to it now: pause it when it is tried again",
        )

    def resume(self, host: str = "") -> Outcome:
        """Let the crawl go on, or a host."""
        if not host:
            self._steering.resume()
            return Outcome(True, "it goes on")
        name = named_host(host)
        done = self._steering.resume_host(name)
        return Outcome(done, f"{name} {'goes on after its delay' if done else 'is not paused'}")

    def block(self, name: str) -> Outcome:
        """Block a host, a domain or a SURT prefix."""
        rule, done = self._steering.block(name)
        again = "" if done else " already"
        return Outcome(done, f"{rule} is blocked{again}: krowl.unblock({rule!r}) lets it go on")

    def unblock(self, name: str) -> Outcome:
        """End a block."""
        rule, done = self._steering.unblock(name)
        if not done:
            return Outcome(False, f"there is no block of {rule}")
        return Outcome(True, f"{rule} goes on, each host after its delay")

    def delay(self, host: str, seconds: float | None = None) -> Outcome:
        """Set the least delay of a host, or end that."""
        name = named_host(host)
        done = self._steering.delay(name, seconds)
        if seconds is None:
            return Outcome(done, f"{name} has the delay of the settings{' already' * (not done)}")
        return Outcome(
            True,
            f"{name} waits {seconds:g} s or more between requests: krowl.delay({name!r}) ends it",
        )

    def add(self, url: str, priority: int = 0) -> Outcome:
        """Queue a URL."""
        if self._steering.add(url, priority):
            return Outcome(True, "queued")
        return Outcome(False, f"not queued: {self._control.explain(url).why}")

    def forget(self, name: str) -> Outcome:
        """Say how a host is forgotten."""
        self._steering.forget(name)

    def reload(self) -> Outcome:
        """Read the files of settings again."""
        return Outcome(True, f"{', '.join(self._steering.reload())}: the log says what is found")

    def set(self, name: str, value: object) -> Outcome:
        """Change a setting until the process ends."""
        self._steering.set(name, value)
        return Outcome(True, f"{name}={value} until the process ends")
