"""Pure: find e-mail addresses, phone numbers and IP addresses in a text, and mask them.

Each kind has a module with ``find``, which yields the places of what it finds, in their order. Each
takes time linear in the length of the text.
"""
