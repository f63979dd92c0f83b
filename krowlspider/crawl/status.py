"""The status line of a crawl, and the signal that is sent before the stats are read."""

from __future__ import annotations

# Signal sent before the stats are read: components that count elsewhere then write their numbers to
# the stats.
figures_wanted = object()

LINE = (
    "%(pages_per_second).1f pages/s | %(done)d pages done | %(queued)d URLs queued on %(hosts)d hosts"
    " (%(due)d due, %(waiting)d waiting), %(put_off)d deferred | %(in_transit)d in flight | %(dropped)d dropped"
    " | archive %(archive_mb).1f MB"
)
