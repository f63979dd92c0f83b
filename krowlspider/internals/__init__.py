"""Private names of libraries: everything of theirs that may change without notice is used here.

docs/dependencies.md lists the names. tests/internals/test_internals.py pins the version of each
library and shows what each name does.
"""
