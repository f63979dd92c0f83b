"""The text of a page: its encoding, its main part, its language and the fields of its head."""
