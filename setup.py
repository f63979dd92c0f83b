"""For scrapyd-deploy, which runs ``setup.py bdist_egg``. pyproject.toml declares everything."""

from setuptools import setup

setup()
