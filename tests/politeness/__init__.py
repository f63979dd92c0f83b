"""Tests of `krowlspider.politeness`."""
