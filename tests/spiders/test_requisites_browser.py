"""A crawl has all that a browser asks for when it shows a page.

Files whose names begin with ``beyond`` are fetched by the crawl alone: what another screen, a
script or another medium would load. Neither asks for one that begins with ``never``.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.mockweb import MockWeb
from tests.support.browser import opened
from tests.support.crawls import AT_ONCE, crawl_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.browser import Tab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOST = "a.test"
TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
    "json": "application/json",
    "xsl": "text/xsl",
    "woff2": "font/woff2",
    "vtt": "text/vtt",
}
# A dot, for all that has no content of its own.
DOT = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"
SVG = 'xmlns="http://www.w3.org/2000/svg"'
GROUP = f"<svg {SVG}><g id='a'/></svg>"


def svg(name: str) -> str:
    """An SVG that loads all that it can, if it is a document."""
    return f"""<?xml version="1.0"?><?xml-stylesheet href="{name}-pi.css" type="text/css"?>
        <?xml-stylesheet href="{name}-untyped.css"?>
        <?xml-stylesheet href="{name}.xsl" type="text/xsl"?>
        <svg {SVG} xmlns:xlink="http://www.w3.org/1999/xlink"
        xmlns:h="http://www.w3.org/1999/xhtml">
        <style>@import "{name}-import.css"; rect {{ background: url({name}-style.png) }}</style>
        <style><![CDATA[@import url({name}-cdata.css);]]></style>
        <h:link rel="stylesheet" href="{name}-link.css"/>
        <image href="{name}-image.png" width="5" height="5"/>
        <image xlink:href="{name}-xlink.png" width="5" height="5"/>
        <use href="{name}-use.svg#a"/><script href="beyond-{name}.js"/>
        <rect filter="url({name}-filter.svg#a)" fill="url({name}-fill.svg#a)" width="5" height="5"/>
        <rect mask="url({name}-mask.svg#a)" width="5" height="5"/>
        <rect clip-path="url({name}-clip.svg#a)" width="5" height="5"/>
        <foreignObject width="9" height="9"><h:img src="{name}-html.png"/></foreignObject>
        <g style="cursor: url({name}-cursor.png), auto"/></svg>"""


CSS = """@import "import.css" layer(a); @import url("import2.css") screen; @import never.css;
    @import url(/never un.css);
    #a { background: url(/never un.png) } #b { background: url( b.png ) }
    #c { background-image: image-set("c.png" 1x, "beyond-c.png" 2x) }
    #d { background-image: -webkit-image-set(url(d.png) 1x, url(beyond-d.png) 2x) }
    #e { background: image-set("e.avif" type("image/avif"), url(beyond-e.png) type("image/png")) }
    #f { background: -webkit-cross-fade(url(f1.png), url('f2.png'), 50%) }
    #g { list-style: url(g.png) } #h::before { content: url(h.png) }
    #i { border-image: url(i.png) 1 } #j { mask: url(j.svg#a) } #k { filter: url(k.svg#a) }
    #l { clip-path: url(l.svg#a) } #m { background: var(--m); --m: url("m.png") }
    #n { cursor: url(n.png), auto } #o { background: URL(\\6f.png) }
    @font-face { font-family: f; src: url(font.woff2) } body { font-family: f }
    #none { background: url(beyond-unused.png) }
    @media print { #b { background: url(beyond-print.png) } }
    /* url(never-comment.png) */ #p { content: "url(never-string.png)" }"""
STATIC = f"""<!DOCTYPE html><title>Static</title>
    <link rel=stylesheet href=style.css><link rel="alternate stylesheet" title=x href=alternate.css>
    <link rel=stylesheet media=print href=print.css><link rel=icon href=icon.svg>
    <link rel=apple-touch-icon href=beyond-touch.png><link rel=manifest href=manifest.json>
    <link rel=preload as=image href=preload.png><link rel=preload as=fetch crossorigin href=f.json>
    <link rel=preload as=image imagesrcset="set1.png 1x, beyond-set2.png 2x">
    <link rel=next href=beyond-next.html><link rel=preload as=script href=beyond-preload.js>
    <style>{CSS}</style><script src=beyond-script.js></script>
    <body background=body.png>{"".join(f"<div id={each}>x</div>" for each in "abcdefghijklmnop")}
    <table background=table.png><colgroup background=colgroup.png><col background=col.png>
    <thead background=thead.png><tr background=tr.png><th background=th.png>x
    <tbody background=tbody.png><tr><td background=td.png>x
    <tfoot background=tfoot.png><tr><td>x</table>
    <img src=src.png lowsrc=beyond-low.png>
    <img srcset="s1.png 1x, beyond-s2.png 2x" src=beyond-s.png>
    <picture><source srcset=p.png><source media=print srcset=beyond-p.png><img src=beyond-q.png>
    </picture><img loading=lazy src=lazy.png><input type=image src=input.png><image src=image.png>
    <video poster=poster.png src=video.mp4></video><audio controls preload=none src=beyond-a.mp3>
    </audio><video controls><source src=video2.mp4><track default src=track.vtt></video>
    <object data=object.svg></object><object data=object.png></object><embed src=embed.svg>
    <object data=object.html type=text/html></object><embed src=embed.html type=text/html>
    <iframe src=frame.svg></iframe><iframe src=frame.png></iframe><iframe src=frame.html></iframe>
    <img src=picture.svg><iframe srcdoc="<link rel=stylesheet href=doc.css>
    <p style='background: url(doc.png)'>x<iframe srcdoc=&quot;<img src=inner.png>&quot;></iframe>">
    </iframe><noscript><img src=noscript.png></noscript>
    <svg><image href=g.png width=5 height=5 /><image xlink:href=x.png width=5 height=5 />
    <use href="use.svg#a"/><filter><feImage href=fe.png /></filter>
    <rect style="fill: url(fill.svg#a)" width=5 height=5 /></svg>
    <p style="background: url(p-style.png)">x<p style="background: image-set('p-set.png' 1x)">x
    <img data-src=beyond-1.png><img data-original=beyond-2.png src=data:,>
    <img data-lazy=/beyond-3.png>
    <img data-lazy-src=beyond-4.png><img data-srcset="beyond-5.png 1x, beyond-6.png 2x">
    <picture><source data-lazy-srcset=beyond-7.png></picture><div data-bg=beyond-8.png>x</div>
    <div data-background-image="url(beyond-9.png)">x</div><section data-background=beyond-10.png>x
    </section><!-- <img src=never-comment.png> --><a ping=never-ping href=beyond-link.html>x</a>"""
NESTED = "<link rel=stylesheet href={0}-in.css><img src={0}-in.png>"
MODULES = """<!DOCTYPE html><title>Modules</title><link rel=icon href=data:,>
    <script type=importmap>{"imports": {"lib": "/lib.js", "lib/": "/lib/", "unused": "/never.js",
    "http://b.test/x.js": "/mapped.js"}, "scopes": {"/scope/": {"lib": "/scoped.js"}}}</script>
    <script type=module>import a from "lib"; import "lib/x.js"; import {b} from "./inline.js";
    // import "./never-comment.js"
    const s = "import './never-string.js'", t = `import "./never-template.js" ${`${1}`}`;
    const r = /["'`]/; import * as m from "http://b.test/x.js"; export * from "./export.js";
    if (0) import("./never.js"); import data from "./data.json" with {type: "json"};
    import css from "./sheet.css" with {type: "css"}
    </script>
    <script type=module src=main.js></script><script type=MODULE src=/scope/m.js></script>
    <link rel=modulepreload href=preload.js><script nomodule src=beyond-nomodule.js></script>
    <script src=classic.js></script>"""
SCRIPTS = {
    "lib.js": "export default 1",
    "inline.js": 'export const b = 1; import "./1.js"',
    **{f"{n}.js": f'import "./{n + 1}.js"' for n in range(1, 6)},
    "main.js": 'import "./a/a.js"\nexport{default as q}from"lib"\nimport"./main.js"',
    "a/a.js": 'import "../up.js"; import "lib/deep.js"; import "/main.js"',
    "scope/m.js": 'import "lib"',
    "lib/x.js": "import './y.js'; export * as z from './z.js'",
    "data.json": "{}",
}
FRAMES = """<!DOCTYPE html><title>Frames</title><link rel=icon href=data:,>
    <frameset cols="*,*,*"><frame src=one.png><frame src=two.svg><frame src=three.html>"""


def site(page: str, files: dict[str, str]) -> list[dict[str, Any]]:
    """Rules for a page and its files; all else is a dot, or an empty text of its type."""
    rules = [rule(f"/{name}", name, body=text) for name, text in {"": page, **files}.items()]
    rules += [{"path": "/robots.txt", "status": 404}, rule("^.*[.]svg$", "x.svg", body=GROUP)]
    rules += [rule(f"^.*[.]{ending}$", f"x.{ending}", body="") for ending in TYPES]
    return [*rules, {"headers": {"Content-Type": "image/gif"}, "body_base64": DOT}]


def rule(path: str, name: str, **content: str) -> dict[str, Any]:
    media_type = TYPES.get(name.rpartition(".")[2], "text/html")
    return {"path": path, "headers": {"Content-Type": media_type}, **content}


async def shown(web: MockWeb, url: str, folder: Path, *, scripts: bool) -> None:
    """Open a page in a browser until it asks for nothing more."""
    async with opened("about:blank", folder / "browser") as tab:
        await tab.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        await tab.call("Page.navigate", url=url)
        quiet, asked = 0, -1
        while quiet < 15 or not await is_loaded(tab):
            await asyncio.sleep(0.1)
            quiet, asked = (quiet + 1 if len(web.log()) == asked else 0), len(web.log())


async def is_loaded(tab: Tab) -> bool:
    state = "document.URL.startsWith('http') && document.readyState === 'complete'"
    return bool(await tab.run(state))


def named(paths: Iterable[str], beginning: str) -> set[str]:
    return {path for path in paths if path.rpartition("/")[2].startswith(beginning)}


@pytest.mark.parametrize(
    ("page", "files", "scripts"),
    [
        pytest.param(
            STATIC,
            {
                **{f"{name}.svg": svg(name) for name in ("object", "embed", "frame")},
                **{f"{name}.html": NESTED.format(name) for name in ("object", "embed", "frame")},
                # As pictures, they load nothing.
                "picture.svg": svg("never-picture").replace("beyond-", ""),
                "icon.svg": svg("never-icon").replace("beyond-", ""),
                "manifest.json": "{}",
                "import.css": "@import 'nested.css';",
            },
            False,
            id="static",
        ),
        pytest.param(MODULES, SCRIPTS, True, id="modules"),
        pytest.param(
            FRAMES,
            {"two.svg": svg("two"), "three.html": NESTED.format("three")},
            False,
            id="frames",
        ),
    ],
)
def test_crawl_fetches_all_that_a_browser_asks_for(
    tmp_path: Path, page: str, files: dict[str, str], scripts: bool
) -> None:
    with MockWeb(spec=site(page, files)) as web:
        settings = {"KROWL_REQUISITES": "site", "KROWL_SITEMAPS": 0, **AT_ONCE}
        crawl_of(web, tmp_path, [web.url(HOST)], settings=settings).run()
        log = web.log()
        # Frames are pages; a browser shows no icons of them.
        crawled = {entry.path for entry in log} - {"/robots.txt", "/favicon.ico"}
        asyncio.run(shown(web, web.url(HOST), tmp_path, scripts=scripts))
        asked = {entry.path for entry in web.log()[len(log) :]} - {"/favicon.ico"}
    assert asked - crawled == set()
    assert crawled - asked == named(crawled, "beyond")
    assert named(crawled | asked, "never") == set()
    assert len(asked) > len(files)
