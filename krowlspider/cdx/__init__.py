"""A CDX server: answers which captures of a URL an archive has, as pywb and OutbackCDX do.

A query is read into a `krowlspider.cdx.query.Query`, its lines are read from the indexes, chosen,
and written in one of several forms.
"""
