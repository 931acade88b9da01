"""The way of an alert, end to end: `make tour`."""
