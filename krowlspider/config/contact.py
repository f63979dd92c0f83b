"""Recognise contacts through which no site owner can reach anybody."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

# The reserved names of RFC 2606.
_RESERVED = re.compile(r"(^|\.)(example(\.(com|net|org))?|invalid|localhost|test)\.?$")
# What stands for a name in documentation.
_NOBODY = re.compile(r"(you|me|your\W?\w*|my\W?\w*|(user|some)?(name|body|one)|user|e?mail)")
# Words and domains of templates. Their domains exist, so only both together stand for nobody.
_TEMPLATE = re.compile(
    r"test@test\.(com|net|org)|foo@bar\.(com|net|org)"
    r"|(me|you|(your|my)?[._-]?(name|e?mail)|yours?|(user|some)(name|one|body)?)"
    r"@((domain|company|e?mail-?address|email|organi[sz]ation|site|website|host)"
    r"\.(com|net|org|tld)|example\.[a-z]{2,})"
)
_DOMAIN = re.compile(r"(^|\.)(your|my)-?(company|domain|host|org(ani[sz]ation)?|site|website)\.")


def _parts(contact: str) -> tuple[str, str]:
    """Return the local part of an e-mail address, empty for a URL, and the host; in lower case."""
    if "://" in contact:
        return "", (urlsplit(contact).hostname or "").lower()
    local, _, host = contact.lower().rpartition("@")
    return local, host


def is_placeholder(contact: str) -> bool:
    """Return whether an e-mail address or URL is one that documentation shows in place of one's
    own."""
    local, host = _parts(contact)
    if _DOMAIN.search(host) or _TEMPLATE.fullmatch(f"{local}@{host}"):
        return True
    return bool(_RESERVED.search(host) and _NOBODY.fullmatch(local))


def is_unreachable(contact: str) -> bool:
    """Return whether an e-mail address or URL is at a reserved domain, where nobody reads it."""
    return _RESERVED.search(_parts(contact)[1]) is not None
