"""frostwork: a plan compiled once for all pages. Its public function compiles it for each page."""

from __future__ import annotations

from frostwork._frostwork import Plan, detect_encoding

__all__ = ["Plan", "detect_encoding"]
