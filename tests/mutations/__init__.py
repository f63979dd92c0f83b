"""Mutations of the code: each breaks one promise, and must make a test fail.

Run them by hand, after a change of an invariant or of its tests:

    .venv/bin/python -m tests.mutations
    .venv/bin/python -m tests.mutations --list
    .venv/bin/python -m tests.mutations --only NAME ...

Neither pytest nor `make test` runs them. A mutation that survives shows a missing test. A stale one
names code that has changed since: adapt its text. `politeness_and_bounds.py`,
`durability_and_cluster.py`, `reading_and_archive.py`, `settings_and_people.py`, `recrawl.py`,
`hooks.py`, `databases.py`, `gemini.py` and `search_and_graph.py` are the table.
"""
