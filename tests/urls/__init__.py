"""Tests of `krowlspider.urls`."""
