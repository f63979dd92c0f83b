from krowlspider.library import Page as Page
from krowlspider.library import crawl as crawl
from krowlspider.library import run as run

__version__: str
