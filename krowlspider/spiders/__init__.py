"""The spiders of krowlspider: broad.py is the one for whole webs."""
