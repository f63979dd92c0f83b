"""Serve a folder of capsules by jetforce, each folder in it as the host of its name.

It runs in the venv of jetforce: `python jetforce_hosts.py FOLDER PORT PEM`. Stdout has a line for
each connection that asked for something, as `tests.gemini.visits` reads them.
"""

import json
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from jetforce import CompositeApplication, GeminiProtocol, GeminiServer, StaticDirectoryApplication  # type: ignore[import-not-found]


class _Noting(GeminiProtocol):  # type: ignore[misc]
    """The protocol of jetforce, with another log."""

    def connectionMade(self) -> None:
        self.opened = time.monotonic()
        super().connectionMade()

    def log_request(self) -> None:
        # It is called before the connection is closed.
        parts = urlsplit(self.url)
        visit = {
            "host": f"{parts.hostname}:{parts.port or 1965}",
            "url": self.url,
            "status": str(self.status),
            "opened": self.opened,
            "ended": time.monotonic(),
        }
        print(json.dumps(visit))


class _Server(GeminiServer):  # type: ignore[misc]
    protocol_class = _Noting


def main() -> None:
    """Run the command."""
    folder, port, pem = sys.argv[1:]
    hosts = {each.name: StaticDirectoryApplication(str(each)) for each in Path(folder).iterdir()}
    _Server(
        CompositeApplication(hosts), host="0.0.0.0", port=int(port), certfile=pem, keyfile=pem
    ).run()


if __name__ == "__main__":
    main()
