"""The place in a store that files are uploaded to."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from msgspec import Struct

# Seconds that an end waits for a store that takes nothing, besides the time that the parts in
# flight need on the slowest uplink.
STALLED_AFTER = 60.0
# S3's rules for bucket names, and the underscores and capitals that old buckets have.
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,61}[A-Za-z0-9]")
# The characters that S3 calls safe in keys, without those that some client escapes.
_SEGMENT = re.compile(r"(?!\.\.?$)[A-Za-z0-9._=+-]+")


class Destination(Struct, frozen=True):
    """A place in a bucket: file ``X`` becomes the object ``prefix/X``.

    ``endpoint`` is the URL of the store, None for AWS.
    """

    bucket: str
    prefix: str
    endpoint: str | None = None

    @classmethod
    def parse(cls, url: str, endpoint: str | None = None) -> Destination:
        """Return the place that ``s3://bucket/prefix`` names.

        :raises ValueError: the URL names none; the message reads on from the URL
        """
        scheme, _, rest = url.partition("://")
        bucket, _, prefix = rest.partition("/")
        if scheme != "s3" or not _BUCKET.fullmatch(bucket):
            raise ValueError("is not s3://bucket or s3://bucket/prefix")
        segments = prefix.removesuffix("/").split("/") if prefix else []
        if not all(map(_SEGMENT.fullmatch, segments)):
            raise ValueError("has a prefix that is not of letters, digits and '._=+-' between '/'")
        return cls(bucket, "/".join(segments), endpoint)

    def url(self, name: str = "") -> str:
        """Return the URL of the object of file ``name``; without a name, that of the place."""
        return "/".join(part for part in (f"s3://{self.bucket}", self.prefix, name) if part)


def is_endpoint(url: str) -> bool:
    """Return whether ``url`` is an HTTP(S) URL without user, query and fragment.

    A user and password would appear in the log.
    """
    try:
        parts = urlsplit(url)
        port_fits = parts.port is None or parts.port > 0
    except ValueError:
        return False
    bare = parts.username is None and not parts.query and not parts.fragment
    visible = url.isascii() and url.isprintable() and " " not in url
    return (
        parts.scheme in {"http", "https"}
        and bool(parts.hostname)
        and port_fits
        and bare
        and visible
    )
