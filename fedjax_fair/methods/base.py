"""What a method of clients that remember is put around: a rule, or a method whose clients keep nothing."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from fedjax_fair.selectors import excluding
from fedjax_fair.types import Aggregator, Memory, Method, Params, Selector, as_method


def around(
    name: str,
    aggregator: Aggregator | Method,
    memory: Memory,
    local: Callable[[Any], Any],
    *,
    own_server: bool = False,
) -> Method:
    """``aggregator`` with clients that remember: its rule, objective, local work and transform stay.

    ``local`` makes a trainer of the one that the method would train with. ``own_server``: the server's step is
    already settled, so that a transform of ``aggregator``'s has no place.

    Raises:
      ValueError: ``aggregator`` is no rule, or has a memory or transform of its own where there can be one only.
    """
    method = as_method(aggregator)
    if method.memory is not None:
        raise ValueError(f"{name} takes an aggregator whose clients remember nothing, got one with a memory")
    if own_server and method.transform is not None:
        raise ValueError(f"{name} takes an aggregator without a server transform, got one with its own")
    before = method.local
    inside = local if before is None else lambda trainer: local(before(trainer))
    return method._replace(memory=memory, local=inside)


def of_all(why: str, method: Method | None = None) -> Callable[[Selector], Selector]:
    """For ``Method.selector``: the selector, or ``method``'s own; ``why`` none may leave somebody out for good."""

    def check(given: Selector) -> Selector:
        if given.select.__module__ == excluding.__module__:
            raise ValueError(f"{why}, got ff.excluding(...): train on a federation of the others alone")
        return given if method is None or method.selector is None else method.selector(given)

    return check


def zeros(params: Params) -> Params:
    """A model's form, in zeros."""
    return jax.tree.map(jnp.zeros_like, params)
