"""``scrapy identity``: make the key that signs requests, and its directory."""

from __future__ import annotations

import json
import os
import sys
import time
from base64 import urlsafe_b64decode
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scrapy.exceptions import UsageError

from krowlspider.errors import KrowlError
from krowlspider.fetch import signing
from krowlspider.fetch.signing import SigningKey
from krowlspider.programs.program import FOUND_WRONG, STDIO, Program, refuse_options, written

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

# Public vectors of the RFCs, the draft and cloudflare/web-bot-auth, each with its source.
VECTORS = Path(signing.__file__).with_name("web_bot_auth.json")
_DAYS_MAX = 3650


class Command(Program):
    def syntax(self) -> str:
        return "[KEYFILE] [--new FILE] [--check] [options]"

    def short_desc(self) -> str:
        return "Make the key that signs requests, and print its directory"

    def long_desc(self) -> str:
        return (
            f"{self.short_desc()} (Web Bot Auth, docs/identity.md). Without KEYFILE it takes that"
            " of KROWL_SIGN_KEY. Exit code 1: a vector is wrong; 2: bad input"
        )

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--new", metavar="FILE", help="make a key in a new file that only its owner can read"
        )
        parser.add_argument(
            "--check", action="store_true", help="check the signatures by the public vectors"
        )
        parser.add_argument(
            "--directory", metavar="FILE", help="write the directory to FILE (- is standard output)"
        )
        parser.add_argument(
            "--also", metavar="FILE", action="append", default=[],
            help="a further key of the directory, such as the next one",
        )  # fmt: skip
        parser.add_argument(
            "--days", metavar="N", type=int, default=30,
            help="days until the signature of the directory expires (30)",
        )  # fmt: skip

    def act(self, args: list[str], opts: argparse.Namespace) -> None:
        refuse_options("identity", args)
        if opts.check:
            if args or opts.new or opts.directory or opts.also:
                raise UsageError(
                    "--check checks the public vectors alone: give it without the rest"
                )
            self._check()
            return
        if len(args) > 1 or (args and opts.new):
            raise UsageError("give one key file, or --new FILE")
        if not 1 <= opts.days <= _DAYS_MAX:
            raise KrowlError(f"--days {opts.days}: give 1 to {_DAYS_MAX}")
        if opts.new:
            _check_paths((opts.new,), (), opts.directory)
            _make_key(opts.new)
        path = opts.new or (args[0] if args else self.settings["KROWL_SIGN_KEY"])
        if not path:
            raise UsageError("give a key file, --new FILE to make one, or --check")
        keys = [_read(each) for each in (path, *opts.also)]
        _check_paths((path, *opts.also), keys, opts.directory)
        body = signing.directory_of(keys)
        if opts.directory:
            with written(opts.directory) as file:
                # A line break would be part of what is signed.
                file.write(body.decode())
            if opts.directory == STDIO:
                return
        self.say(self._explanation(path, keys, body, opts.days))

    def _explanation(self, path: str, keys: list[SigningKey], body: bytes, days: int) -> str:
        agent = self.settings["KROWL_SIGN_AGENT"] or "https://bot.example.org"
        try:
            origin = signing.agent_origin(agent)
        except ValueError as error:
            raise KrowlError(f"KROWL_SIGN_AGENT={agent!r} {error}") from error
        created = int(time.time())
        expires = int(min(created + days * 86_400, *(key.expires for key in keys)))
        authority = origin.removeprefix("https://").removesuffix(":443")
        until = datetime.fromtimestamp(expires, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        headers = signing.directory_headers(keys, body, authority, created, expires)
        return "\n".join(
            [
                f"key      {path}",
                f"keyid    {keys[0].keyid}",
                "",
                f"Serve this at {origin}{signing.DIRECTORY_PATH}, without a line break at its end:",
                "",
                body.decode(),
                "",
                f"with status 200 and these headers, whose signature expires at {until}:",
                "",
                *(f"{name}: {value}" for name, value in headers),
                "Cache-Control: max-age=86400",
                "",
                f"Then crawl with -s KROWL_SIGN_KEY={path} -s KROWL_SIGN_AGENT={origin}",
            ]
        )

    def _check(self) -> None:
        wrong = 0
        for source, is_right in check_vectors(json.loads(VECTORS.read_bytes())):
            self.say(f"{'ok   ' if is_right else 'WRONG'} {source}")
            wrong += not is_right
        if wrong:
            self.complain(f"{wrong} of the public vectors are wrong", FOUND_WRONG)


def check_vectors(vectors: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return each vector's source, and whether what is computed here is equal to it."""
    key = _key_of(vectors["key"]["d"])
    found = [
        (each["source"], _key_of(each["d"]).keyid == each["thumbprint"])
        for each in vectors["thumbprints"]
    ]
    for each in vectors["signatures"]:
        components = [(name, value) for name, value in each["components"]]
        params = signing.parameters(each["parameters"])
        made = signing.signed(key, each["label"], components, params)
        found.append((each["source"], made == (each["signature_input"], each["signature"])))
    directory = vectors["directory"]
    is_right = signing.directory_of([key]).decode() == directory["body"]
    found.append((f"{directory['source']}, body", is_right))
    return found


def _key_of(encoded: str) -> SigningKey:
    return SigningKey(Ed25519PrivateKey.from_private_bytes(urlsafe_b64decode(encoded + "=")))


def _read(path: str) -> SigningKey:
    try:
        return signing.read_key(path, time.time())
    except ValueError as error:
        raise KrowlError(f"{path} {error}") from error


def _check_paths(paths: Sequence[str], keys: Sequence[SigningKey], directory: str | None) -> None:
    """Refuse a directory that would replace a private key, and a key that is given twice.

    :raises KrowlError: with the name of the file
    """
    for path in paths:
        if directory and Path(directory).resolve() == Path(path).resolve():
            raise KrowlError(f"--directory {directory} is the file of a private key: give another")
    first: dict[str, str] = {}
    for path, key in zip(paths, keys, strict=False):
        if key.keyid in first:
            raise KrowlError(f"--also {path} has the key of {first[key.keyid]}: give each key once")
        first[key.keyid] = path


def _make_key(path: str) -> None:
    """Write a new key to a file that does not exist yet.

    :raises KrowlError: there is such a file: its key may be in use
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(SigningKey.new().pem())
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError as error:
        raise KrowlError(f"{path} exists: give a new file, or move that one away") from error
    print(f"krowlspider: a new key is in {path}. Keep it secret, and keep a copy", file=sys.stderr)
