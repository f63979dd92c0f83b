"""Check contacts, and recognise those through which no site owner can reach anybody.

The Makefile runs this before anything is installed: it needs the standard library alone.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

HEADER = r"[ -~]*[!-~][ -~]*"
NO_HEADER = "must be plain printable ASCII: it is sent in a header"
# Enough to find typing errors; whether anybody reads the address cannot be checked here.
_EMAIL = re.compile(r"[^@\s()<>,;:\"\\]+@[^@\s()<>,;:\"\\.]+(\.[^@\s()<>,;:\"\\.]+)+")
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


def contact_fault(contact: object) -> str | None:
    """Return why site owners cannot be given a contact, to be read after its value; None if they
    can."""
    if not (isinstance(contact, str) and re.fullmatch(HEADER, contact)):
        return NO_HEADER
    if not (_EMAIL.fullmatch(contact) or _is_web_url(contact)):
        return "is neither an e-mail address nor an http(s) URL"
    if is_placeholder(contact):
        return "is a placeholder: give an address or URL of yours, where site owners reach you"
    return None


def _is_web_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname) and " " not in text


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
