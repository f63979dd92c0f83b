"""What is kept of each page that was fetched: one row a page."""
