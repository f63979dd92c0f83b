"""What the official client of MCP makes of a crawl, as a line of JSON: by the venv of its test.

``python mcp_client.py URL MODE TOKEN [TOOL ARGUMENTS]...``, with arguments in JSON. A token of ""
is none. The line has the revision, the tools, and for each call its text and whether it failed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client


async def used(url: str, mode: str, token: str, *calls: str) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with httpx2.AsyncClient(headers=headers) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, mode=mode) as client:
            tools = (await client.list_tools()).tools
            made = []
            for name, fields in zip(calls[::2], calls[1::2], strict=True):
                found = await client.call_tool(name, json.loads(fields))
                made.append([found.content[0].text, found.is_error])
            return {
                "version": client.protocol_version,
                "tools": [tool.name for tool in tools],
                "writing": [tool.name for tool in tools if not tool.annotations.read_only_hint],
                "calls": made,
            }


if __name__ == "__main__":
    try:
        print(json.dumps(asyncio.run(used(*sys.argv[1:]))))
    except BaseExceptionGroup as group:
        sys.exit(repr(group.exceptions))
