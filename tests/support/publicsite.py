"""A site on loopback with all that public Scrapy projects crawl: pages, forms, APIs, feeds, files.

It is like those that Scrapy's tutorials use. Its answers are the same in each run.
"""

from __future__ import annotations

import gzip
import io
import threading
from typing import TYPE_CHECKING, Self

from flask import Flask, Response, abort, jsonify, redirect, request, session
from PIL import Image
from werkzeug.serving import WSGIRequestHandler, make_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from werkzeug.wrappers import Response as AnyResponse

AUTHORS = ("Ada Lovelace", "Blaise Pascal", "Émilie du Châtelet", "Omar Khayyám")
QUOTES = [
    {"text": f"“Thought {number}: less is more.”", "author": AUTHORS[number % len(AUTHORS)]}
    for number in range(30)
]
BOOKS = [
    {"title": f"Book {number}", "price": f"£{10 + number}.50", "stock": number % 3}
    for number in range(12)
]
# A name and a temperature, some below zero.
STATIONS = [(f"Station {number}", f"{(number - 3) * 1.5}") for number in range(8)]
USER, PASSWORD = "reader", "secret words"
TOKEN = "d1f0c0ffee"
PER_PAGE = 10

app = Flask(__name__)
app.secret_key = "known to the tests"
# Letters outside ASCII stay what they are, as on most sites.
app.json.ensure_ascii = False  # type: ignore[attr-defined]


def page(*parts: str, title: str = "A site") -> str:
    return f"<!doctype html><title>{title}</title><body>{''.join(parts)}</body>"


def numbered(total: int, size: int) -> tuple[int, range, bool]:
    """Return the number of the page that is asked for, the indexes on it, and if more follow."""
    number = max(1, int(request.args.get("page", 1)))
    start = (number - 1) * size
    return number, range(start, min(start + size, total)), start + size < total


@app.get("/robots.txt")
def robots() -> Response:
    text = f"User-agent: *\nDisallow: /private/\nSitemap: {request.host_url}sitemap.xml\n"
    return Response(text, mimetype="text/plain")


# --- quotes ---


@app.get("/quotes/")
@app.get("/quotes/page/<int:number>/")
def quotes(number: int = 1) -> str:
    start = (number - 1) * PER_PAGE
    shown = QUOTES[start : start + PER_PAGE] or abort(404)
    more = f'<li class="next"><a href="/quotes/page/{number + 1}/">Next</a></li>'
    return page(
        '<a href="/private/">staff</a>',
        *(
            f'<div class="quote"><span class="text">{quote["text"]}</span>'
            f'<span>by <small class="author">{quote["author"]}</small> '
            f'<a href="/author/{AUTHORS.index(quote["author"])}">(about)</a></span></div>'
            for quote in shown
        ),
        more if start + PER_PAGE < len(QUOTES) else "",
    )


@app.get("/author/<int:number>")
def author(number: int) -> AnyResponse:
    return redirect(f"/author/{number}/")


@app.get("/author/<int:number>/")
def author_page(number: int) -> str:
    born = f'<span class="author-born-date">{1600 + number}</span>'
    return page(f'<h3 class="author-title">\n    {AUTHORS[number]}\n  </h3>{born}')


@app.get("/private/")
def private() -> str:
    return page("not for robots")


@app.get("/status/<int:number>")
def status(number: int) -> Response:
    return Response(f"Status {number}", status=number)


# --- books ---


@app.get("/books/")
def books() -> str:
    number, shown, more = numbered(len(BOOKS), 5)
    links = (f'<article><h3><a href="/book/{each}.html">book</a></h3></article>' for each in shown)
    after = f'<li class="next"><a href="/books/?page={number + 1}">next</a></li>' if more else ""
    return page(*links, after)


@app.get("/book/<int:number>.html")
def book(number: int) -> str:
    if number >= len(BOOKS):
        abort(404)
    found = BOOKS[number]
    return page(
        f'<h1>{found["title"]}</h1><p class="price_color"> {found["price"]} </p>',
        f'<p class="availability">\n  In stock ({found["stock"]} available)\n</p>',
        f'<img src="../media/cover-{number}.png">',
        f'<a href="/media/sample%20{number}.pdf" class="sample">sample</a>',
        '<a href="/book/99.html">gone</a>' if number == 3 else "",
        title=str(found["title"]),
    )


@app.get("/media/cover-<int:number>.png")
def cover(number: int) -> Response:
    file = io.BytesIO()
    Image.new("RGB", (60 + number, 80), (number * 20, 100, 50)).save(file, "PNG")
    return Response(file.getvalue(), mimetype="image/png")


@app.get("/media/sample <int:number>.pdf")
def sample(number: int) -> Response:
    # The last one of the four that are fetched has 12 MB.
    copies = 700_000 if number == 3 else 50
    return Response(f"%PDF-1.4 sample {number}".encode() * copies, mimetype="application/pdf")


# --- login ---


@app.route("/login", methods=["GET", "POST"])
def login() -> str | AnyResponse:
    if request.method == "GET":
        session["csrf"] = TOKEN
        return page(
            '<form action="/login" method="post" accept-charset="utf-8">',
            f'<input type="hidden" name="csrf_token" value="{TOKEN}">',
            '<input type="text" name="username"><input type="password" name="password">',
            '<input type="submit" value="Login"></form>',
        )
    form = request.form
    if session.get("csrf") != TOKEN or form.get("csrf_token") != TOKEN:
        abort(403)
    if (form.get("username"), form.get("password")) != (USER, PASSWORD):
        return page('<p class="error">wrong password</p>')
    session["user"] = form["username"]
    return redirect("/shelf/1")


@app.get("/shelf/<int:number>")
def shelf(number: int) -> str | AnyResponse:
    if session.get("user") != USER:
        return redirect("/login")
    after = f'<a class="next" href="/shelf/{number + 1}">more</a>' if number < 4 else ""
    return page(f'<a href="/logout">Logout</a><b class="loan">Loan {number}</b>', after)


# --- APIs ---


@app.post("/api/search")
def search() -> Response:
    query = request.get_json()
    found = [each for each in QUOTES if query["author"] in each["author"]]
    start = query["page"] * query["size"]
    return jsonify(
        hits=found[start : start + query["size"]],
        pages=-(-len(found) // query["size"]),
        page=query["page"],
    )


@app.get("/api/quotes")
def scroll() -> Response:
    number, shown, more = numbered(len(QUOTES), PER_PAGE)
    if request.headers.get("X-Api-Key") != TOKEN:
        abort(403)
    return jsonify(page=number, has_next=more, quotes=[QUOTES[each] for each in shown])


# --- sitemaps and feeds ---


@app.get("/sitemap.xml")
def sitemaps() -> Response:
    host = request.host_url
    locs = (f"<sitemap><loc>{host}sitemap-{each}</loc></sitemap>" for each in ("a.xml", "b.xml.gz"))
    return xml(f"<sitemapindex {SITEMAPS}>{''.join(locs)}</sitemapindex>")


@app.get("/sitemap-<name>")
def sitemap(name: str) -> Response:
    numbers = range(6) if name == "a.xml" else range(6, len(BOOKS))
    urls = [*(f"book/{number}.html" for number in numbers), "quotes/"]
    locs = (f"<url><loc>{request.host_url}{url}</loc></url>" for url in urls)
    text = f"<urlset {SITEMAPS}>{''.join(locs)}</urlset>"
    if name.endswith(".gz"):
        return Response(gzip.compress(text.encode(), mtime=0), mimetype="application/x-gzip")
    return xml(text)


SITEMAPS = 'xmlns="http://www.sitemaps.org/schemas/sitemap/0.9"'


def xml(text: str) -> Response:
    return Response(f'<?xml version="1.0" encoding="UTF-8"?>{text}', mimetype="application/xml")


@app.get("/stations.csv")
def stations() -> Response:
    rows = "".join(f"'{name}';{degrees}\r\n" for name, degrees in STATIONS)
    return Response(f"name;degrees\r\n{rows}", mimetype="text/csv")


@app.get("/products.xml")
def products() -> Response:
    entries = (
        f'<item id="{number}"><g:title>{book["title"]}</g:title><g:price>{book["price"]}</g:price>'
        f"<link>{request.host_url}book/{number}.html</link></item>"
        for number, book in enumerate(BOOKS)
    )
    return xml(f'<rss xmlns:g="http://base.google.com/ns/1.0">{"".join(entries)}</rss>')


# --- the server ---


class _Quiet(WSGIRequestHandler):
    # Connections are kept open, as by most servers.
    protocol_version = "HTTP/1.1"

    def log_request(self, *_: object) -> None:
        return


class PublicSite:
    """The site, inside the ``with`` block. ``asked`` are method and path of each request."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self._server = make_server(
            "127.0.0.1", 0, self._application, threaded=True, request_handler=_Quiet
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def _application(self, environ: dict[str, str], start: object) -> object:
        self.asked.append((environ["REQUEST_METHOD"], environ["PATH_INFO"]))
        return app(environ, start)

    def paths(self, start: str) -> Sequence[str]:
        return [path for _, path in self.asked if path.startswith(start)]

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
