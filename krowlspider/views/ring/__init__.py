"""The output of ``scrapy ring``: clusters, their nodes and the nodes' inboxes."""
