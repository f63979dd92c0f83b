"""Benchmarks: run by hand, reported, never asserted in tests."""
