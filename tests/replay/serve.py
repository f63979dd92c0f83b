"""``python serve.py FOLDER``: pywb's ``wayback`` of a folder on a free port of 127.0.0.1, which it
prints.

Ends with its stdin.
"""

import gevent.monkey

gevent.monkey.patch_all()

import sys

from gevent import spawn
from gevent.fileobject import FileObject
from pywb.apps.cli import WaybackCli
from pywb.utils.geventserver import GeventServer, RequestURIWSGIHandler


class Announced(WaybackCli):
    """The command ``wayback``, which tells its port."""

    def run_gevent(self) -> None:
        server = GeventServer(
            self.application, hostname="127.0.0.1", handler_class=RequestURIWSGIHandler
        )
        print(server.port, flush=True)
        spawn(FileObject(sys.stdin).read).join()
        server.stop()


if __name__ == "__main__":
    Announced(["--directory", sys.argv[1]]).run()
