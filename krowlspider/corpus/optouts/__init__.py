"""Opt-outs of 2025 and later: AI preferences of the IETF (`usage`) and RSL licences.

`usage` reads what Content-Usage refuses, at which paths. `signals` finds what a page says itself:
signals, and the licences that it names. `terms` reads a licence.
"""
