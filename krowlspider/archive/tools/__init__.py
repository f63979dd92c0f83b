"""Tools for WARC files: check them, mend open ones, pack them as WACZ."""
