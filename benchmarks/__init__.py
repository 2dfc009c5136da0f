"""Measurements that the project's claims rest on; nothing here is part of the package."""
