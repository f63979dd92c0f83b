"""HTTP/1.1: request, response head, body and codings, with every byte kept for the archive."""
