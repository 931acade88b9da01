"""Informers under fire: a proxy of ours between the product's client and an API server."""
