"""The meaning of rules: RFC 9309 by its sections, and common mistakes of authors."""

from __future__ import annotations

from krowlspider.politeness.robots import RobotsRules
from tests.support.tables import table


def allowed(text: str | bytes, path: str) -> bool:
    body = text if isinstance(text, bytes) else text.encode()
    return RobotsRules.parse(body, "krowlspider").allowed(f"https://example.com{path}")


# RFC 9309, section 5.1.
SIMPLE_EXAMPLE = """
User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""

# crawler-commons, src/test/resources/robots/crawl-delay-group-merging.txt.
DELAYS_BETWEEN = """
User-agent: {}
Crawl-delay: 10
User-agent: {}
Disallow: /private/  # Per RFC9309 (group merging): applies to both

User-agent: *
Allow: /

User-agent: {}
Disallow: /login/

User-agent: *
Crawl-delay: 30
"""

# google/robotstxt, robots_test.cc, ID_LineSyntax_Groups.
GOOGLE_GROUPS = """allow: /foo/bar/

user-agent: FooBot
disallow: /
allow: /x/
user-agent: BarBot
disallow: /
allow: /y/


allow: /w/
user-agent: BazBot

user-agent: FooBot
allow: /z/
disallow: /
"""

# Lines below "User-agent: *", a path, and whether it is allowed.
OF_EVERYONE: dict[str, tuple[str, str, bool]] = {
    "everyone's group": ("Disallow: /", "/a", False),
    "ours goes before everyone's": (
        "Disallow: /\nUser-agent: krowlspider\nDisallow: /b",
        "/a",
        True,
    ),
    "a second group of everyone counts": (
        "Disallow: /b\nUser-agent: x\nDisallow: /c\nUser-agent: *\nDisallow: /a",
        "/a",
        False,
    ),
    "a crawl delay between agents, and an Allow": (
        "Crawl-delay: 5\nUser-agent: x\nAllow: /\nUser-agent: *\nDisallow: /",
        "/a",
        True,
    ),
    "a crawl delay after a rule does not end the group": (
        "Disallow: /b\nCrawl-delay: 5\nDisallow: /a",
        "/a",
        False,
    ),
    "an unknown line within the rules is nothing": (
        "Disallow: /b\nNoindex: /c\n<p>\nDisallow: /a",
        "/a",
        False,
    ),
    "an agent that cannot be is another": (
        "Disallow: /b\nUser-agent: 5eme\nDisallow: /",
        "/a",
        True,
    ),
    "an empty agent is another": ("Disallow: /b\nUser-agent:\nDisallow: /", "/a", True),
    "the longest match wins": ("Allow: /a/public\nDisallow: /a", "/a/public/x", True),
    "whatever the order": ("Disallow: /a/b\nAllow: /a", "/a/b", False),
    "Allow wins a tie": ("Disallow: /a\nAllow: /a", "/a", True),
    "Allow wins a tie that it begins": ("Allow: /a\nDisallow: /a", "/a", True),
    "a rule is a prefix": ("Disallow: /a", "/abc?d", False),
    "a rule heeds case": ("Disallow: /A", "/a", True),
    "a rule reads the query": ("Disallow: /*?print", "/a?print=1", False),
    "* is anything": ("Disallow: /*.php", "/a/b.php5", False),
    "$ is the end": ("Disallow: /*.php$", "/a/b.php5", True),
    "$ is the end, reached": ("Disallow: /*.php$", "/a/b.php", False),
    "only / itself": ("Allow: /$\nDisallow: /", "/a", False),
    "text that begins as a byte order mark does": ("Disallow: /Ａ", "/%EF%BC%A1", False),
    "escapes ignore case": ("Disallow: /%c3%a4", "/%C3%A4", False),
    "an escaped slash is no slash": ("Disallow: /a%2Fb", "/a/b", True),
    "an escaped * is a *": ("Disallow: /a%2A", "/abc", True),
    "a comment is no rule": ("#Disallow: /", "/a", True),
    "a rule without a slash": ("Disallow: a", "/a", True),
    "one group for everyone and us is ours": ("User-agent: krowlspider\nDisallow: /a", "/a", False),
    "a group at the end of the file without rules allows all": (
        "Disallow: /\nUser-agent: krowlspider",
        "/a",
        True,
    ),
    # Section 2.2.2: which rule matches.
    "matching starts at the first octet of the path": ("Disallow: /b", "/a/b", True),
    "an empty Disallow disallows nothing": ("Disallow:", "/a", True),
    "an empty Allow allows nothing": ("Allow:\nDisallow: /", "/a", False),
    "a directory is not the page of its name": ("Disallow: /fish/", "/fish", True),
    "a directory and what is in it": ("Disallow: /fish/", "/fish/a?b", False),
    "a page is the directory of its name too": ("Disallow: /fish", "/fish/a", False),
    "the longest match is that of the most octets": (
        "Allow: /page\nDisallow: /*.htm",
        "/page.htm",
        False,
    ),
    "or of one octet more": ("Allow: /page.h\nDisallow: /*.htm", "/page.htm", True),
    "$ is an octet": ("Allow: /$\nDisallow: /", "/", True),
    "a * is an octet": ("Disallow: /a*\nAllow: /a", "/ab", False),
    "an escape of what must be escaped is three": ("Allow: /é\nDisallow: /*****", "/%C3%A9", True),
    "an escape of what need not be is one": ("Allow: /%62\nDisallow: /**", "/b", False),
    "Allow wins a tie of a prefix and a wildcard": ("Disallow: /abc\nAllow: /a*c", "/abc", True),
    "Allow wins a tie the other way": ("Allow: /abc\nDisallow: /a*c", "/abc", True),
    "Allow wins a tie of ends": ("Disallow: /a$\nAllow: /ab", "/ab", True),
    "a query and its =": ("Disallow: /foo/bar?baz=quz", "/foo/bar?baz=quz", False),
    "an escaped : of a query is a :": (
        "Disallow: /foo/bar?baz=https%3A",
        "/foo/bar?baz=https:",
        False,
    ),
    "a : of a query is an escaped one": (
        "Disallow: /foo/bar?baz=https:",
        "/foo/bar?baz=https%3A",
        False,
    ),
    # By the RFC's example these two match. As in Google's parser, they do not.
    "an escaped slash of a query is no slash": (
        "Disallow: /foo/bar?baz=https%3A%2F%2Ffoo.bar",
        "/foo/bar?baz=https://foo.bar",
        True,
    ),
    "a slash of a query is no escaped one": (
        "Disallow: /foo/bar?baz=https://foo.bar",
        "/foo/bar?baz=https%3A%2F%2Ffoo.bar",
        True,
    ),
    "Japanese as it is": ("Disallow: /foo/bar/ツ", "/foo/bar/%E3%83%84", False),
    "Japanese escaped": ("Disallow: /foo/bar/%E3%83%84", "/foo/bar/%E3%83%84", False),
    "unreserved letters escaped": ("Disallow: /foo/bar/%62%61%7A", "/foo/bar/baz", False),
    "unreserved letters escaped in the URL": (
        "Disallow: /foo/bar/baz",
        "/foo/bar/%62%61%7a",
        False,
    ),
    "an escaped % begins no escape": ("Disallow: /%2562", "/b", True),
    "a % that is none": ("Disallow: /100%", "/100%/a", False),
    "half an escape": ("Disallow: /a%4", "/a%4", False),
    "an escaped NUL": ("Disallow: /%00", "/%00", False),
    # Section 2.2.3: special characters.
    "* may be nothing": ("Disallow: /a*b", "/ab", False),
    "* at the end is nothing more": ("Disallow: /fish*", "/fish.html", False),
    "many * are as one": ("Disallow: /a***b", "/axb", False),
    "* at the beginning": ("Disallow: *.gif", "/a/b.gif", False),
    "* alone is everything": ("Disallow: *", "/", False),
    "* and $ alone are everything": ("Disallow: *$", "/a", False),
    "$ alone is nothing": ("Disallow: $", "/", True),
    "what is between two * comes once for each": ("Disallow: /*ab*ab", "/ab", True),
    "parts do not overlap": ("Disallow: /*aba*ba$", "/ababa", False),
    "parts that would overlap": ("Disallow: /*aba*ba$", "/aba", True),
    "the last part is at the end": ("Disallow: /*a$", "/aba", False),
    "$ in the middle is a $": ("Disallow: /a$b", "/a$bc", False),
    "$ in the middle ends nothing": ("Disallow: /a$b", "/a", True),
    "$ before a * is a $": ("Disallow: /a$*", "/ab", True),
    "an escaped $ is no end, where it ends": ("Disallow: /a%24", "/a", True),
    "$ is the end of the query": ("Disallow: /*.php$", "/a.php?b", True),
    "an escaped * is a * in the URL": (
        "Disallow: /path/file-with-a-%2A.html",
        "/path/file-with-a-*.html",
        False,
    ),
    "a * of the URL may be anything's": ("Disallow: /a*c", "/a*c", False),
    "a * of the URL is anything but nothing special": ("Disallow: /ab", "/a*", True),
    # Section 2.2.4: other records.
    "a sitemap within the rules": (
        "Disallow: /b\nSitemap: https://example.com/s\nDisallow: /a",
        "/a",
        False,
    ),
    "crawler-commons' krugle, googlebot": (
        (
            "Disallow: /perl/\nCrawl-delay: 3\n\nUser-agent: krowlspider\nCrawl-delay: 1\n\n"
            "User-agent: qihoobot\nDisallow: /"
        ),
        "/",
        False,
    ),
    "crawler-commons' krugle, any other": (
        (
            "Disallow: /perl/\nCrawl-delay: 3\n\nUser-agent: googlebot\nCrawl-delay: 1\n\n"
            "User-agent: qihoobot\nDisallow: /"
        ),
        "/a",
        True,
    ),
    "words after a name": ("Disallow all of this: /a", "/a", False),
    "no name of ours": ("Dis: /a\nxDisallow: /a\nNo-Disallow: /a", "/a", True),
    "a sentence is no rule": ("Disallow / for all", "/a", True),
    "a NUL ends a line as a comment does": ("Disallow: /a\x00b", "/ac", False),
    "a whole URL is no path": ("Disallow: https://example.com/a", "/a", True),
}
# The same with a whole robots.txt.
RULES: dict[str, tuple[str, str, bool]] = {
    name: (f"User-agent: *\n{lines}", path, allows)
    for name, (lines, path, allows) in OF_EVERYONE.items()
} | {
    "nothing": ("", "/a", True),
    "no group": ("Disallow: /", "/a", True),
    "our group": ("User-agent: krowlspider\nDisallow: /a", "/ab", False),
    "another's group": ("User-agent: other\nDisallow: /", "/a", True),
    "ours without rules goes before everyone's": (
        "User-agent: krowlspider\nDisallow:\n\nUser-agent: *\nDisallow: /",
        "/a",
        True,
    ),
    "groups of one agent are merged": (
        "User-agent: krowlspider\nDisallow: /b\nUser-agent: KROWLSPIDER\nDisallow: /a",
        "/a",
        False,
    ),
    "merging keeps the first": (
        "User-agent: krowlspider\nDisallow: /b\n\nUser-agent: krowlspider\nDisallow: /a",
        "/b",
        False,
    ),
    "an empty Disallow ends the agents of a group": (
        "User-agent:*\nDisallow:\n\nUser-agent:BadBot\nDisallow:/",
        "/a",
        True,
    ),
    **{
        f"{line} does not end the agents of a group": (
            f"User-agent: *\n{line}\n\nUser-agent: BadBot\nDisallow: /",
            "/a",
            False,
        )
        for line in (
            *("Crawl-delay: 5", "Crawl-delay: soon", "Crawl delay: 5", "Crawl-delay"),
            *("Request-rate: 1/5", "Visit-time: 0600-0845", "Host: example.com"),
            *("Sitemap: https://example.com/s", "Clean-param: s /forum", "Cache-delay: 5"),
            *("Content-Signal: search=yes", "Noindex: /a", "x", "x: y", ":", "# x", "", "<p>"),
            *("User-agent: ", "Disallowing", "Allow / a"),
        )
    },
    "all lines but rules between agents": (
        (
            "User-agent: krowlspider\nCrawl-delay: 5\n\nUser-agent: y\n# z\nSitemap: /s"
            "\nRequest-rate: 1/5\nUser-agent: z\n\n\nDisallow: /a\nUser-agent: *\nDisallow: /b"
        ),
        "/a",
        False,
    ),
    "an agent with a version": ("User-agent: krowlspider/1.0\nDisallow: /", "/a", False),
    "an agent with words after it": ("User-agent: krowlspider images\nDisallow: /", "/a", False),
    "everyone with words after it": ("User-agent: * all\nDisallow: /", "/a", False),
    "a shorter agent is another": ("User-agent: krowl\nDisallow: /", "/a", True),
    "a longer agent is another": ("User-agent: krowlspider-news\nDisallow: /", "/a", True),
    "an agent within ours is another": ("User-agent: spider\nDisallow: /", "/a", True),
    "a name we use inside is another": ("User-agent: us\nDisallow: /", "/a", True),
    "a comment ends a line": ("User-agent: * # all\nDisallow: /a#b", "/a", False),
    "spaces do not matter": (" User-agent : *\n\tDisallow :/a ", "/a", False),
    "a missing colon": ("User-agent krowlspider\nDisallow /a", "/a", False),
    "a common misspelling": ("Useragent: *\nDissalow: /a", "/a", False),
    # Section 2.2.1: user agents.
    "the name of a line and a token ignore case": (
        "uSER-aGENT: KROWLspider\ndISALLOW: /a",
        "/a",
        False,
    ),
    "several agents share a later group": (
        "User-agent: x\nDisallow: /b\nUser-agent: krowlspider\nUser-agent: y\nDisallow: /",
        "/a",
        False,
    ),
    "blank lines and comments do not end a group": (
        "User-agent: krowlspider\n\n# so\n\nDisallow: /b\n\nDisallow: /a",
        "/a",
        False,
    ),
    "rules before any user agent are nobody's": (
        "Disallow: /a\nUser-agent: *\nDisallow: /b",
        "/a",
        True,
    ),
    # Reference vectors of Google and crawler-commons for groups.
    **{
        f"Google's groups, {name} and {path}": (
            GOOGLE_GROUPS.replace(name, "krowlspider"),
            path,
            allows,
        )
        for name, path, allows in (
            *(("FooBot", "/x/b", True), ("FooBot", "/y/c", False)),
            *(("BarBot", "/y/c", True), ("BarBot", "/w/a", True), ("BarBot", "/z/d", False)),
            *(("BazBot", "/z/d", True), ("FooBot", "/foo/bar/", False)),
            *(("BarBot", "/foo/bar/", False), ("BazBot", "/foo/bar/", False)),
        )
    },
    "Google's sitemap between agents": (
        "User-agent: krowlspider\nSitemap: https://foo.bar/sitemap\nUser-agent: *\nDisallow: /\n",
        "/",
        False,
    ),
    "Google's unknown line between agents": (
        "User-agent: krowlspider\nInvalid-Unknown-Line: unknown\nUser-agent: *\nDisallow: /\n",
        "/",
        False,
    ),
    "crawler-commons' delay, above, private": (
        DELAYS_BETWEEN.format("krowlspider", "yourbot", "yourbot"),
        "/private/",
        False,
    ),
    "crawler-commons' delay, above, login": (
        DELAYS_BETWEEN.format("krowlspider", "yourbot", "yourbot"),
        "/login/",
        True,
    ),
    "crawler-commons' delay, below, private": (
        DELAYS_BETWEEN.format("mybot", "krowlspider", "krowlspider"),
        "/private/",
        False,
    ),
    "crawler-commons' delay, below, login": (
        DELAYS_BETWEEN.format("mybot", "krowlspider", "krowlspider"),
        "/login/",
        False,
    ),
    "crawler-commons' delay, any other": (
        DELAYS_BETWEEN.format("mybot", "yourbot", "yourbot"),
        "/private/",
        True,
    ),
    "crawler-commons' unsupported field": (
        (
            "User-agent: crawler1\r\nDisallow: /index.html\r\nAllow: /\r\nnewfield: 234\r\n"
            "User-agent: krowlspider\r\nDisallow: /"
        ),
        "/anypage.html",
        False,
    ),
    "crawler-commons' extensions between agents": (
        (
            "Content-Signal: search=yes,ai-train=yes\n\nUser-agent: *\nAllow: /llms.txt\n"
            "Visit-time: 0600-0845\n\nUser-agent: mybot\n"
            "Request-rate: 10/1m\nUser-agent: krowlspider\nDisallow: /private/\n\n"
            "User-agent: *\nDisallow: /\n"
        ),
        "/private/",
        False,
    ),
    "crawler-commons' merged groups, allowed": (
        (
            "User-Agent: testy\nDisallow: /\n\nUser-Agent: krowlspider\nAllow: /foo/bar\n\n"
            "User-Agent: *\nUser-Agent: krowlspider\nDisallow: /foo/bar\nDisallow: /tmp/bar"
        ),
        "/foo/bar/bar.txt",
        True,
    ),
    # Section 5.1: the simple example.
    "the simple example allows": (SIMPLE_EXAMPLE, "/publications/a", True),
    "the simple example disallows": (SIMPLE_EXAMPLE, "/a/b.gif", False),
    # Section 5.2: the longest match.
    "the example of the longest match": (
        "User-Agent: krowlspider\nAllow: /example/page/\nDisallow: /example/page/disallowed.gif",
        "/example/page/disallowed.gif",
        False,
    ),
    # What is found in the wild.
    "other letters in a name": ("User-agents: *\nDisallowed: /a", "/a", False),
    "tabs": ("User-agent:\t*\nDisallow\t/a\t#b", "/a", False),
    "a page of HTML": (
        "<!DOCTYPE html><html><body>\n<p>User-agent: *</p>\n<p>Disallow: /</p></body></html>",
        "/a",
        True,
    ),
    "JSON": ('{"User-agent": "*",\n"Disallow": "/"}', "/a", True),
}


@table("name", RULES)
def test_rules(name: str) -> None:
    text, path, expected = RULES[name]
    assert allowed(text, path) is expected
