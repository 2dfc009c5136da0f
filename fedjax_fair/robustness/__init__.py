"""Clients that stay away, fail or lie, and what the server does about it."""
