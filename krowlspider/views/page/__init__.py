"""The files of the live page; and the start of a page that is a file itself, to be passed on."""

from __future__ import annotations

from html import escape
from importlib.resources import files


def page_start(title: str, style: str) -> str:
    """Return the HTML up to the body, with ``style`` after that of the live page.

    The page has no script, and loads nothing.
    """
    common = files(__name__).joinpath("live.css").read_text(encoding="utf-8")
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{escape(title)} - krowlspider</title>
<style>
{common}{style}</style>
</head>
"""
