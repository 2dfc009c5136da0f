"""A policy that weighs clients: what it sees of each, its network, and how its actions become weights."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.checks import check_choice
from fedjax_fair.numerics.shuffle import GOLDEN, mix
from fedjax_fair.numerics.solvers import masked_mean, softmax
from fedjax_fair.types import Params, Report

SKETCH = 61  # numbers per client that stand for its update
PIECE = 128
"""Rows of buckets, at most, that are summed first: a CPU's cores share pieces out, not one sum of all rows."""
LEAST = 1e-3
"""Of a cohort's standard deviation: clients that differ by rounding alone are alike."""


class Policy(NamedTuple):
    """A policy as :func:`fedjax_fair.train_policy` returns it, and ``ff.pg_ffl(policy=...)`` plays it."""

    params: Params
    """Of its network: four dense layers, shared by the clients."""
    state: str = "updates"
    """What it sees of each client, a name in ``STATES``."""
    weights: str = "softmax"
    """How its actions become weights, a name in ``WEIGHTS``."""
    rewards: Any = None
    """f64[E]: the mean reward of a round in each training episode, all federations together; None where it was not
    trained."""


class Network(nn.Module):
    """Four dense layers on the features of ONE client, shared by all: the order of the clients means nothing."""

    @nn.compact
    def __call__(self, features: Array) -> Array:
        """features f32[S, F] -> mean action f32[S]."""
        hidden = features
        for width in (128, 64, 32):
            hidden = nn.tanh(nn.Dense(width, param_dtype=features.dtype)(hidden))
        return nn.Dense(1, kernel_init=nn.initializers.zeros, param_dtype=features.dtype)(hidden)[:, 0]


def check_policy(policy: Any) -> None:
    """What was trained: a policy whose parameters are those of the network on its state.

    Raises:
      ValueError: it is not.
    """
    if not isinstance(policy, Policy):
        raise ValueError(f"policy must be what ff.train_policy returns, got {type(policy).__name__}")
    check_choice("policy.state", policy.state, STATES)
    check_choice("policy.weights", policy.weights, WEIGHTS)
    seen = jax.ShapeDtypeStruct((1, STATES[policy.state][1]), jnp.float32)
    wanted, got = (
        {jax.tree_util.keystr(path): jnp.shape(leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}
        for tree in (jax.eval_shape(Network().init, jax.random.key(0), seen), policy.params)
    )
    if wanted != got:
        name = min(name for name, _ in wanted.items() ^ got.items())
        needed, there = (list(of[name]) if name in of else "none" for of in (wanted, got))
        raise ValueError(f'policy must have params{name} of {needed} for state "{policy.state}", got {there}')


def mean_action(params: Params, seen: Array) -> Array:
    """The network's output f[S] for what it sees, f[S, F], in the float type of that."""
    typed = jax.tree.map(lambda leaf: jnp.asarray(leaf, seen.dtype), params)
    return jnp.asarray(Network().apply(typed, seen))


def features(report: Report, all_examples: Array) -> Array:
    """What the policy sees of each client: f32[S, SKETCH + 3]."""
    seen = report.active
    rows = sketch(report.updates)
    scale = jnp.sqrt(masked_mean(jnp.square(rows).mean(1), seen))
    rows = jnp.where(seen[:, None], rows / jnp.where(scale > 0, scale, 1), 0)
    scalars = [jnp.where(seen, v, 0) for v in (report.loss, report.accuracy, report.n / all_examples)]
    return jnp.concatenate([rows, jnp.stack(scalars, axis=1)], axis=1)


def sketch(updates: Params) -> Array:
    """Count sketch f[S, SKETCH] of leaves [S, ...], in their dtype.

    A number's bucket is its place in its leaf mod SKETCH, its sign a hash of its place in the model. SKETCH is a
    prime, or every weight of one unit of a layer 64 wide would share a bucket.
    """
    leaves = jax.tree.leaves(updates)
    clients, total, signs = leaves[0].shape[0], 0, []
    for leaf in leaves:
        place = jnp.arange(leaf.size // clients, dtype=jnp.uint32) + jnp.uint32(total)
        signs.append(1 - 2 * (mix(place * GOLDEN) >> 31).astype(leaf.dtype))
        total += leaf.size // clients

    def one(client: list[Array]) -> Array:
        buckets = jnp.zeros((), client[0].dtype)
        for leaf, sign in zip(client, signs):
            rows = max(1, -(-leaf.size // SKETCH))
            high = -(-rows // -(-rows // PIECE))  # pieces of one height
            signed = jnp.pad(leaf.reshape(-1) * sign, (0, -leaf.size % (high * SKETCH)))
            buckets = buckets + signed.reshape(-1, high, SKETCH).sum(1).sum(0)
        return buckets

    if jax.default_backend() == "cpu":  # of all at once a signed copy would go through memory
        return jnp.asarray(jax.lax.map(one, leaves))
    return jax.vmap(one)(leaves)


def signals(report: Report, all_examples: Array) -> Array:
    """What the cheap policy sees of each client, f[S, 5]: nothing that is known after training only.

    Loss and accuracy of the received model, how many standard deviations (plus .001) each lies above the cohort's
    mean, and the number of examples relative to the cohort's mean.
    """
    del all_examples
    seen = report.active

    def standardised(values: Array) -> Array:
        apart = values - masked_mean(values, seen)
        spread = jnp.sqrt(masked_mean(jnp.square(apart), seen))
        return apart / (spread + LEAST)

    loss, accuracy = (jnp.where(seen, values, 0) for values in (report.loss, report.accuracy))
    size = report.n / jnp.where(seen.any(), masked_mean(report.n, seen), 1)
    columns = [loss, accuracy, standardised(loss), standardised(accuracy), size]
    return jnp.where(seen[:, None], jnp.stack(columns, axis=1), 0)


STATES: Mapping[str, tuple[Callable[[Report, Array], Array], int]] = {
    "updates": (features, SKETCH + 3),
    "signals": (signals, 5),
}
"""By name ``(report, examples of all clients) -> f[S, F]``, and F."""


def by_sigmoid(action: Array, active: Array) -> Array:
    """``sigmoid(a_k) / sum_j sigmoid(a_j)`` over the active clients: large actions are level."""
    return softmax(jax.nn.log_sigmoid(action), active)


WEIGHTS: Mapping[str, Callable[[Array, Array], Array]] = {"softmax": softmax, "sigmoid": by_sigmoid}
"""By name ``(action f[S], active bool[S]) -> weights f[S]``, which sum to 1."""
