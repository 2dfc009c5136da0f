"""How large a model is: what decides between ways of computing the same."""

from typing import Any

import jax

from fedjax_fair.types import Params


def is_small(params: Params, below: int = 2**15) -> bool:
    """Whether the loop around a model's products counts: vectors and matrices, of so few entries together."""
    leaves = jax.tree.leaves(params)
    return all(leaf.ndim <= 2 for leaf in leaves) and sum(leaf.size for leaf in leaves) < below


def is_tiny(params: Params) -> bool:
    """Whether its products are too short for a second core, such as a softmax regression's of 200 x 10."""
    return is_small(params, 2**11)


def is_convolutional(params: Params, below: int = 2**20) -> bool:
    """Whether most of a model's entries are in kernels of convolutions, and so few that its products are narrow."""
    sizes = [(leaf.size, leaf.ndim >= 4) for leaf in jax.tree.leaves(params)]
    return sum(size for size, _ in sizes) < min(below, 2 * sum(size for size, wide in sizes if wide))


def bytes_of(tree: Any) -> int:
    """Bytes of all arrays of a tree."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
