"""A headless Chromium, driven by its DevTools protocol."""

from __future__ import annotations

import base64
import json
import subprocess
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp

from tests.support.debian import program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

# Nothing but loopback is reached; the names of tests lead there too.
_FLAGS = [
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--no-proxy-server", "--disable-background-networking", "--disable-quic"),
    "--host-resolver-rules=MAP *.test 127.0.0.1, MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--remote-debugging-port=0",
]


class Tab:
    """A page in the browser; ``faults`` are its errors and what its policy has refused.

    ``requested`` has the URLs that it has requested, once the domain Network is enabled.
    """

    def __init__(self, socket: aiohttp.ClientWebSocketResponse):
        self._socket = socket
        self._number = 0
        self.faults: list[str] = []
        self.requested: list[str] = []

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            found = json.loads(await self._socket.receive_str())
            if found.get("id") == self._number:
                assert "error" not in found, found
                result: dict[str, Any] = found["result"]
                return result
            if found.get("method") in {"Log.entryAdded", "Runtime.exceptionThrown"}:
                self.faults.append(json.dumps(found["params"]))
            elif found.get("method") == "Network.requestWillBeSent":
                self.requested.append(found["params"]["request"]["url"])

    async def run(self, script: str) -> Any:
        """Return what a script, or the promise that it makes, comes to."""
        found = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def wait(self, condition: str) -> None:
        """Return once a condition holds on the page.

        :raises AssertionError: it does not within 20 s
        """
        holds = f"""new Promise((resolve) => {{
            const end = Date.now() + 20000;
            const look = () => {{
                if ({condition}) resolve(true);
                else if (Date.now() > end) resolve(false);
                else setTimeout(look, 50);
            }};
            look();
        }})"""
        assert await self.run(holds), (condition, self.faults)

    async def picture(self, path: Path, width: int, height: int, *, is_dark: bool = False) -> None:
        """Write a screenshot as PNG."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        await self.call("Emulation.setDeviceMetricsOverride", **size)
        path.write_bytes(await self.png())

    async def png(self) -> bytes:
        """Return a screenshot of the window."""
        taken = await self.call("Page.captureScreenshot", format="png", optimizeForSpeed=True)
        return base64.b64decode(taken["data"])


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[Tab]:
    """Open a URL in a browser whose profile is in ``folder``."""
    command = [str(program("chromium")), *_FLAGS, f"--user-data-dir={folder}", "about:blank"]
    browser = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        assert browser.stderr is not None
        while "DevTools listening on " not in (line := browser.stderr.readline().decode()):
            assert line, "the browser has ended"
        port = line.split(":")[2].split("/")[0]
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                tabs = [each for each in await answer.json() if each["type"] == "page"]
            async with session.ws_connect(
                tabs[0]["webSocketDebuggerUrl"], max_msg_size=0
            ) as socket:
                tab = Tab(socket)
                for domain in ("Page", "Runtime", "Log"):
                    await tab.call(f"{domain}.enable")
                await tab.call("Page.navigate", url=url)
                yield tab
    finally:
        browser.kill()
        browser.communicate()
