"""Changes of pages between two fetches, as the archive has them."""
