"""Extension: Scrapy's telnet console, with its password in a private file instead of the log."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from twisted.internet.error import CannotListenError

from krowlspider.crawl.job import Job
from krowlspider.crawl.monitoring.secret import TELNET_PASSWORD, Secret
from krowlspider.crawl.monitoring.telnet import QuietConsole
from krowlspider.views.console import Console

if TYPE_CHECKING:
    from scrapy.crawler import Crawler

logger = logging.getLogger(__name__)


class TelnetConsole(QuietConsole):
    """Writes a generated password to a file that only its owner can read, and never logs it.

    Anyone with the password can run Python in the crawl, and many people read logs.
    """

    def __init__(self, crawler: Crawler):
        settings = crawler.settings
        self._secret = Secret(settings["TELNETCONSOLE_PASSWORD"])
        # Scrapy would generate a password and log it.
        settings.set("TELNETCONSOLE_PASSWORD", self._secret.text, settings.maxpriority())
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
        job = Job.of(self.crawler)
        where = self._secret.keep(job.folder.path / TELNET_PASSWORD) or "as set"
        assert self.port is not None
        at = self.port.getHost()
        job.watched_at.append(
            f"telnet {at.host} {at.port} (user {self.username}, password {where})"
        )

    def stop_listening(self) -> None:
        super().stop_listening()
        self._secret.forget()
