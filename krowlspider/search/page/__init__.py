"""The page of search, for browsers: HTML without a script."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from krowlspider.errors import counted
from krowlspider.search.formats import FIELDS, Captures, facts, linked, summary
from krowlspider.search.snippets import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from krowlspider.search.searcher import Result, SearchResults
    from krowlspider.search.snippets import Piece

# Pages of an answer whose numbers are shown beside the present one.
_BESIDE = 3
_LABELS = {
    "host": ("Host", "example.org"),
    "lang": ("Language", "en"),
    "since": ("Since", "2026-11"),
    "type": ("Media type", "text/html"),
}
_HELP = """<dl class="help">
<dt><code>crawl delay</code></dt><dd>pages with both words</dd>
<dt><code>"crawl delay"</code></dt><dd>the words in a row</dd>
<dt><code>crawl*</code></dt><dd>words that begin so</dd>
<dt><code>crawl OR spider -ant</code></dt><dd>one of two words, and not a third</dd>
<dt><code>intitle:robots</code></dt><dd>in the title</dd>
<dt><code>site:example.org</code></dt><dd>a host and all below it; <code>host:</code> that host</dd>
<dt><code>lang:en type:html</code></dt><dd>language and media type</dd>
<dt><code>size:&gt;10k</code></dt><dd>at least so large; <code>size:1k..5MiB</code></dd>
<dt><code>date:2026-11..</code></dt><dd>fetched since; also <code>date:2026-11-05</code></dd>
</dl>"""


@cache
def style() -> bytes:
    return files(__name__).joinpath("search.css").read_bytes()


def page(
    found: SearchResults, given: Mapping[str, str], number: int, each: int, captures: Captures
) -> str:
    """Return the page of an answer. ``given`` are the parameters of the request, ``number`` is that
    of the page, from 1, with ``each`` results.
    """
    text = given.get("q", "")
    asked = bool(text.strip() or any(given.get(name) for name in FIELDS))
    title = f"{plain(text)[:80]} - search" if text.strip() else "Search"
    body = _answer(found, given, number, each, captures) if asked else _start(found)
    return _document(title, _form(given) + body, is_start=not asked)


def failure(text: str, given: Mapping[str, str]) -> str:
    """Return the page for a query that was not answered."""
    return _document("Search", f'{_form(given)}<p class="note bad" role="alert">{escape(text)}</p>')


def _document(title: str, content: str, *, is_start: bool = False) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<title>{escape(title)} - krowlspider</title>
<link rel="stylesheet" href="/search.css">
</head>
<body{' class="start"' if is_start else ""}>
<a class="skip" href="#results">Skip to the results</a>
{content}
</body>
</html>
"""


def _form(given: Mapping[str, str]) -> str:
    fields = "".join(
        f'<label>{label}<input name="{name}" value="{escape(given.get(name, ""))}"'
        f' placeholder="{example}" autocomplete="off" spellcheck="false" autocapitalize="none">'
        "</label>"
        for name, (label, example) in _LABELS.items()
    )
    is_open = " open" if any(given.get(name) for name in FIELDS) else ""
    focus = "" if given.get("q") else " autofocus"
    return f"""<header>
<form action="/search" role="search">
<h1><a href="/search">krowlspider</a></h1>
<div class="box"><input type="search" name="q" aria-label="Search the crawled pages" maxlength="500"
 value="{escape(given.get("q", ""))}" autocomplete="off" spellcheck="false"
 autocapitalize="none" enterkeyhint="search"{focus}><button>Search</button></div>
<div class="more"><details{is_open}><summary>Filters</summary><div class="fields">{fields}</div>
</details><details><summary>Help</summary>{_HELP}</details></div>
</form>
</header>
"""


def _start(found: SearchResults) -> str:
    pages = counted(found.pages, "page")
    return f'<main id="results"><p class="none">{pages} in the index.</p></main>'


def _answer(
    found: SearchResults, given: Mapping[str, str], number: int, each: int, captures: Captures
) -> str:
    parts = [f'<p class="note">{escape(note)}.</p>' for note in found.notes]
    if found.meant:
        target = escape(_target({**given, "q": found.meant}, 1))
        parts.append(
            f'<p class="meant">Did you mean <a href="{target}">{escape(found.meant)}</a>?</p>'
        )
    parts.append(f'<p class="count" role="status">{escape(summary(found))}</p>')
    if found.results:
        first = (number - 1) * each + 1
        items = "".join(_item(result, captures) for result in found.results)
        parts.append(f'<ol start="{first}">{items}</ol>')
    elif found.total:
        back = escape(_target(given, 1))
        parts.append(
            f'<p class="none">There is no page {number} of these results:'
            f' <a href="{back}">see the first one</a>.</p>'
        )
    else:
        parts.append(
            '<p class="none">Nothing was found. Try fewer or other words, or leave filters out.</p>'
        )
    parts.append(_pages(found, given, number, each))
    return f'<main id="results" tabindex="-1">{"".join(parts)}</main>'


def _item(result: Result, captures: Captures) -> str:
    title = _marked(result.title) or escape(plain(result.url)[:200])
    language = f' lang="{escape(result.lang)}"' if result.lang else ""
    if href := linked(result.url):
        title = f'<a href="{escape(href)}" rel="noreferrer noopener nofollow">{title}</a>'
    line = [f"<span>{escape(fact)}</span>" for fact in facts(result)]
    line += [
        f'<a href="{escape(target)}" rel="noreferrer">{name}</a>'
        for name, target in captures.links(result)
    ]
    shown = f'<p class="snippet" dir="auto"{language}>{_marked(result.snippet)}</p>'
    return (
        f'<li><h2 dir="auto"{language}>{title}</h2><p class="where">{_where(result.url)}</p>'
        f"{shown if result.snippet else ''}"
        f'<p class="facts">{" ".join(line)}</p>{_parts(result)}</li>'
    )


def _where(url: str) -> str:
    """Return a URL with its host set off: it is what tells whose page it is."""
    url = plain(url)
    try:
        parts = urlsplit(url)
        before, host, rest = url.partition(parts.netloc) if parts.netloc else ("", "", url)
    except ValueError:
        before, host, rest = "", "", url
    return f"<bdi>{escape(before)}<b>{escape(host)}</b>{escape(rest[:300])}</bdi>"


def _parts(result: Result) -> str:
    if not result.parts:
        return ""
    rows = "".join(
        f"<tr><td>{escape(name.strip())}</td><td>{value:.4g}</td><td>{escape(about)}</td></tr>"
        for name, value, about in result.parts
    )
    return (
        f"<details><summary>score {result.score:.4g}</summary><table><tbody>{rows}</tbody></table>"
        "</details>"
    )


def _marked(pieces: list[Piece]) -> str:
    return "".join(
        f"<mark>{escape(each.text)}</mark>" if each.is_marked else escape(each.text)
        for each in pieces
    )


def _pages(found: SearchResults, given: Mapping[str, str], number: int, each: int) -> str:
    """Return the links to the other pages of an answer."""
    last = -(-found.reached // each)
    if last <= 1:
        return ""
    links = []
    if number > 1:
        links.append(_link("‹ Previous", given, number - 1, "prev"))
    begin, end = max(1, number - _BESIDE), min(last, number + _BESIDE)
    for at in range(begin, end + 1):
        if at == number:
            links.append(f'<b aria-current="page">{at}</b>')
        else:
            links.append(_link(str(at), given, at, ""))
    if number < last:
        links.append(_link("Next ›", given, number + 1, "next"))
    more = ""
    if found.total > found.reached or not found.is_exact:
        more = f'<p class="none">The first {found.reached:,} are shown: give more words.</p>'
    return f'<nav aria-label="Pages of results">{"".join(links)}</nav>{more}'


def _link(text: str, given: Mapping[str, str], number: int, rel: str) -> str:
    said = f' rel="{rel}"' if rel else f' aria-label="Page {number}"'
    return f'<a href="{escape(_target(given, number))}"{said}>{text}</a>'


def _target(given: Mapping[str, str], number: int) -> str:
    kept = {name: given[name] for name in ("q", *FIELDS, "explain") if given.get(name)}
    if number > 1:
        kept["page"] = str(number)
    return "/search?" + urlencode(kept, errors="replace")
