"""What a body is, as browsers find out: its media type, its encoding, its text."""
