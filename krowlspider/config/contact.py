"""Check contacts, and recognise those through which no site owner can reach anybody.

``make crawl`` runs this before anything is installed, to look at SEEDS and CONTACT: it needs a
Python of 3.11 or later, and its standard library alone.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from urllib.parse import urlsplit

from krowlspider.urls.seeds_given import is_file_name, way_out

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


def faults(seeds: str, contact: str) -> list[str]:
    """Return a line for each that the crawl would refuse at its start."""
    found = [_seeds_fault(seeds)]
    if fault := contact_fault(contact):
        found.append(f"CONTACT={contact!r} {fault}")
    return [fault for fault in found if fault]


def _seeds_fault(given: str) -> str:
    exists = os.path.exists(given)  # noqa: PTH110 - Path.exists() raises for a long list
    if not (exists or is_file_name(given)):
        return ""
    # It may be a pipe, of which nothing may be read here.
    if not exists:
        return f"SEEDS={given!r}: there is no such file{way_out(given)}"
    if Path(given).is_dir():
        return f"SEEDS={given!r} is a folder: give a file"
    return "" if os.access(given, os.R_OK) else f"SEEDS={given!r} cannot be read"


def main() -> int:
    """Print the faults of what the environment has, and return the exit code."""
    found = faults(os.environ["SEEDS"], os.environ["CONTACT"])
    for fault in found:
        print(f"make crawl: {fault}", file=sys.stderr)
    return 2 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
