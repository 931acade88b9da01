"""The Container Runtime Interface: what is needed of it as types, and a gRPC client. Imports `api` only."""
