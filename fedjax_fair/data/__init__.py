"""Federated data: one example store, and for every client the rows that are its own."""

from fedjax_fair.data import partition
from fedjax_fair.data.federated import FederatedData, Normalizer, Split
from fedjax_fair.data.sources import load, load_arrays, synthetic

__all__ = ["FederatedData", "Normalizer", "Split", "load", "load_arrays", "partition", "synthetic"]
