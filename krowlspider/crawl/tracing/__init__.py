"""Traces of requests, from the pop to the commit, for a collector of OpenTelemetry."""
