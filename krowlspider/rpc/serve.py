"""The process that serves a crawl by gRPC, beside the crawl: no call takes time of its event loop.

Its first line of standard input is a `ServingPlan`. It ends when its standard input does, as that
of a crawl that was killed. It writes `ProcessMessage`s to its standard output, each a line of JSON.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

import msgspec

from krowlspider.errors import KrowlError
from krowlspider.rpc.api import Api
from krowlspider.rpc.grpc_server import GrpcServer
from krowlspider.rpc.process import ProcessMessage, ServingPlan

# Seconds between two questions whether the crawl may fetch, and between two messages about counts.
_READY = 2.0
_TELL = 1.0
# The niceness at the start, of 1 s of work, and then: of a core that a busy crawl uses too, this
# process has a tenth, and then a seventieth.
_STARTING, _SERVING = 10, 19


async def serve(plan: ServingPlan) -> None:
    """Serve until standard input ends.

    :raises KrowlError: the address cannot be listened at, or gRPC is not there
    """
    server = GrpcServer(plan.options)
    # Loading it takes a while, and needs gRPC, which `GrpcServer` has found.
    from krowlspider.rpc.control import add_to  # noqa: PLC0415
    from krowlspider.rpc.sheets import SheetFile  # noqa: PLC0415

    async with Api(Path(plan.folder), plan.options.token) as api:
        sheets = SheetFile(plan.policies, plan.delay_min) if plan.policies else None
        add_to(server, api, {name: Path(path) for name, path in plan.archive.items()}, sheets)
        port = await server.start()
        yield_core()
        say(ProcessMessage(port=port))
        others = [asyncio.create_task(each) for each in (tell_counts(server), follow(server, api))]
        try:
            await asyncio.to_thread(sys.stdin.buffer.read)
        finally:
            for other in others:
                other.cancel()
            await server.stop()
            say(ProcessMessage(counts=dict(server.counts)))


def yield_core() -> None:
    """Leave the core to the crawl where it needs it: all threads, and those that they start."""
    for thread in Path("/proc/self/task").iterdir():
        # It may have ended meanwhile.
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), _SERVING)


async def follow(server: GrpcServer, api: Api) -> None:
    """Have the health service follow the readiness of the crawl."""
    while True:
        await server.set_ready(is_ready=await api.is_ready())
        await asyncio.sleep(_READY)


async def tell_counts(server: GrpcServer) -> None:
    """Tell the crawl what was counted."""
    told: dict[str, int] = {}
    while True:
        await asyncio.sleep(_TELL)
        if told != server.counts:
            told = dict(server.counts)
            say(ProcessMessage(counts=told))


def say(message: ProcessMessage) -> None:
    try:
        sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The crawl was killed: standard input has ended too.
        pass


def main() -> int:
    # Ctrl-C and a stop of the service reach all processes. The crawl ends this one.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_STARTING)
    # Its errors are said by the exceptions.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    plan = msgspec.json.decode(sys.stdin.buffer.readline(), type=ServingPlan)
    try:
        asyncio.run(serve(plan))
    except KrowlError as error:
        say(ProcessMessage(error=str(error)))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
