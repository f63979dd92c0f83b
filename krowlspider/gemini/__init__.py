"""Crawl Gemini capsules: protocol, certificates, gemtext, robots.txt, feeds, mirrors and traps."""
