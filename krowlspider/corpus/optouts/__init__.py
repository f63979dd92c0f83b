"""Opt-outs of 2025 and later: AI preferences of the IETF (`usage`) and RSL licences.

`dictionary` reads a structured field, `usage` what Content-Usage refuses. `terms` reads a licence,
and `named` finds the licences that a page names. `patterns` are those of robots.txt.
"""
