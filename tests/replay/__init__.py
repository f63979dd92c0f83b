"""The archive as others see it: pywb serves it, and a real browser looks at it.

`venv` makes the venv in which `serve` and `browse` run; those two import nothing of this project.
"""
