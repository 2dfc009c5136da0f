"""Federated data: one example store, and for every client the rows that are its own."""

from fedjax_fair.data import partition
from fedjax_fair.data.federated import FederatedData, Names, Normalizer, Split
from fedjax_fair.data.sources import huggingface, images, leaf, load, load_arrays, npz, synthetic, table, tfds

__all__ = [
    "FederatedData",
    "Names",
    "Normalizer",
    "Split",
    "huggingface",
    "images",
    "leaf",
    "load",
    "load_arrays",
    "npz",
    "partition",
    "synthetic",
    "table",
    "tfds",
]
