"""Other URLs for the URLs of a site, as its sheet says. They change what is fetched."""

from __future__ import annotations

import re
from fnmatch import translate
from functools import lru_cache
from typing import TYPE_CHECKING

from krowlspider.urls.canonical import normalise

if TYPE_CHECKING:
    from krowlspider.policies.keys import Policy

# The names of purell's FlagRemoveDirectoryIndex, and PHP's.
_INDEX = re.compile(r"/(?:index|default)\.(?:html?|php|asp|aspx|jsp|cgi|pl|shtml)$", re.IGNORECASE)
_SLASHES = re.compile(r"/{2,}")


def rewritten(url: str, policy: Policy) -> str:
    """Return the URL that is fetched in place of a normalised one; it is normalised too."""
    scheme, _, rest = url.partition("://")
    place, mark, query = rest.partition("?")
    host, _, path = place.partition("/")
    path = f"/{path}"
    if policy.www == "drop" and host.startswith("www.") and "." in host[4:]:
        host = host[4:]
    if policy.duplicate_slashes == "drop" and "//" in path:
        path = _SLASHES.sub("/", path)
    if policy.index_pages == "drop":
        path = _INDEX.sub("/", path)
    if policy.trailing_slash == "drop" and len(path) > 1:
        path = path.rstrip("/") or "/"
    elif policy.trailing_slash == "add" and "." not in path.rpartition("/")[2]:
        path = path if path.endswith("/") else f"{path}/"
    if mark and (policy.parameters or policy.sort_query):
        parts = query.split("&")
        if policy.parameters:
            matches = _names(policy.parameters).fullmatch
            parts = [part for part in parts if not matches(part.partition("=")[0])]
        query = "&".join(sorted(parts) if policy.sort_query else parts)
        mark = "?" if query else ""
    found = f"{scheme}://{host}{path}{mark}{query}"
    # What is left may be no normal form: "//" at the start of a path is one, "." as a name is not.
    return found if found == url else normalise(found) or url


@lru_cache(maxsize=1024)
def _names(parameters: tuple[str, ...]) -> re.Pattern[str]:
    # Only "*" has a meaning: PHP's names have brackets.
    plain = (re.sub(r"[\[?]", r"[\g<0>]", name) for name in parameters)
    return re.compile("|".join(map(translate, plain)))
