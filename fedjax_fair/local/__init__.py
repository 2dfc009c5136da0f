"""What one client does in a round: local SGD, and the objectives that it can minimise."""

from fedjax_fair.local.sgd import LocalSGD, local_sgd

__all__ = ["LocalSGD", "local_sgd"]
