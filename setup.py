"""For scrapyd-deploy, which runs ``setup.py bdist_egg``; everything is declared in pyproject.toml."""

from setuptools import setup

setup()
