"""Extension: Scrapy's telnet console, with its password in a private file instead of the log."""

from __future__ import annotations

import logging
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from scrapy.extensions import telnet
from twisted.internet.error import CannotListenError

from krowlspider.crawl.folder import write_private
from krowlspider.crawl.job import Job
from krowlspider.views.console import Console

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)

PASSWORD = "telnet-password"  # noqa: S105 - the name of its file


class TelnetConsole(telnet.TelnetConsole):
    """Writes a generated password to a file that only its owner can read, and never logs it.

    Anyone with the password can run Python in the crawl, and many people read logs.
    """

    def __init__(self, crawler: Crawler):
        settings = crawler.settings
        self._made = not settings["TELNETCONSOLE_PASSWORD"]
        if self._made:
            # Scrapy would generate a password and log it.
            settings.set("TELNETCONSOLE_PASSWORD", token_hex(16), settings.maxpriority())
        super().__init__(crawler)

    def _get_telnet_vars(self) -> dict[str, Any]:
        console = Console(self.crawler, "the telnet console")
        return {**super()._get_telnet_vars(), "krowl": console}

    def start_listening(self) -> None:
        try:
            super().start_listening()
        except CannotListenError as error:
            logger.warning(
                "No telnet console: no free port in TELNETCONSOLE_PORT=%s at %s (%s);"
                " give others, or TELNETCONSOLE_ENABLED=False",
                ",".join(map(str, self.portrange)),
                self.host,
                error.socketError,
            )
            return
        job, secret = Job.of(self.crawler), "as set"
        if self._made:
            self._file = job.folder.path / PASSWORD
            write_private(self._file, self.password)
            secret = f"in {self._file}"
        assert self.port is not None
        at = self.port.getHost()
        job.watched_at.append(
            f"telnet {at.host} {at.port} (user {self.username}, password {secret})"
        )

    def stop_listening(self) -> None:
        super().stop_listening()
        if self._made and self.port is not None:
            self._file.unlink(missing_ok=True)
