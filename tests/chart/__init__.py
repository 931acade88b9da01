"""The chart, rendered by helm and offered to a real API server. Needs Go the first time, and no root."""
