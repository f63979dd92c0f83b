"""Upload finished WARC files to an object store and keep notes of the uploaded files."""
