"""The first half of a rule that remembers nothing."""

from jax import Array

from fedjax_fair.types import Key, State


def init(sizes: Array, key: Key | None = None) -> State:
    """An empty state."""
    del sizes, key
    return ()
