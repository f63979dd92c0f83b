"""Compute a digest of the main text of a page, so that a nonce, a date or an ad is no change.

The main text has no navigation, and no links but those inside sentences, unless the page is a list
of links. Numbers, dates and random tokens are left out of it; prices stay. Markup is read as bytes,
without a tree: `krowlspider.urls.page.links` is more exact, and takes several times as long. The
time is linear in the bytes that are read.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import filterfalse

from xxhash import xxh3_64_digest

from krowlspider.urls.encoding import HTML

# Bytes of a body that are read.
READ_MAX = 1024 * 1024
# Bytes of the text of a link from which it may be a headline. Shorter ones are navigation.
_HEADLINE = 25
# A page is a list of links if their headlines have more than this share of its other text.
_LISTED = 0.5

# Elements whose content is no text for a reader; of the first ones it is no markup either.
_RAW = frozenset(b"script style textarea iframe noembed noframes".split())
_UNSEEN = _RAW | frozenset(b"noscript template svg object select button time datalist".split())
# Elements beside the main text.
_BESIDE = frozenset(b"nav aside footer dialog".split())
_LEFT_OUT = re.compile(rb"<(?:!(--)|(" + b"|".join(sorted(_UNSEEN | _BESIDE)) + rb")(?=[\s/>]))")
_LINK = re.compile(rb"<a(?=[\s>])")
_TEXT = re.compile(rb">\s*+([^<\s][^<]*+)")
# What may be between two links of a menu.
_BETWEEN = b" \t\r\n\f|/,-"
_ENTITY = re.compile(rb"&#?\w{1,8}+;?")
_SIGNS = (b"$", b"\xe2\x82\xac", b"\xc2\xa3", b"\xc2\xa5")
_SIGN = b"(?:" + b"|".join(map(re.escape, _SIGNS)) + b")"
# The amounts behind a sign and before one. Each pattern begins with a set of bytes: that is fast.
_AMOUNTS = (
    re.compile(_SIGN + rb"\s?(\d[\d.,]{0,20}+)"),
    re.compile(rb"(\d[\d.,]{0,20}+)\s?" + _SIGN),
)
# A word that begins with a digit, after digits have become 0.
_NUMBER = re.compile(rb" 0[^ ]*+")
# A part of a random token.
_RANDOM = re.compile(rb"0[^ 0]++0")
# Words of dates, in lower case. They are left out wherever they are.
_DATES = frozenset(
    b"""
    january february march april may june july august september october november december
    jan feb mar apr jun jul aug sep sept oct nov dec
    monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thurs fri sat sun
    am pm utc gmt est edt pst pdt cet cest ago today yesterday just now
    second seconds sec secs minute minutes min mins hour hours day days week weeks month months
    year years
    januar februar m\xc3\xa4rz mai juni juli oktober dezember okt dez
    montag dienstag mittwoch donnerstag freitag samstag sonntag
    uhr heute gestern vor sekunden minuten stunde stunden tag tagen woche wochen
    janvier f\xc3\xa9vrier mars avril juin juillet ao\xc3\xbbt septembre octobre novembre
    d\xc3\xa9cembre lundi mardi mercredi jeudi vendredi samedi dimanche heure heures jour jours
    enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
    lunes martes mi\xc3\xa9rcoles jueves viernes s\xc3\xa1bado domingo horas minutos
    """.split()
)
# Digits become 0. Other ASCII becomes a blank, but for letters and what holds tokens together.
_FOLDED = bytes(
    ord("0")
    if byte in b"0123456789"
    else byte
    if byte > 127 or chr(byte).isalnum() or byte in b"-_"
    else 32
    for byte in range(256)
)


def text_digest(body: bytes, media_type: str) -> bytes:
    """Return the digest of the main text of a body, 8 bytes; empty for one without words, and for
    a type that is no text.

    ``body`` is without content codings. ``media_type`` is in lower case without parameters. No
    bytes raise an error.
    """
    if media_type in HTML:
        words = _words_of_html(body)
    elif _is_text(media_type):
        words = _words(_readable(body))
    else:
        return b""
    return xxh3_64_digest(b" ".join(words)) if words else b""


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type.endswith(("xml", "json"))


def _readable(body: bytes) -> bytes:
    """Return a body in lower case, cut to READ_MAX. Most of UTF-16 becomes ASCII."""
    return body[:READ_MAX].replace(b"\0", b"").lower()


def _words_of_html(body: bytes) -> list[bytes]:
    page = _without_surroundings(_readable(body))
    main, headlines = _without_links(page)
    text = b" ".join(_TEXT.findall(main))
    if sum(map(len, headlines)) > _LISTED * len(text):
        text = b" ".join((text, *headlines))
    return _words(text) or _words(b" ".join(_TEXT.findall(page)))


def _without_surroundings(page: bytes) -> bytes:
    """Return HTML without comments, and without elements that are unseen or beside the main text.

    An element without end is no such element, and later ones of its name neither: this keeps the
    time linear.
    """
    kept, at, start = [b">"], 0, 0
    endless = set()
    while (found := _LEFT_OUT.search(page, start)) is not None:
        start = found.end()
        name = found[1] or found[2]
        if name in endless:
            continue
        end = _end(page, name, start)
        if end < 0:
            endless.add(name)
        else:
            kept.append(page[at : found.start()])
            at = start = end
    kept.append(page[at:])
    # Of the end tag ">" is left, which begins text.
    return b"".join(kept)


def _end(page: bytes, name: bytes, at: int) -> int:
    """Return where the ">" of an end tag may be; -1 if the element, or comment, has no end."""
    if name == b"--":
        end = page.find(b"-->", at)
        return end if end < 0 else end + 2
    if name in _RAW:
        end = page.find(b"</" + name, at)
        return end if end < 0 else end + 2 + len(name)
    depth = 1
    for found in _tags(name).finditer(page, at):
        depth += -1 if found[1] else 1
        if not depth:
            return found.end()
    return -1


@cache
def _tags(name: bytes) -> re.Pattern[bytes]:
    return re.compile(rb"<(/?)" + name + rb"(?=[\s/>])")


def _without_links(page: bytes) -> tuple[bytes, list[bytes]]:
    """Return HTML without its links, but for those inside sentences, and the headlines of them."""
    first, *parts = _LINK.split(page)
    kept, headlines = [first], []
    is_inside = not _ends_with_tag(first)
    for part in parts:
        link, end, rest = part.partition(b"</a>")
        if end and not is_inside:
            text = b" ".join(_TEXT.findall(link))
            if len(text) >= _HEADLINE:
                headlines.append(text)
        else:
            kept += b"<a", link
        kept += b"<a>", rest
        if rest.strip(_BETWEEN):
            is_inside = not _ends_with_tag(rest)
    return b"".join(kept), headlines


def _ends_with_tag(page: bytes) -> bool:
    """Return whether a tag, and no text, is in front of what follows."""
    return page[-64:].rstrip()[-1:] in {b">", b""}


def _words(text: bytes) -> list[bytes]:
    """Return the words of a text in lower case that are worth comparing, and then its prices."""
    if b"&" in text:
        text = text.replace(b"&euro;", _SIGNS[1]).replace(b"&pound;", _SIGNS[2])
        text = _ENTITY.sub(b" ", text)
    prices: list[bytes] = []
    if any(sign in text for sign in _SIGNS):
        prices = [price for amount in _AMOUNTS for price in amount.findall(text)]
    text = b" " + text.translate(_FOLDED)
    for zeros in (b"00000000", b"0000", b"00", b"00"):
        text = text.replace(zeros, b"0")
    text = _NUMBER.sub(b"", text)
    words = text.split()
    left_out = _DATES
    if _RANDOM.search(text):
        left_out |= {word for word in set(words) if word.count(b"0") > 1}
    return [*filterfalse(left_out.__contains__, words), *prices]
