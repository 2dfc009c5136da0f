"""Where examples come from: files of your own, public image data, and Synthetic(alpha, beta)."""

from fedjax_fair.data.sources.huggingface import huggingface
from fedjax_fair.data.sources.images import images
from fedjax_fair.data.sources.leaf import leaf
from fedjax_fair.data.sources.npz import npz
from fedjax_fair.data.sources.synthetic import synthetic
from fedjax_fair.data.sources.table import table
from fedjax_fair.data.sources.tfds import load, load_arrays
from fedjax_fair.data.sources.tfds_clients import tfds

__all__ = ["huggingface", "images", "leaf", "load", "load_arrays", "npz", "synthetic", "table", "tfds"]
