"""The halves of a selector that remembers nothing."""

from jax import Array

from fedjax_fair.types import Key, Report, State


def init(sizes: Array, key: Key | None = None) -> State:
    """An empty state."""
    del sizes, key
    return ()


def observe(state: State, report: Report) -> State:
    """Learn nothing from the round."""
    del report
    return state
