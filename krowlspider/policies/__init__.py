"""Sheets of settings for single sites: what covers a host or a path, and what holds there.

This package is pure: callers read the file and pass its text. A `sheets.Policies` gives the
`sheets.HostPolicies` of a host, and these the `keys.Policy` of a URL.
"""
