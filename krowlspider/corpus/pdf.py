"""Take the text and the metadata from a PDF."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from krowlspider.corpus.detection import detected
from krowlspider.corpus.document import Document
from krowlspider.corpus.extras import need
from krowlspider.corpus.head import short
from krowlspider.corpus.pages import Unreadable

if TYPE_CHECKING:
    from krowlspider.corpus.pages import Page

# Pages of a file that are read, and characters of its text.
_PAGES_MAX = 2000
_CHARS_MAX = 8 * 1024 * 1024
# pdfium's sign for a hyphen at the end of a line, with the line break.
_HYPHEN = re.compile("[\ufffe\x02]\n?")
_DATE = re.compile(r"(?:D:)?(\d{4})(\d\d)?(\d\d)?")
_NAMES = {"title": "Title", "author": "Author", "description": "Subject"}
_DATES = {"published": "CreationDate", "modified": "ModDate"}


def pdf_document(page: Page) -> Document:
    """Return the document in a PDF.

    :raises Unreadable: it is no PDF, or needs a password
    """
    pdfium = need("pypdfium2", "pdf")
    try:
        file = pdfium.PdfDocument(page.body)
    except pdfium.PdfiumError as error:
        raise Unreadable("not a readable PDF") from error
    texts, chars = [], 0
    try:
        about = {key: _about(file, key) for key in (*_NAMES.values(), *_DATES.values())}
        for number in range(min(len(file), _PAGES_MAX)):
            pdf_page = file[number]
            text = pdf_page.get_textpage().get_text_bounded()
            pdf_page.close()
            chars += len(text)
            if chars > _CHARS_MAX:
                break
            texts.append(text.replace("\r\n", "\n").strip())
    except pdfium.PdfiumError as error:
        raise Unreadable("not a readable PDF") from error
    finally:
        file.close()
    text = _HYPHEN.sub("", "\n\n".join(filter(None, texts)))
    found = Document(text, *detected(text), "")
    for name, key in _NAMES.items():
        if value := short(about[key]):
            found.fields[name] = value
    for name, key in _DATES.items():
        if date := _DATE.match(about[key]):
            found.fields[name] = "-".join(filter(None, date.groups()))
    return found


def _about(file: Any, key: str) -> str:
    try:
        value: str = file.get_metadata_value(key)
    except UnicodeDecodeError:
        # Half of a surrogate pair.
        return ""
    return value
