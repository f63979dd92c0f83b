"""View, change, export, import and repair a frontier that no crawl has open; view a live one."""
