"""What modules of JavaScript import, and import maps."""

from __future__ import annotations

import json

import pytest

from krowlspider.urls.page.links import read_page, reading_plan
from krowlspider.urls.page.requisites.found import (
    MAP_MAX,
    MAX_REQUISITES,
    ImportMap,
    KeptMaps,
    Requisites,
)
from krowlspider.urls.page.requisites.modules import MODULE_MAX, imports_in, requisites_of_module
from krowlspider.urls.page.requisites.requisite import MODULE, OTHER, STYLE
from tests.support.tables import table

URL = "https://a.test/dir/main.js"
PLAN = reading_plan("krowlspider", follow_nofollow=False, requisites=True)


def names(script: str) -> list[str]:
    return [name for name, _ in imports_in(script)]


@table(
    ("script", "expected"),
    [
        ('import "x"', ["x"]),
        ("import 'x'", ["x"]),
        ("import a from './x.js'", ["./x.js"]),
        ('import{a as b,c}from"x";import"y";export{d}from"z"', ["x", "y", "z"]),
        ("import * as a from 'x'; import*as b from'y'", ["x", "y"]),
        ("import a, {b} from 'x'; import c,* as d from 'y'", ["x", "y"]),
        (
            "import from from 'x'; import as from 'y'; import {default as z} from 'z'",
            ["x", "y", "z"],
        ),
        ("export * from 'x'; export * as a from 'y'; export {} from 'z'", ["x", "y", "z"]),
        ("export {a as default, b as 'c d'} from 'x'", ["x"]),
        ("import\n{\na,\nb,\n}\nfrom\n'x'", ["x"]),
        ("import {a} from 'x'\nimport 'y'\nexport const z = 1", ["x", "y"]),
        ("export {a}\nimport 'x'", ["x"]),
        ("import café from 'x'; import $ from 'y'; import _1 from 'z'", ["x", "y", "z"]),
        ("import /* a */ a /* b */ from /* c */ 'x' // d", ["x"]),
        ("import { a, // it's {\n b /* } */ } from 'x'", ["x"]),
        ("x=1;import'x'", ["x"]),
        ("}import 'x'", ["x"]),
        # Not before the module runs.
        ("import('x'); import ( 'y' ); import.meta.url; await import(`z`)", []),
        ("a.import 'x'; $import 'x'; importx 'x'; imports from 'x'; #import 'x'", []),
        ("export default 'x'; export const from = 'y'; export let a", []),
        ("import; import a; import a from x; import a from", []),
        ('import "x\\"y"; import \'a\\u0062\'', []),
        # Comments, strings, templates and regular expressions.
        ("// import 'n'\nimport 'x'", ["x"]),
        ("/* import 'n'\n*/ import 'x' /* import 'n' */", ["x"]),
        ("let a = \"import 'n'\"; import 'x'", ["x"]),
        ("let a = 'import \\'n\\' import \"m\"'; import 'x'", ["x"]),
        ("let a = 'broken\nimport 'x'", ["x"]),
        ("`import 'n'`; import 'x'", ["x"]),
        ("`\\`import 'n'`; import 'x'", ["x"]),
        ("`a ${ `import 'n' ${ {b: {}} }` + '}' } import 'n'`; import 'x'", ["x"]),
        ("`${a}${b}$ {`; import 'x'", ["x"]),
        ("a = /['\"`]/; import 'x'", ["x"]),
        ("a = /[/'\"]\\/'/g, b; import 'x'", ["x"]),
        ("if (/'/.test(a)) b; import 'x'", ["x"]),
        ("return /'/; import 'x'", ["x"]),
        ("a = b / c; d = '/'; import 'x'", ["x"]),
        ("a = b[0] / 2 / c(1) / 3; e = \"'\"; import 'x'", ["x"]),
        ("a = 1 /2; b = '/'; import 'x'; c = 3/ 4", ["x"]),
        ("a = => / b\nimport 'x'", ["x"]),
        ("/* unfinished import 'n'", []),
        ("`unfinished import 'n'", []),
        ("`${ unfinished", []),
        ("", []),
    ],
)
def test_static_imports_are_found(script: str, expected: list[str]) -> None:
    assert names(script) == expected


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ("", MODULE),
        ("with {type: 'json'}", OTHER),
        ("with{type:'css'}", STYLE),
        ('assert { "type" : "css" }', STYLE),
        ("with {a: 'css'}", MODULE),
    ],
)
def test_type_of_an_import_says_what_it_is(attributes: str, kind: str) -> None:
    script = f"import a from './x' {attributes}; export * from './y' {attributes}"
    assert list(imports_in(script)) == [("./x", kind), ("./y", kind)]


def module(script: str, import_map: object = None) -> Requisites:
    maps = None
    if import_map is not None:
        maps = ImportMap.read([json.dumps(import_map)], "https://a.test/page")
    return requisites_of_module(script.encode(), URL, maps)


@table(
    ("name", "url"),
    [
        ("./x.js", "https://a.test/dir/x.js"),
        ("../x.js", "https://a.test/x.js"),
        ("/x.js", "https://a.test/x.js"),
        ("//b.test/x.js", "https://b.test/x.js"),
        ("https://b.test/x.js?a#b", "https://b.test/x.js?a"),
        *((name, None) for name in ("x", "x.js", "@a/b", "", ".x", "#x", "data:text/javascript,")),
        *(
            (name, None)
            for name in ("node:fs", "blob:https://a.test/1", "http://[", "https://u:p@h/")
        ),
    ],
)
def test_names_of_modules_are_urls_or_need_a_map(name: str, url: str | None) -> None:
    found = module(f"import '{name}'")
    assert (list(found.found), found.unmapped) == (([url], 0) if url else ([], 1))


IMPORTS = {
    "lib": "/lib.js",
    "lib/": "/libs/",
    "lib/special/": "./special/",
    "lib/one.js": "/one.js",
    "blocked": None,
    "blocked/": "/no-slash",
    "odd": "bare",
    "https://b.test/x.js": "/mapped.js",
    "./here.js": "/there.js",
    "/abs/": "https://c.test/abs/",
    "up/": "/up/",
    7: "/seven.js",
}
SCOPES = {
    "/dir/": {"lib": "/scoped.js", "only": "/only.js"},
    "/dir/main.js": {"exact": "/exact.js"},
    "/other/": {"lib": "/other.js"},
    "/dir": {"only": "/no.js"},
}


@table(
    ("name", "url"),
    [
        ("lib/a/b.js", "https://a.test/libs/a/b.js"),
        ("lib/special/a.js", "https://a.test/special/a.js"),
        ("lib/one.js", "https://a.test/one.js"),
        ("lib/", "https://a.test/libs/"),
        ("blocked", None),
        ("blocked/x", None),
        ("odd", None),
        ("unknown", None),
        ("libx", None),
        ("https://b.test/x.js", "https://a.test/mapped.js"),
        ("https://b.test/y.js", "https://b.test/y.js"),
        # Relative names of a map are relative to the page, those of a module to the module.
        ("../here.js", "https://a.test/there.js"),
        ("./here.js", "https://a.test/dir/here.js"),
        ("/abs/x.js", "https://c.test/abs/x.js"),
        ("up/../../etc", None),
        ("7", "https://a.test/seven.js"),
        # Of the scopes, the most special one that knows the name.
        ("lib", "https://a.test/scoped.js"),
        ("only", "https://a.test/only.js"),
        ("exact", "https://a.test/exact.js"),
    ],
)
def test_import_map_says_which_url_a_name_is(name: str, url: str | None) -> None:
    found = module(f"import '{name}'", {"imports": IMPORTS, "scopes": SCOPES})
    assert (list(found.found), found.unmapped) == (([url], 0) if url else ([], 1))
    assert found.import_map is not None


@table(
    "text",
    [
        *("", "x", "[]", "1", "null", '{"imports":', "{}", '{"imports":[]}', '{"imports":{"a":1}}'),
        *('{"scopes":[]}', '{"scopes":{"/":1}}', '{"imports":{"":"/x"}}', "[" * 100_000),
    ],
)
def test_odd_import_maps_map_nothing(text: str) -> None:
    found = ImportMap.read([text], URL)
    assert found is None or (found.resolve("a", URL), found.resolve("", URL)) == (None, None)


def test_first_of_several_import_maps_counts() -> None:
    texts = ['{"imports":{"a":"/1"}}', "broken", '{"imports":{"a":"/2","b":"/2"}}', " " * MAP_MAX]
    found = ImportMap.read(texts, URL)
    assert found is not None
    assert [found.resolve(name, URL) for name in "ab"] == ["https://a.test/1", "https://a.test/2"]


def page(html: str) -> Requisites:
    found = read_page(html.encode(), "https://a.test/dir/page", None, PLAN).requisites
    assert found is not None
    return found


MAP = """<script type=importmap>
{"imports": {"a": "./x.js", "a/": "/a/", "unused": "/u.js"}}
</script>"""


@table(
    ("html", "expected"),
    [
        ("<script type=module>import './x.js'</script>", {"/dir/x.js": MODULE}),
        ("<script type='Module' src=x.js>import './n.js'</script>", {"/dir/x.js": MODULE}),
        (
            "<script type=module async crossorigin src='x.js?a&amp;b'></script>",
            {"/dir/x.js?a&b": MODULE},
        ),
        ("<base href=/b/><script type=module>import './x.js'</script>", {"/b/x.js": MODULE}),
        ("<script type=module>a('</b>'); import './x.js'", {"/dir/x.js": MODULE}),
        (
            "<script type=module>import s from './x.css' with {type: 'css'}</script>",
            {"/dir/x.css": STYLE},
        ),
        ("<script>import './n.js'</script><script type=text/plain>import './n.js'</script>", {}),
        ("<!-- <script type=module>import './n.js'</script> -->", {}),
        (
            f"{MAP}<script type=module>import 'a'; import 'a/b.js'; import 'c'</script>",
            {"/dir/x.js": MODULE, "/a/b.js": MODULE},
        ),
        (
            "<script type=module src=m.js></script><script type=importmap>{}</script>",
            {"/dir/m.js": MODULE},
        ),
        ("<iframe srcdoc=\"<script type=module>import './x.js'</script>\">", {"/dir/x.js": MODULE}),
    ],
)
def test_modules_of_a_page_are_found(html: str, expected: dict[str, str]) -> None:
    found = page(html)
    kinds = {url.removeprefix("https://a.test"): kind for url, kind in found.found.items()}
    assert kinds == expected
    assert found.unmapped == ("import 'c'" in html)


def test_what_a_module_imports_is_bounded() -> None:
    found = module("".join(f"import './{number}';" for number in range(MAX_REQUISITES + 5)))
    assert (len(found.found), found.surplus) == (MAX_REQUISITES, 5)
    found = module(" " * MODULE_MAX + "import './late'")
    assert found.found == {}
    found = module("import './x';" * 5000 + "import 'bare';" * 5000)
    assert (len(found.found), found.surplus, found.unmapped) == (1, 0, 1)


def test_modules_in_a_page_are_read_up_to_a_bound() -> None:
    long = f"<script type=module>import './1'; {'x ' * 40_000} import './2'</script>"
    found = page(f"{long}<script type=module>import './3'</script>")
    assert (list(found.found), found.surplus) == (["https://a.test/dir/1"], 1)


def test_a_map_is_kept_until_its_module_is_read() -> None:
    kept, one = KeptMaps(), ImportMap({"a": "https://a.test/x"}, {})
    kept.keep("https://a.test/1", one)
    assert kept.take("https://a.test/2") is None
    assert kept.take("https://a.test/1") is one
    assert kept.take("https://a.test/1") is None


def test_kept_maps_are_bounded_by_number_and_size() -> None:
    kept, small = KeptMaps(), ImportMap({}, {})
    for number in range(10_000):
        kept.keep(str(number), small)
    assert (kept.take("0"), kept.take("9999")) == (None, small)
    large = ImportMap({"a": "x" * 1_000_000}, {})
    for number in range(10):
        kept.keep(str(number), large)
        kept.keep(str(number), large)
    assert [kept.take(str(number)) is large for number in range(10)] == [False] * 6 + [True] * 4
