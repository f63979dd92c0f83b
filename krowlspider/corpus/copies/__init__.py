"""Copies of texts: how they are recognised, and which one is kept."""
