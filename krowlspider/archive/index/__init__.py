"""CDXJ indexes of WARC files: keys, lines, and the look-up of records."""
