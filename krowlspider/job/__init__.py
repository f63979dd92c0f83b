"""One crawl: its folder, its parts, the intake of URLs, requests in flight, outages.

`job.Job` puts the parts together. `intake.Intake` is the only way for URLs into the crawl;
`requisite_intake` uses it for the files that pages need. `parts` checks the settings that change
while the crawl runs.
"""
