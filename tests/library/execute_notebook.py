"""Execute a notebook with nbclient, and print the texts that its cells print, as JSON.

``python execute_notebook.py NOTEBOOK NUMBER``: the kernel is interrupted when the code cell of this
number has printed a line. It needs tests/notebook-requirements.txt.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import nbformat
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

# Seconds for a cell; a hang is a failure.
_TIMEOUT = 90


class Kernel(AsyncKernelManager):
    """A kernel of this Python: no kernel needs to be installed by its name."""

    def format_kernel_cmd(self, extra_arguments: list[str] | None = None) -> list[str]:
        return [sys.executable, "-m", "ipykernel_launcher", "-f", self.connection_file]


def printed(cell: Any) -> str:
    """Return what a cell has printed, its value, and the name of its error."""
    found = ""
    for output in cell.outputs:
        found += output.get("text", "")
        found += output.get("data", {}).get("text/plain", "")
        found += output.get("ename", "")
    return found


async def interrupt(client: NotebookClient, cell: Any) -> None:
    while "\n" not in printed(cell):  # noqa: ASYNC110 - nothing else tells
        await asyncio.sleep(0.05)
    await client.km.interrupt_kernel()


async def main(path: str, interrupted: int) -> None:
    notebook = nbformat.read(path, 4)
    client = NotebookClient(notebook, kernel_manager_class=Kernel, timeout=_TIMEOUT)
    texts = []
    async with client.async_setup_kernel():
        for index, cell in enumerate(notebook.cells):
            if cell.cell_type != "code":
                continue
            pressing = None
            if len(texts) == interrupted:
                pressing = asyncio.create_task(interrupt(client, cell))
            try:
                await client.async_execute_cell(cell, index)
            except CellExecutionError:
                if pressing is None:
                    raise
            if pressing is not None:
                await pressing
            texts.append(printed(cell))
    print(json.dumps(texts))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2])))
