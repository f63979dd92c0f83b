"""Requisites: the pictures, style sheets, scripts and fonts that a page needs to be shown.

A page's own scan finds them (`elements.COLUMNS` of its plan). What they refer to in turn is found
in the style sheets, web app manifests, modules of JavaScript and embedded documents themselves.
"""
