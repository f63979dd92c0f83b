"""Tools for WARC files: check, count, extract, mend, pack as WACZ, replay; indexes of payloads."""
