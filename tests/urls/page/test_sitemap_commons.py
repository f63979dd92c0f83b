"""The sitemaps of crawler-commons' SiteMapParserTest, and where we read others from them.

Attributes of entries (lastmod, priority) are left out: nothing here reads them.
"""

from __future__ import annotations

import gzip
from typing import NamedTuple

from tests.support.tables import table
from tests.urls.page.test_sitemap import NAMESPACE, ONE, TWO, read


class Theirs(NamedTuple):
    """A sitemap of its SiteMapParserTest, what is in it for us, and why, where that differs."""

    body: str | bytes
    pages: list[str]
    children: list[str] = []
    differs: str = ""
    # Whether an error is reported, because the XML is broken, or the body is no sitemap.
    is_broken: bool = False


COMMONS = "http://www.example.com"
XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
PLACES = [
    f"{COMMONS}/",
    f"{COMMONS}/catalog?desc=vacation_hawaii&amp;item=12",
    f"{COMMONS}/catalog?desc=vacation_new_zealand&amp;item=73",
]
NAMED = [place.replace("&amp;", "&") for place in PLACES]
WITHOUT_LOC = [f"https://example.com/sitemap.jss?portalCode={n}&lang=en" for n in (10260, 2, 10080)]

CRAWLER_COMMONS = {
    "testSitemapIndex": Theirs(
        f"{XML}<sitemapindex xmlns='{NAMESPACE}'>\n"
        f" <sitemap>\n  <loc>{COMMONS}/sitemap1.xml.gz</loc>\n"
        "  <lastmod><![CDATA[2004-10-01T18:23:17+00:00]]></lastmod>\n </sitemap>\n"
        f"<sitemap>\n  <loc>{COMMONS}/dynsitemap?date=now&amp;all=true</loc>\n"
        "  <lastmod>2004-10-01T18:23:17&#43;00:00</lastmod>\n </sitemap>\n"
        f"<sitemap>\n  <loc>{COMMONS}/dynsitemap<![CDATA[?date=lastyear&all=false]]></loc>\n"
        " </sitemap>\n</sitemapindex>",
        [],
        [
            f"{COMMONS}/sitemap1.xml.gz",
            f"{COMMONS}/dynsitemap?date=now&all=true",
            f"{COMMONS}/dynsitemap?date=lastyear&all=false",
        ],
    ),
    "testSitemapXXEWithDocTypeAllowed": Theirs(
        f"{XML}<!DOCTYPE urlset [\n  <!ENTITY test SYSTEM 'file:///etc/passwd'>\n]>\n"
        f"<urlset xmlns='{NAMESPACE}'><url><loc>{COMMONS}/visit-here</loc></url>"
        "<url><loc>&test;</loc></url></urlset>",
        [],
        differs="It can be told to read the first URL. No honest sitemap defines entities.",
        is_broken=True,
    ),
    "testSitemapXIncludeDisabled": Theirs(
        f"{XML}<urlset xmlns='{NAMESPACE}' xmlns:xi='http://www.w3.org/2001/XInclude'>"
        f"<url><loc>{COMMONS}/visit-here</loc></url><url><loc>"
        "<xi:include href='file:///etc/passwd' parse='text'/></loc></url></urlset>",
        [f"{COMMONS}/visit-here"],
    ),
    "testSitemapWithNamespace": Theirs(
        f"{XML}<sit:urlset xmlns:sit='{NAMESPACE}'>\n <sit:url>\n <sit:loc>{COMMONS}/1</sit:loc>\n"
        "<sit:changefreq>daily</sit:changefreq>\n</sit:url></sit:urlset>",
        [f"{COMMONS}/1"],
    ),
    "testSitemapWithWrongNamespace": Theirs(
        f"{XML}<urlset xmlns='http://www.google.com/schemas/sitemap/0.9'>"
        f"<url><loc>{COMMONS}/1</loc></url><url><loc>\n\t{COMMONS}/2\n</loc></url></urlset>",
        [f"{COMMONS}/1", f"{COMMONS}/2"],
    ),
    "testSitemapTXT": Theirs(
        f"{COMMONS}/catalog?item=1\n{COMMONS}/catalog?item=11",
        [f"{COMMONS}/catalog?item=1", f"{COMMONS}/catalog?item=11"],
    ),
    "sitemap-with-bom.txt": Theirs(
        f"\ufeff{COMMONS}/page1.html\n{COMMONS}/page2.html",
        [f"{COMMONS}/page1.html", f"{COMMONS}/page2.html"],
    ),
    "testSitemapTXTfilterUrls": Theirs(
        f"www.example.com/catalog?item=1\n{COMMONS}/catalog?item=11#anchor",
        [],
        differs="Its filter adds http://. A text that begins without a URL may be any text.",
        is_broken=True,
    ),
    "testSitemapXML": Theirs(
        f"{XML}<urlset xmlns='{NAMESPACE}'>\n"
        + "".join(
            f" <url>\n  <loc>{place}</loc>\n  <lastmod>2005-01-01</lastmod>\n"
            "  <priority>0.8</priority>\n </url>\n"
            for place in PLACES
        )
        + "</urlset>",
        NAMED,
    ),
    "testSitemapXMLleadingWhiteSpace": Theirs(
        f"\ufeff\n \t\r\n{XML}<urlset><url><loc>{PLACES[1]}</loc></url></urlset>", [NAMED[1]]
    ),
    "testSitemapXMLfilterUrls": Theirs(
        f"<urlset><url><loc>www.example.com/</loc></url>"
        f"<url><loc>{PLACES[1]}#anchor</loc></url></urlset>",
        [NAMED[1]],
        differs="Its filter adds http:// to the first. Without a filter it leaves it out too.",
    ),
    "testSitemapParserBrokenXml": Theirs(
        f"{XML}<urlset xmlns='{NAMESPACE}'><url><!-- This file is not a valid XML file --></url>"
        "<url><loc> http://cs.harding.edu/fmccown/sitemaps/something.html</loc>"
        "</url><!-- missing opening url tag --></url></urlset>",
        ["http://cs.harding.edu/fmccown/sitemaps/something.html"],
        differs="It refuses the file. What can be recognised counts.",
        is_broken=True,
    ),
    "testMissingLocSitemapIndexFile": Theirs(
        f"{XML}<sitemapindex xmlns='{NAMESPACE}'>\n"
        + "".join(f"<sitemap>\n{u.replace('&', '&amp;')}\n</sitemap>\n" for u in WITHOUT_LOC)
        + "</sitemapindex>",
        [],
        WITHOUT_LOC,
    ),
    "testUnclosedSitemapIndexFile": Theirs(
        f"{XML}<sitemapindex> <sitemap>  <loc>{ONE}.xml</loc>  <lastmod>2004-10-01</lastmod>"
        f"<loc>{TWO}.xml</loc> </sitemap></sitemapindex>",
        [],
        [f"{ONE}.xml", f"{TWO}.xml"],
    ),
    "testStripUnicodeWhiteSpace": Theirs(
        f"{XML}<sitemapindex>\n <sitemap>\n  <loc>\n   <![CDATA[ {ONE} ]]>\n  </loc>\n </sitemap>"
        f"<sitemap>\n<loc>\n<![CDATA[\u00a0{TWO} ]]> \u2000\n</loc>\n</sitemap></sitemapindex>",
        [],
        [ONE, TWO],
    ),
    "testSitemapTextGZ": Theirs(gzip.compress(f"{ONE}\n{TWO}\n".encode()), [ONE, TWO]),
    "testSitemapWithInvalidContent": Theirs("this is a bogus sitemap", [], is_broken=True),
    "testLenientParser": Theirs(
        f"{XML}<urlset xmlns='{NAMESPACE}'><url><loc>{COMMONS}/</loc></url></urlset>",
        [f"{COMMONS}/"],
        differs="Its strict parser takes only URLs below the folder of the sitemap. Sites do not"
        " keep to that; the domain counts.",
    ),
    "testAtomFormat": Theirs(
        "<feed xmlns='http://www.w3.org/2005/Atom'>\n\t<title>Example Feed</title>"
        "<link href='http://example.org/feed/' rel='self' /><link href='http://example.org/' />"
        "<id>urn:uuid:60a76c80-d399-11d9-b91C-0003939e0af6</id>"
        "<entry><link href='http://example.org/2003/12/13/atom03' />"
        "<link rel='alternate' type='text/html' href='http://example.org/2003/12/13/atom03.html'/>"
        "<link rel='edit' href='http://example.org/2003/12/13/atom03/edit'/>"
        "<id>urn:uuid:1225c695-cfb8-4ebb-aaaa-80da344efa6a</id></entry></feed>",
        ["http://example.org/2003/12/13/atom03", "http://example.org/2003/12/13/atom03.html"],
        differs="It takes one link of an entry. Each alternate is a page.",
    ),
    "testRSSFormat": Theirs(
        "\n<!-- extended from https://en.wikipedia.org/wiki/RSS#Example -->\n\n<rss version='2.0'>"
        "<channel><link>https://www.example.com/main.html</link>"
        "<item><link>https://www.example.com/blog/post/1</link>"
        "<guid isPermaLink='false'>7bd204c6-1655-4c27-aeee-53f933c5395f</guid></item>"
        "<item><guid isPermaLink='false'>https://www.example.com/guid.html</guid></item>"
        "<item><link>https://www.example.com/foo?q=a&amp;l=en</link></item>"
        "<item><link>https://www.example.com/foo<![CDATA[?q=a&l=fr]]></link></item></channel></rss>",
        [
            "https://www.example.com/blog/post/1",
            "https://www.example.com/foo?q=a&l=en",
            "https://www.example.com/foo?q=a&l=fr",
        ],
        differs="It takes any guid that looks like a URL. This one says that it is none (RSS 2.0).",
    ),
    "testRSS10SyndicationFormat": Theirs(
        "<?xml version='1.0'?><rdf:RDF xmlns:rdf='http://www.w3.org/1999/02/22-rdf-syntax-ns#'"
        " xmlns='http://purl.org/rss/1.0/'><channel rdf:about='http://www.xml.com/xml/news.rss'>"
        f"<link>{COMMONS}/pub</link><image rdf:resource='{COMMONS}/tiny.gif' />"
        f"<items><rdf:Seq><rdf:li resource='{COMMONS}/xslt.html' /></rdf:Seq></items></channel>"
        f"<image rdf:about='{COMMONS}/tiny.gif'><link>http://www.xml.com</link>"
        f"<url>{COMMONS}/tiny.gif</url></image>"
        f"<item rdf:about='{COMMONS}/xslt.html'><link>{COMMONS}/xslt.html</link></item></rdf:RDF>",
        [f"{COMMONS}/xslt.html"],
    ),
    "testPartialSitemapsAllowed": Theirs(
        f"{XML}<urlset xmlns='{NAMESPACE}'><url><loc>{COMMONS}/</lo",
        [f"{COMMONS}/"],
        is_broken=True,
    ),
    "testPartialSitemapIndicesAllowed": Theirs(
        f"{XML}<sitemapindex><sitemap><loc>{COMMONS}/sitemap1.xml.gz</loc><las",
        [],
        [f"{COMMONS}/sitemap1.xml.gz"],
        is_broken=True,
    ),
    "testUrlLocUrl": Theirs(
        f"{XML}<urlset xmlns='{NAMESPACE}'><url><loc><url><![CDATA[{ONE}]]></url></loc>"
        "<lastmod>2015-04-28</lastmod></url></urlset>",
        [ONE],
    ),
    "sitemap-links.xml": Theirs(
        f"{XML}<urlset xmlns='{NAMESPACE}' xmlns:xhtml='http://www.w3.org/1999/xhtml'><url>"
        f"<loc>{ONE}</loc><xhtml:link rel='alternate' hreflang='de' href='{TWO}' /></url></urlset>",
        [ONE],
    ),
    "a root that it does not know": Theirs(
        f"<sitemaps><urlset><url><loc>{ONE}</loc></url></urlset></sitemaps>",
        [],
        differs="It looks within. So a page of HTML would have to be read to its end.",
        is_broken=True,
    ),
}


@table("name", CRAWLER_COMMONS)
def test_sitemaps_of_crawler_commons(name: str) -> None:
    case = CRAWLER_COMMONS[name]
    found = read(case.body, "http://www.example.com/subsection/sitemap.xml")
    assert (found.urls, found.sitemap.children) == (case.pages, case.children), case.differs
    assert (found.sitemap.error is not None) is case.is_broken
