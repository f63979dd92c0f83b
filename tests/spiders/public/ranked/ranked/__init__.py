from os import environ

# The site that is crawled.
SITE = environ["SITE"]
