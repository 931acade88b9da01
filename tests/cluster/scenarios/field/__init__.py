"""Scenario 7: faults that were seen in the field, a function a row."""
