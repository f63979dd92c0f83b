"""Where a crawl calls the hooks of its user. Only a crawl with KROWL_HOOKS imports it."""
