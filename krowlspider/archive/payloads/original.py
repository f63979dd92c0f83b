"""The record that a revisit refers to."""

from __future__ import annotations

from msgspec import Struct


class Original(Struct, frozen=True):
    """The response record that holds a payload: the text of its WARC-Target-URI and WARC-Date.

    ``identity`` is its WARC-Record-ID, ``digest`` its labelled payload digest if it is spelt in
    another way than here; ``""`` otherwise.
    """

    url: str
    date: str
    identity: str = ""
    digest: str = ""
