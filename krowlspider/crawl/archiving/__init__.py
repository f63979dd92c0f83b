"""What a crawl adds to its archive: metadata of fetches, and the upload of finished files."""
