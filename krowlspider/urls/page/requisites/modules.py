"""Find what a module of JavaScript imports: ``import`` and ``export ... from`` declarations.

They are all that a browser loads before a module runs. ``import()`` loads when it runs, so it is
left out. This is no parser: it passes over comments, strings, templates and regular expressions, in
time linear in the length of the text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from krowlspider.urls.page.requisites.found import (
    MAX_REQUISITES,
    ImportMap,
    References,
    Requisites,
    absolute,
)
from krowlspider.urls.page.requisites.requisite import MODULE, OTHER, STYLE

if TYPE_CHECKING:
    from collections.abc import Iterator


# Bytes of a module that are read.
MODULE_MAX = 1024 * 1024

# In code: comments and strings, which are passed over, and what the reader has to look at.
_SKIPPED = r"""
        (?<=/)/[^\n]*+
      | (?<=/)\*.*?(?:\*/|\Z)
      | (?<=")(?:[^"\\\n]++|\\.?)*+"?
      | (?<=')(?:[^'\\\n]++|\\.?)*+'?
      | (?<=i)(?<![\w$.\#]i)mport(?![\w$])
      | (?<=e)(?<![\w$.\#]e)xport(?![\w$])
"""
_TOKEN = re.compile(rf"""["'`/ie](?:{_SKIPPED}|(?<=[`/]))""", re.VERBOSE | re.DOTALL)
# In the expression of a template, which ends at its brace.
_BRACED = re.compile(rf"""["'`/ie{{}}](?:{_SKIPPED}|(?<=[`/{{}}]))""", re.VERBOSE | re.DOTALL)
_IN_TEMPLATE = re.compile(r"\\.|`|\$\{", re.DOTALL)
# The body of a regular expression, up to its "/" or the end of the line.
_PATTERN = re.compile(r"(?:[^\\/\[\n]++|\\.?|\[(?:[^\]\\\n]++|\\.?)*+\]?)*+")

# A comment matches in one way only, so nothing is tried again.
_COMMENT = r"(?:/\*[^*]*+\*++(?:[^/*][^*]*+\*++)*/|//[^\n]*+)"
_BLANK = rf"\s*+(?:{_COMMENT}\s*+)*"
_NAME, _NAMES = r"[\w$]++", rf"\{{(?:[^{{}}/]++|{_COMMENT})*\}}"
_MODULE = r"""(?:"([^"\\\n]*+)"|'([^'\\\n]*+)')"""
_TYPE = (
    rf"(?:{_BLANK}(?:with|assert){_BLANK}\{{{_BLANK}[\"']?type[\"']?{_BLANK}:{_BLANK}"
    r"[\"'](\w++)[\"'])?"
)
_ALL_AS = rf"\*{_BLANK}as\b{_BLANK}{_NAME}{_BLANK}"
_IMPORT = re.compile(
    rf"{_BLANK}(?:(?:{_NAME}{_BLANK},?{_BLANK})?(?:{_ALL_AS}|{_NAMES}{_BLANK})?from{_BLANK})?"
    rf"{_MODULE}{_TYPE}"
)
_EXPORT = re.compile(
    rf"{_BLANK}(?:\*{_BLANK}(?:as\b{_BLANK}(?:{_NAME}|\"[^\"\n]*+\"){_BLANK})?|{_NAMES}{_BLANK})"
    rf"from{_BLANK}{_MODULE}{_TYPE}"
)
_TYPES = {"": MODULE, "css": STYLE}

# A regular expression may follow these characters, and these words; after all else "/" divides.
_OPERATORS = frozenset("(,=:[!&|?;{+*%~^<>-")
_WORD = re.compile(r"(?<![\w$.])(?:return|typeof|case|in|of|do|else|void|delete|throw)\Z")
# Their last characters, and blanks.
_MAYBE = _OPERATORS | frozenset("nfeodw \t\r\n")
# Characters before a "/" that are looked at.
_LOOK_BACK = 64


def imports_in(script: str) -> Iterator[tuple[str, str]]:
    """Yield (name, kind) of each module, style sheet or other file that a module imports."""
    last = max(script.rfind("import"), script.rfind("from"))
    reader = _Reader(script)
    while 0 <= reader.at <= last and (word := reader.next_word()):
        found = (_IMPORT if word == "import" else _EXPORT).match(script, reader.at)
        if found:
            reader.at = found.end()
            yield found[1] or found[2] or "", _TYPES.get(found[3] or "", OTHER)


class _Reader:
    """Finds the words ``import`` and ``export`` in code; ``at`` is the character behind."""

    def __init__(self, script: str):
        self._script = script
        self.at = 0
        # For each template whose expression is being read, the braces that are open in it.
        self._braces: list[int] = []
        # Up to here no regular expression begins.
        self._divides_until = 0

    def next_word(self) -> str | None:
        """Return the next of the words, None if there is none."""
        script = self._script
        while token := (_BRACED if self._braces else _TOKEN).search(script, self.at):
            self.at, text = token.end(), token[0]
            if text in {"import", "export"}:
                return text
            if text == "/":
                self._slash()
            elif text == "`":
                self._template()
            elif text == "{":
                self._braces[-1] += 1
            elif text == "}":
                self._close()
        return None

    def _close(self) -> None:
        if self._braces[-1]:
            self._braces[-1] -= 1
        else:
            self._braces.pop()
            self._template()

    def _template(self) -> None:
        """Pass over a template, to its end or its next expression."""
        for part in _IN_TEMPLATE.finditer(self._script, self.at):
            if part[0][0] != "\\":
                self.at = part.end()
                if part[0] == "${":
                    self._braces.append(0)
                return
        self.at = len(self._script)

    def _slash(self) -> None:
        """Pass over a regular expression, if that is what begins."""
        if self.at <= self._divides_until or not self._may_be_pattern():
            return
        found = _PATTERN.match(self._script, self.at)
        assert found is not None
        if self._script.startswith("/", found.end()):
            self.at = found.end() + 1
        else:
            self._divides_until = found.end()

    def _may_be_pattern(self) -> bool:
        if self.at > 1 and self._script[self.at - 2] not in _MAYBE:
            return False
        before = self._script[max(0, self.at - 1 - _LOOK_BACK) : self.at - 1]
        code = before.rstrip()
        if not code:
            return len(before) < _LOOK_BACK
        return code[-1] in _OPERATORS or _WORD.search(code[-10:]) is not None


def add_imports(found: References, script: str, base: str, names: ImportMap | None) -> None:
    """Add what a module, whose URL or base URL is ``base``, imports; ``names`` is its map."""
    seen: set[str] = set()
    for name, kind in imports_in(script):
        if name in seen:
            continue
        if len(seen) == MAX_REQUISITES:
            found.result.surplus += 1
            continue
        seen.add(name)
        url = absolute(name, base) if names is None else names.resolve(name, base)
        if url is None:
            found.result.unmapped += 1
        else:
            found.add(kind, (url,))


def requisites_of_module(body: bytes, url: str, names: ImportMap | None) -> Requisites:
    """Return what a module imports; ``names`` is the import map of its page, and of the result."""
    found = References()
    found.result.import_map = names
    add_imports(found, body[:MODULE_MAX].decode("utf-8", "replace"), url, names)
    return found.resolved(url)
