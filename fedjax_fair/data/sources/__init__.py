"""Where examples come from: public image data, and Synthetic(alpha, beta)."""

from fedjax_fair.data.sources.synthetic import synthetic
from fedjax_fair.data.sources.tfds import load, load_arrays

__all__ = ["load", "load_arrays", "synthetic"]
