"""The judge: sees the cluster through its own credentials, the audit log, CRI, /proc and the journals of the nodes.

It never reads a metric or a report of the product, and takes what the product says of itself as a claim to be checked.
"""
