"""Of all tests: generated examples are no race against the clock, and a run says the same of the same code."""

from __future__ import annotations

import os

from hypothesis import settings

SEARCH = os.environ.get("HOSTCONFIG_SEARCH", "") != ""
"""Other examples in each run, to look for new faults."""

settings.register_profile("any machine", deadline=None, derandomize=not SEARCH)
settings.load_profile("any machine")
