"""Spiders that tests run on the project's scheduler."""
