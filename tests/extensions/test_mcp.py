"""The control API as tools of MCP, of a crawl under way."""

from __future__ import annotations

import json
import socket
import subprocess
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

from krowlspider.job.monitoring.access import CONTROL_TOKEN
from tests.extensions.test_live_page import api, ask, crawling
from tests.support.crawling import ROOT
from tests.support.venvs import Venv

if TYPE_CHECKING:
    from pathlib import Path
    from types import SimpleNamespace

NEWEST, OLDER = "2026-07-28", "2025-11-25"
META = "io.modelcontextprotocol/"
READING = ["status", "hosts", "host", "pages", "nodes", "explain"]
WRITING = ["pause", "resume", "block", "unblock", "delay", "add"]
# Calls with a bad argument, and what the answer has.
BAD_ARGUMENTS: list[tuple[str, dict[str, Any], str]] = [
    ("block", {}, "block needs name: "),
    ("block", {"name": 5}, "name is not string"),
    ("add", {"url": "http://a.test/", "priority": "x"}, "priority is not integer"),
    ("hosts", {"sorted": "x"}, "hosts takes sort, limit, state, not 'sorted'"),
    ("hosts", {"sort": "names"}, "sorted by one of queued"),
    ("hosts", {"limit": 201}, "limit=201: give 1 to 200"),
    ("host", {"name": "x.test"}, "no host 'x.test'"),
    ("explain", {}, "explain needs url"),
    ("explain", {"url": "http://a.test/\ud800"}, "url is no text, it has half of a character"),
    ("host", {"name": "\udfff"}, "name is no text"),
    ("pause", {"host": ""}, "host is empty: leave it out to pause the crawl"),
    ("resume", {"host": ""}, "host is empty: leave it out to resume the crawl"),
]
# Messages, with the status and the code of the answer.
BAD_MESSAGES: list[tuple[object, int, int]] = [
    (b"{", 400, -32700),
    (b"[" * 16_000, 400, -32700),
    (b"[]", 400, -32600),
    ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, 400, -32600),
    ({"jsonrpc": "2.0", "id": None, "method": "ping"}, 400, -32600),
    ({"jsonrpc": "2.0", "id": True, "method": "ping"}, 400, -32600),
    ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}, 400, -32600),
    ({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}, 200, -32601),
]


def token_of(crawl: SimpleNamespace) -> str:
    return (crawl.jobdir / CONTROL_TOKEN).read_text().strip()


def posted(
    crawl: SimpleNamespace, message: object, token: str = "", **headers: str
) -> tuple[int, Any]:
    """Post a message; return the status, and the JSON of the answer or its text."""
    if token:
        headers["Authorization"] = f"Bearer {token}"
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    code, answer, text = ask(crawl, "/mcp", body, **headers)
    is_json = (answer["Content-Type"] or "").startswith("application/json")
    return code, json.loads(text) if is_json else text.decode()


def asked(method: str, /, **params: Any) -> dict[str, Any]:
    """Return a request of the newest revision, whose headers `modern` makes."""
    meta = {f"{META}protocolVersion": NEWEST, f"{META}clientCapabilities": {}}
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": {"_meta": meta, **params}}


def modern(
    crawl: SimpleNamespace, message: dict[str, Any], token: str = "", **changed: str
) -> tuple[int, Any]:
    headers = {"MCP-Protocol-Version": NEWEST, "Mcp-Method": message["method"]}
    if isinstance(name := message["params"].get("name"), str):
        headers["Mcp-Name"] = name
    headers |= {name.replace("_", "-"): value for name, value in changed.items()}
    return posted(crawl, message, token, **{k: v for k, v in headers.items() if v})


def called(
    crawl: SimpleNamespace, name: str, token: str = "", /, **fields: Any
) -> tuple[str, bool]:
    """Call a tool; return its text, and whether it failed."""
    code, found = modern(crawl, asked("tools/call", name=name, arguments=fields), token)
    assert (code, found["id"], found["result"]["resultType"]) == (200, 7, "complete")
    ((part,), is_error) = found["result"]["content"], found["result"]["isError"]
    assert part["type"] == "text"
    return part["text"], is_error


def check_that_tools_are_those_of_the_token(crawl: SimpleNamespace) -> None:
    for token, names in (("", READING), (token_of(crawl), READING + WRITING)):
        code, found = modern(crawl, asked("tools/list"), token)
        tools = {tool["name"]: tool for tool in found["result"]["tools"]}
        assert (code, list(tools)) == (200, names)
        assert found["result"]["cacheScope"] == "private"
        reads = [name for name in tools if tools[name]["annotations"]["readOnlyHint"]]
        assert reads == READING
    schema = tools["delay"]["inputSchema"]
    assert schema["required"] == ["host", "seconds"]
    assert schema["properties"]["seconds"]["type"] == ["number", "null"]
    assert schema["additionalProperties"] is False


def check_the_reading_tools(crawl: SimpleNamespace) -> None:
    own = crawl.web.url("a.test")
    text, is_error = called(crawl, "explain", url=f"{own}secret")
    assert not is_error
    assert json.loads(text)["robots"] == "line 2: Disallow: /secret"
    text, _ = called(crawl, "hosts", sort="queued", limit=5)
    assert [row["host"] for row in json.loads(text)] == [urlsplit(own).netloc]
    assert json.loads(called(crawl, "host", name=own)[0])["robots"][0]["status"] == 200
    assert json.loads(called(crawl, "status")[0])["folder"] == str(crawl.jobdir)
    assert own in {row["url"] for row in json.loads(called(crawl, "pages")[0])}
    assert called(crawl, "nodes") == ("[]", False)


def check_the_orders(crawl: SimpleNamespace) -> None:
    own, token = crawl.web.url("a.test"), token_of(crawl)
    name = urlsplit(own).netloc

    def order(what: str, /, **fields: Any) -> str:
        text, is_error = called(crawl, what, token, **fields)
        assert not is_error, text
        message: str = json.loads(text)["message"]
        return message

    assert order("block", name=own).startswith(f"{name} is blocked")
    found = api(crawl, f"explain?url={own}7")
    assert f"It is blocked by {name} (MCP from 127.0.0.1, 20" in found["why"]
    assert "goes on" in order("unblock", name=own)
    assert "waits 9 s or more" in order("delay", host=own, seconds=9)
    assert " has the delay of the settings" in order("delay", host=own, seconds=None)
    assert order("pause").startswith("paused")
    assert api(crawl, "status")["paused"].startswith("paused by a person")
    assert order("resume") == "it goes on"
    assert order("add", url=f"{own}by-mcp", priority=9) == "queued"
    assert api(crawl, f"explain?url={own}by-mcp")["state"] in {"queued", "in flight", "dropped"}


def check_that_an_order_needs_the_token(crawl: SimpleNamespace) -> None:
    text, is_error = called(crawl, "block", name="a.test")
    assert is_error
    assert "give the token of the crawl" in text
    assert "It is blocked" not in api(crawl, f"explain?url={crawl.web.url('a.test')}7")["why"]
    for method in ("tools/list", "server/discover"):
        code, found = modern(crawl, asked(method), "wrong")
        assert (code, found["id"]) == (401, 7)
        assert found["error"]["message"].startswith("give the token of the crawl")
    assert posted(crawl, {"jsonrpc": "2.0", "method": "notifications/x"}, "wrong")[0] == 401


def check_that_a_bad_argument_is_named(crawl: SimpleNamespace) -> None:
    for name, fields, said in BAD_ARGUMENTS:
        text, is_error = called(crawl, name, token_of(crawl), **fields)
        assert is_error
        assert said in text


def check_that_other_orders_are_no_tools(crawl: SimpleNamespace) -> None:
    """What no order takes back is for a person."""
    for name in ("forget", "reload", "set", "snapshot", "import", "../metrics", 5, None, [], {}):
        code, found = modern(crawl, asked("tools/call", name=name), token_of(crawl))
        assert (code, found["error"]["code"]) in {(400, -32602), (400, -32020)}


def check_the_codes_of_bad_messages(crawl: SimpleNamespace) -> None:
    for message, status, code in BAD_MESSAGES:
        found = posted(crawl, message)
        assert (found[0], found[1]["error"]["code"]) == (status, code)


def check_the_revisions(crawl: SimpleNamespace) -> None:
    code, found = modern(crawl, asked("server/discover"))
    assert code == 200
    assert found["result"]["supportedVersions"][:2] == [NEWEST, OLDER]
    assert found["result"]["_meta"][f"{META}serverInfo"]["name"] == "krowlspider"
    for known, agreed in ((OLDER, OLDER), ("2025-06-18", "2025-06-18"), ("1999-01-01", OLDER)):
        params = {"protocolVersion": known, "capabilities": {}}
        asking = {"jsonrpc": "2.0", "id": "a", "method": "initialize", "params": params}
        code, found = posted(crawl, asking)
        assert (code, found["id"]) == (200, "a")
        assert found["result"]["protocolVersion"] == agreed
    assert posted(crawl, {"jsonrpc": "2.0", "method": "notifications/initialized"}) == (202, "")
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"MCP-Protocol-Version": OLDER}
    assert posted(crawl, ping, **headers)[1]["result"]["resultType"] == "complete"


def check_the_headers(crawl: SimpleNamespace) -> None:
    message = asked("tools/call", name="status")
    for changed in ({"Mcp_Name": "pause"}, {"Mcp_Name": ""}, {"Mcp_Method": "tools/list"}):
        code, found = modern(crawl, message, **changed)
        assert (code, found["error"]["code"], found["id"]) == (400, -32020, 7)
    assert modern(crawl, message, Mcp_Name="=?base64?c3RhdHVz?=")[0] == 200
    assert modern(crawl, message, Mcp_Name="=?base64?c3Rh?=")[0] == 400
    # Headers that name another revision, and a revision that nobody knows.
    assert modern(crawl, message, MCP_Protocol_Version=OLDER)[1]["error"]["code"] == -32020
    message["params"]["_meta"][f"{META}protocolVersion"] = "2999-01-01"
    code, found = modern(crawl, message, MCP_Protocol_Version="2999-01-01")
    assert (code, found["error"]["code"]) == (400, -32022)
    assert found["error"]["data"] == {
        "supported": [NEWEST, OLDER, "2025-06-18"],
        "requested": "2999-01-01",
    }
    del message["params"]["_meta"]
    assert modern(crawl, message)[1]["error"]["code"] == -32602
    code, found = modern(crawl, asked("ping"))
    assert (code, found["error"]["code"]) == (404, -32601)


def check_what_is_refused(crawl: SimpleNamespace) -> None:
    message = asked("tools/list")
    assert modern(crawl, message, Origin="http://evil.example")[0] == 403
    assert modern(crawl, message, Origin=crawl.url)[0] == 200
    assert modern(crawl, message, Host="rebound.example:9410")[0] == 421
    assert posted(crawl, b" " * 16_385) == (413, {"error": "the body is longer than 16,384 bytes"})
    assert modern(crawl, message, Content_Encoding="gzip")[0] == 415
    code, headers, _ = ask(crawl, "/mcp")
    assert (code, headers["Allow"]) == (405, "POST")


def check_that_a_flood_keeps_nobody_out(crawl: SimpleNamespace) -> None:
    place = urlsplit(crawl.url)
    silent = [socket.create_connection((place.hostname, place.port)) for _ in range(30)]
    for client in silent:
        client.sendall(b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
    assert modern(crawl, asked("tools/list"))[0] == 200
    for client in silent:
        client.close()


def test_tools_watch_and_steer_a_crawl(tmp_path: Path) -> None:
    with crawling(tmp_path, KROWL_CONTROL_MCP=1) as crawl:
        check_that_tools_are_those_of_the_token(crawl)
        check_the_reading_tools(crawl)
        check_that_an_order_needs_the_token(crawl)
        check_the_orders(crawl)
        check_that_a_bad_argument_is_named(crawl)
        check_that_other_orders_are_no_tools(crawl)
        check_the_codes_of_bad_messages(crawl)
        check_the_revisions(crawl)
        check_the_headers(crawl)
        check_what_is_refused(crawl)
        check_that_a_flood_keeps_nobody_out(crawl)


def test_it_is_off_by_default(tmp_path: Path) -> None:
    with crawling(tmp_path) as crawl:
        assert posted(crawl, asked("tools/list"))[0] == 404


@pytest.mark.slow
def test_the_official_client_steers_a_crawl(tmp_path: Path) -> None:
    with crawling(tmp_path, KROWL_CONTROL_MCP=1) as crawl:
        check_the_client(crawl, "auto", NEWEST)
        check_the_client(crawl, "legacy", OLDER)
        # A token that is wrong.
        done = client(crawl, "auto", "wrong")
        assert done.returncode
        assert "give the token of the crawl" in done.stderr


def client(
    crawl: SimpleNamespace, mode: str, token: str, *calls: object
) -> subprocess.CompletedProcess[str]:
    """Run the client with calls: the name of a tool, then its arguments."""
    words = [each if isinstance(each, str) else json.dumps(each) for each in calls]
    program = [Venv("mcp").tool("python"), ROOT / "tests" / "support" / "mcp_client.py"]
    command = [*program, f"{crawl.url}/mcp", mode, token, *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def check_the_client(crawl: SimpleNamespace, mode: str, version: str) -> None:
    own = crawl.web.url("a.test")

    def used(token: str, *calls: object) -> dict[str, Any]:
        done = client(crawl, mode, token, *calls)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    read = ["status", {}, "explain", {"url": f"{own}secret"}, "hosts", {}, "block", {"name": own}]
    found = used("", *read)
    assert (found["version"], found["tools"], found["writing"]) == (version, READING, [])
    assert [failed for _, failed in found["calls"]] == [False, False, False, True]
    given = ["block", {"name": own}, "unblock", {"name": own}, "pause", {}, "resume", {}]
    found = used(token_of(crawl), *given, "add", {"url": f"{own}{mode}"}, "add", {})
    assert found["writing"] == WRITING
    *done, bad = found["calls"]
    assert all(json.loads(text)["done"] and not failed for text, failed in done)
    assert bad == ["add needs url: a URL, queued as a seed", True]
