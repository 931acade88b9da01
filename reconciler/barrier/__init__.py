"""barrier."""
