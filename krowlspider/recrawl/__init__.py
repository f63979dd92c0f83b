"""Decide when a page is fetched again, how it is asked for, and what its answer means.

This package is pure: callers pass in time and bytes, and get decisions back.

- Before a request: `trust.trusted` and `validators.conditions`.
- After it: `validators.meaning_of`, `trust.after_not_modified`, or `trust.after_change` and
  `trust.after_content`,
  `gone.Absence.answered`, `estimate.observe`, `prior.Site.observed`, and for a page that was hinted
  at `hints.Precisions.scored`. Then `value.due_time` says when it is due, and `threshold.demand`
  what it adds to the demand of its host.
- When it comes up: `value.is_due`.
- Once a minute: `threshold.step`, for each host that is asked and for the crawl.
- When a sitemap or feed was read: `hints.brought_forward`.
"""
