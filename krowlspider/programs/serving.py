"""``scrapy frontier JOBDIR --serve``: a frontier without a crawl, served to crawlers of others."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from krowlspider.errors import SettingsError
from krowlspider.job.folder import JobFolder
from krowlspider.rpc import urlfrontier
from krowlspider.rpc.grpc_server import GrpcServer
from krowlspider.rpc.options import Options
from krowlspider.rpc.urlfrontier.crawls import Crawls
from krowlspider.views.frontier import SERVED

if TYPE_CHECKING:
    from collections.abc import Callable

    from scrapy.settings import Settings

# The usual port of a URLFrontier.
_PORT = 7071


def serve(jobdir: str, address: str, settings: Settings, say: Callable[[str], None]) -> int:
    """Serve the frontier in a folder, which may be new, until a signal; return the exit code.

    :raises KrowlError: it cannot be opened, or cannot be served at the address
    :raises StoreError: the frontier is damaged
    """
    return asyncio.run(_serve(Path(jobdir), address, settings, say))


async def _serve(jobdir: Path, address: str, settings: Settings, say: Callable[[str], None]) -> int:
    settings = settings.copy()
    settings.set("KROWL_GRPC", address, priority="cmdline")
    try:
        options = Options.of(settings, str(settings["KROWL_CONTROL_TOKEN"]))
        options.check_place()
        server = GrpcServer(options)
        crawls = Crawls(jobdir, settings)
        service = urlfrontier.add(server, crawls)
        try:
            port = await server.start()
            JobFolder(jobdir).write_status({SERVED: f"{options.place[0]}:{port}"})
        except BaseException:
            crawls.close()
            raise
    except SettingsError as error:
        why = str(error).replace("KROWL_GRPC=", "--serve ").replace(":50051", f":{_PORT}")
        raise SettingsError(why) from error
    host = options.place[0]
    listens = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    ticks = service.start(listens)
    await server.set_ready(is_ready=True)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    say(f"URLFrontier of {jobdir} at {listens}; stop it with Ctrl-C")
    signalled = asyncio.create_task(stopped.wait())
    await asyncio.wait([signalled, ticks], return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    await server.set_ready(is_ready=False)
    service.end_streams()
    await server.stop()
    await service.stop()
    if ticks.done() and not ticks.cancelled():
        # It ends only by an error.
        ticks.result()
    return 0
