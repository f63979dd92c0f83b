CREATE TABLE page (key TEXT, path TEXT);
INSERT INTO page VALUES ('a', '/books/'), ('b', '/books/?page=2'), ('c', '/books/?page=3');
