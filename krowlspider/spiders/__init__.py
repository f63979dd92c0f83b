"""The spiders of krowlspider; broad.py crawls whole webs."""
