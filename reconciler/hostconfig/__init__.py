"""hostconfig."""
