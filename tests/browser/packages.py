"""`python -m tests.browser.packages`: the browser, from Debian; needs root where it is missing."""

from __future__ import annotations

from tests.cluster.packages import ensure

if __name__ == "__main__":
    ensure({"chromium": "chromium"})
