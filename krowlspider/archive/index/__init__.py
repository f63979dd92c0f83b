"""CDXJ indexes of WARC files, and the look-up of records in them."""
