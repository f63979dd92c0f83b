"""The work that a server causes by TLS, and the bounds on it."""

from __future__ import annotations

import time

# Bytes at which a handshake is cut off, and later as many in a row without content. Certificate
# chains of the web have 3 to 10 kB.
BARE_MOST = 32_768
# CPU seconds that a connection may take, and more for each byte of content: a hundred times an
# ordinary handshake, and the cost of records of 30 bytes.
WORK = 0.05
WORK_BYTE = 50e-9


class TlsWork:
    """The bytes and CPU seconds of one connection; ``step`` is the seconds since it was set to 0.

    ``bare`` is the bytes received since the last content.
    """

    def __init__(self) -> None:
        self.bare = 0
        self.step = 0.0
        self._content = 0
        self._spent = 0.0
        # Reading the CPU clock takes ten times as long, so only connections that are not light use
        # it.
        self.timer = time.perf_counter

    @property
    def is_light(self) -> bool:
        """Return whether the server has caused little work so far."""
        return self._spent < WORK / 10 + WORK_BYTE * self._content

    def charge(self, begun: float) -> None:
        """Count the seconds since ``begun``, a time of ``timer``."""
        # Capped, because a garbage collection may fall within it.
        took = min(self.timer() - begun, WORK / 2)
        self.step += took
        self._spent += took
        if self.timer is time.perf_counter and not self.is_light:
            # Wall time may have been spent waiting for the CPU, so measure anew in CPU time.
            self.timer, self._spent = time.thread_time, 0.0

    def add_content(self, size: int) -> None:
        """Count ``size`` bytes of content; 0 for the end of the handshake."""
        self.bare = 0
        self._content += size

    def excess(self) -> str | None:
        """Return why the server must be cut off, or None."""
        if self.bare >= BARE_MOST:
            return f"{self.bare} bytes of TLS without content"
        if self._spent > WORK + WORK_BYTE * self._content:
            spent = f"{1000 * self._spent:.0f} ms of CPU"
            return f"TLS took {spent} for {self._content} bytes of content"
        return None
