"""The meaning of rules: RFC 9309 by its sections, and common mistakes of authors."""

from __future__ import annotations

import pytest

from krowlspider.politeness.robots import RobotsRules


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

# Text, path, and whether the path is allowed.
RULES: dict[str, tuple[str, str, bool]] = {
    "nothing": ("", "/a", True),
    "no group": ("Disallow: /", "/a", True),
    "our group": ("User-agent: krowlspider\nDisallow: /a", "/ab", False),
    "another's group": ("User-agent: other\nDisallow: /", "/a", True),
    "everyone's group": ("User-agent: *\nDisallow: /", "/a", False),
    "ours goes before everyone's": (
        "User-agent: *\nDisallow: /\nUser-agent: krowlspider\nDisallow: /b",
        "/a",
        True,
    ),
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
    "a second group of everyone counts": (
        "User-agent: *\nDisallow: /b\nUser-agent: x\nDisallow: /c\nUser-agent: *\nDisallow: /a",
        "/a",
        False,
    ),
    "several agents share a group": (
        "User-agent: x\nUser-agent: krowlspider\n\nUser-agent: y\nDisallow: /",
        "/a",
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
    "a crawl delay between agents, and an Allow": (
        "User-agent: *\nCrawl-delay: 5\nUser-agent: x\nAllow: /\nUser-agent: *\nDisallow: /",
        "/a",
        True,
    ),
    "a crawl delay after a rule begins no group": (
        "User-agent: *\nDisallow: /b\nCrawl-delay: 5\nUser-agent: BadBot\nDisallow: /",
        "/a",
        True,
    ),
    "a crawl delay after a rule does not end the group": (
        "User-agent: *\nDisallow: /b\nCrawl-delay: 5\nDisallow: /a",
        "/a",
        False,
    ),
    "all lines but rules between agents": (
        (
            "User-agent: krowlspider\nCrawl-delay: 5\n\nUser-agent: y\n# z\nSitemap: /s\n"
            "Request-rate: 1/5\nUser-agent: z\n\n\nDisallow: /a\nUser-agent: *\nDisallow: /b"
        ),
        "/a",
        False,
    ),
    "an unknown line within the rules is nothing": (
        "User-agent: *\nDisallow: /b\nNoindex: /c\n<p>\nDisallow: /a",
        "/a",
        False,
    ),
    "a sitemap does not": (
        "User-agent: *\nSitemap: https://example.com/s\nUser-agent: x\nDisallow: /",
        "/a",
        False,
    ),
    "agents ignore case": ("USER-AGENT: KrowlSpider\nDISALLOW: /a", "/a", False),
    "an agent with a version": ("User-agent: krowlspider/1.0\nDisallow: /", "/a", False),
    "an agent with words after it": ("User-agent: krowlspider images\nDisallow: /", "/a", False),
    "everyone with words after it": ("User-agent: * all\nDisallow: /", "/a", False),
    "a shorter agent is another": ("User-agent: krowl\nDisallow: /", "/a", True),
    "a longer agent is another": ("User-agent: krowlspider-news\nDisallow: /", "/a", True),
    "an agent within ours is another": ("User-agent: spider\nDisallow: /", "/a", True),
    "a name we use inside is another": ("User-agent: us\nDisallow: /", "/a", True),
    "an agent that cannot be is another": (
        "User-agent: *\nDisallow: /b\nUser-agent: 5eme\nDisallow: /",
        "/a",
        True,
    ),
    "an empty agent is another": (
        "User-agent: *\nDisallow: /b\nUser-agent:\nDisallow: /",
        "/a",
        True,
    ),
    "the longest match wins": (
        "User-agent: *\nAllow: /a/public\nDisallow: /a",
        "/a/public/x",
        True,
    ),
    "whatever the order": ("User-agent: *\nDisallow: /a/b\nAllow: /a", "/a/b", False),
    "Allow wins a tie": ("User-agent: *\nDisallow: /a\nAllow: /a", "/a", True),
    "Allow wins a tie that it begins": ("User-agent: *\nAllow: /a\nDisallow: /a", "/a", True),
    "a rule is a prefix": ("User-agent: *\nDisallow: /a", "/abc?d", False),
    "a rule heeds case": ("User-agent: *\nDisallow: /A", "/a", True),
    "a rule reads the query": ("User-agent: *\nDisallow: /*?print", "/a?print=1", False),
    "* is anything": ("User-agent: *\nDisallow: /*.php", "/a/b.php5", False),
    "$ is the end": ("User-agent: *\nDisallow: /*.php$", "/a/b.php5", True),
    "$ is the end, reached": ("User-agent: *\nDisallow: /*.php$", "/a/b.php", False),
    "only / itself": ("User-agent: *\nAllow: /$\nDisallow: /", "/a", False),
    "text is as its escape": ("User-agent: *\nDisallow: /ä", "/%C3%A4", False),
    "text that begins as a byte order mark does": (
        "User-agent: *\nDisallow: /Ａ",
        "/%EF%BC%A1",
        False,
    ),
    "an escape is as its text": ("User-agent: *\nDisallow: /%62%61z", "/baz", False),
    "escapes ignore case": ("User-agent: *\nDisallow: /%c3%a4", "/%C3%A4", False),
    "an escaped slash is no slash": ("User-agent: *\nDisallow: /a%2Fb", "/a/b", True),
    "an escaped * is a *": ("User-agent: *\nDisallow: /a%2A", "/abc", True),
    "a space is as its escape": ("User-agent: *\nDisallow: /a b", "/a%20b", False),
    "a comment ends a line": ("User-agent: * # all\nDisallow: /a#b", "/a", False),
    "a comment is no rule": ("User-agent: *\n#Disallow: /", "/a", True),
    "spaces do not matter": (" User-agent : *\n\tDisallow :/a ", "/a", False),
    "a missing colon": ("User-agent krowlspider\nDisallow /a", "/a", False),
    "a common misspelling": ("Useragent: *\nDissalow: /a", "/a", False),
    "a rule without a slash": ("User-agent: *\nDisallow: a", "/a", True),
    # Section 2.2.1: user agents.
    "the name of a line and a token ignore case": (
        "uSER-aGENT: KROWLspider\ndISALLOW: /a",
        "/a",
        False,
    ),
    "everyone's rules are not ours where we have a group": (
        "User-agent: *\nDisallow: /a\nUser-agent: krowlspider\nDisallow: /b",
        "/a",
        True,
    ),
    "several agents share a later group": (
        "User-agent: x\nDisallow: /b\nUser-agent: krowlspider\nUser-agent: y\nDisallow: /",
        "/a",
        False,
    ),
    "one group for everyone and us is ours": (
        "User-agent: *\nUser-agent: krowlspider\nDisallow: /a",
        "/a",
        False,
    ),
    "a group at the end of the file without rules allows all": (
        "User-agent: *\nDisallow: /\nUser-agent: krowlspider",
        "/a",
        True,
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
    # Section 2.2.2: which rule matches.
    "matching starts at the first octet of the path": ("User-agent: *\nDisallow: /b", "/a/b", True),
    "an empty Disallow disallows nothing": ("User-agent: *\nDisallow:", "/a", True),
    "an empty Allow allows nothing": ("User-agent: *\nAllow:\nDisallow: /", "/a", False),
    "a directory is not the page of its name": ("User-agent: *\nDisallow: /fish/", "/fish", True),
    "a directory and what is in it": ("User-agent: *\nDisallow: /fish/", "/fish/a?b", False),
    "a page is the directory of its name too": ("User-agent: *\nDisallow: /fish", "/fish/a", False),
    "the longest match is that of the most octets": (
        "User-agent: *\nAllow: /page\nDisallow: /*.htm",
        "/page.htm",
        False,
    ),
    "or of one octet more": ("User-agent: *\nAllow: /page.h\nDisallow: /*.htm", "/page.htm", True),
    "$ is an octet": ("User-agent: *\nAllow: /$\nDisallow: /", "/", True),
    "a * is an octet": ("User-agent: *\nDisallow: /a*\nAllow: /a", "/ab", False),
    "an escape of what must be escaped is three": (
        "User-agent: *\nAllow: /\u00e9\nDisallow: /*****",
        "/%C3%A9",
        True,
    ),
    "an escape of what need not be is one": (
        "User-agent: *\nAllow: /%62\nDisallow: /**",
        "/b",
        False,
    ),
    "Allow wins a tie of a prefix and a wildcard": (
        "User-agent: *\nDisallow: /abc\nAllow: /a*c",
        "/abc",
        True,
    ),
    "Allow wins a tie the other way": ("User-agent: *\nAllow: /abc\nDisallow: /a*c", "/abc", True),
    "Allow wins a tie of ends": ("User-agent: *\nDisallow: /a$\nAllow: /ab", "/ab", True),
    "a query and its =": ("User-agent: *\nDisallow: /foo/bar?baz=quz", "/foo/bar?baz=quz", False),
    "an escaped : of a query is a :": (
        "User-agent: *\nDisallow: /foo/bar?baz=https%3A",
        "/foo/bar?baz=https:",
        False,
    ),
    "a : of a query is an escaped one": (
        "User-agent: *\nDisallow: /foo/bar?baz=https:",
        "/foo/bar?baz=https%3A",
        False,
    ),
    # By the RFC's example these two match. As in Google's parser, they do not.
    "an escaped slash of a query is no slash": (
        "User-agent: *\nDisallow: /foo/bar?baz=https%3A%2F%2Ffoo.bar",
        "/foo/bar?baz=https://foo.bar",
        True,
    ),
    "a slash of a query is no escaped one": (
        "User-agent: *\nDisallow: /foo/bar?baz=https://foo.bar",
        "/foo/bar?baz=https%3A%2F%2Ffoo.bar",
        True,
    ),
    "Japanese as it is": ("User-agent: *\nDisallow: /foo/bar/\u30c4", "/foo/bar/%E3%83%84", False),
    "Japanese escaped": (
        "User-agent: *\nDisallow: /foo/bar/%E3%83%84",
        "/foo/bar/%E3%83%84",
        False,
    ),
    "unreserved letters escaped": (
        "User-agent: *\nDisallow: /foo/bar/%62%61%7A",
        "/foo/bar/baz",
        False,
    ),
    "unreserved letters escaped in the URL": (
        "User-agent: *\nDisallow: /foo/bar/baz",
        "/foo/bar/%62%61%7a",
        False,
    ),
    "an escaped % begins no escape": ("User-agent: *\nDisallow: /%2562", "/b", True),
    "a % that is none": ("User-agent: *\nDisallow: /100%", "/100%/a", False),
    "half an escape": ("User-agent: *\nDisallow: /a%4", "/a%4", False),
    "an escaped ? is a ?": ("User-agent: *\nDisallow: /a%3Fb", "/a?b", False),
    "an escaped NUL": ("User-agent: *\nDisallow: /%00", "/%00", False),
    # Section 2.2.3: special characters.
    "* may be nothing": ("User-agent: *\nDisallow: /a*b", "/ab", False),
    "* at the end is nothing more": ("User-agent: *\nDisallow: /fish*", "/fish.html", False),
    "many * are as one": ("User-agent: *\nDisallow: /a***b", "/axb", False),
    "* at the beginning": ("User-agent: *\nDisallow: *.gif", "/a/b.gif", False),
    "* alone is everything": ("User-agent: *\nDisallow: *", "/", False),
    "* and $ alone are everything": ("User-agent: *\nDisallow: *$", "/a", False),
    "$ alone is nothing": ("User-agent: *\nDisallow: $", "/", True),
    "what is between two * comes once for each": ("User-agent: *\nDisallow: /*ab*ab", "/ab", True),
    "parts do not overlap": ("User-agent: *\nDisallow: /*aba*ba$", "/ababa", False),
    "parts that would overlap": ("User-agent: *\nDisallow: /*aba*ba$", "/aba", True),
    "the last part is at the end": ("User-agent: *\nDisallow: /*a$", "/aba", False),
    "$ in the middle is a $": ("User-agent: *\nDisallow: /a$b", "/a$bc", False),
    "$ in the middle ends nothing": ("User-agent: *\nDisallow: /a$b", "/a", True),
    "$ before a * is a $": ("User-agent: *\nDisallow: /a$*", "/ab", True),
    "an escaped $ is no end": ("User-agent: *\nDisallow: /a%24", "/a$b", False),
    "an escaped $ is no end, where it ends": ("User-agent: *\nDisallow: /a%24", "/a", True),
    "$ is the end of the query": ("User-agent: *\nDisallow: /*.php$", "/a.php?b", True),
    "an escaped * is a * in the URL": (
        "User-agent: *\nDisallow: /path/file-with-a-%2A.html",
        "/path/file-with-a-*.html",
        False,
    ),
    "a * of the URL may be anything's": ("User-agent: *\nDisallow: /a*c", "/a*c", False),
    "a * of the URL is anything but nothing special": ("User-agent: *\nDisallow: /ab", "/a*", True),
    # Section 2.2.4: other records.
    "a sitemap within the rules": (
        "User-agent: *\nDisallow: /b\nSitemap: https://example.com/s\nDisallow: /a",
        "/a",
        False,
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
    "crawler-commons' krugle, googlebot": (
        (
            "User-agent: *\nDisallow: /perl/\nCrawl-delay: 3\n\nUser-agent: krowlspider\n"
            "Crawl-delay: 1\n\nUser-agent: qihoobot\nDisallow: /"
        ),
        "/",
        False,
    ),
    "crawler-commons' krugle, any other": (
        (
            "User-agent: *\nDisallow: /perl/\nCrawl-delay: 3\n\nUser-agent: googlebot\n"
            "Crawl-delay: 1\n\nUser-agent: qihoobot\nDisallow: /"
        ),
        "/a",
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
            "Visit-time: 0600-0845\n\nUser-agent: mybot\nRequest-rate: 10/1m\n"
            "User-agent: krowlspider\nDisallow: /private/\n\nUser-agent: *\nDisallow: /\n"
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
    "words after a name": ("User-agent: *\nDisallow all of this: /a", "/a", False),
    "no name of ours": ("User-agent: *\nDis: /a\nxDisallow: /a\nNo-Disallow: /a", "/a", True),
    "a sentence is no rule": ("User-agent: *\nDisallow / for all", "/a", True),
    "a missing colon, but for one in the path": (
        "User-agent: *\nDisallow /wiki/Special:Search",
        "/wiki/Special:Search?a",
        False,
    ),
    "a missing colon of two words": ("User agent *\nDisallow /a", "/a", False),
    "tabs": ("User-agent:\t*\nDisallow\t/a\t#b", "/a", False),
    "a NUL ends a line as a comment does": ("User-agent: *\nDisallow: /a\0b", "/ac", False),
    "a whole URL is no path": ("User-agent: *\nDisallow: https://example.com/a", "/a", True),
    "a page of HTML": (
        "<!DOCTYPE html><html><body>\n<p>User-agent: *</p>\n<p>Disallow: /</p></body></html>",
        "/a",
        True,
    ),
    "JSON": ('{"User-agent": "*",\n"Disallow": "/"}', "/a", True),
    "a space that does not break": ("User-agent:\u00a0*\nDisallow:\u00a0/a", "/a", False),
}


@pytest.mark.parametrize("name", RULES)
def test_rules(name: str) -> None:
    text, path, expected = RULES[name]
    assert allowed(text, path) is expected
