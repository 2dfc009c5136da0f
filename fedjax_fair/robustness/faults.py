"""Clients that lie or fail: ``simulation(..., faults=[ff.faults.inflate_loss(liars, 10.)])``.

A fault names who misbehaves, bool[N], and how their report changes on its way to the server. It touches what is
sent, probed losses included, never what is measured: the history's accuracies and losses are the truth, while its
``received_loss`` is what the rule heard. Several
faults act one after another. With ``liars = ff.faults.some(n, share)`` the honest are ``~liars``: judge a rule by
``history.accuracy[:, ~liars]``, or ``ff.table(runs, clients=~liars)``.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.checks import check_count, check_range, check_takes
from fedjax_fair.data import FederatedData
from fedjax_fair.data.split import owned
from fedjax_fair.types import Key, Memory, Params, Report, message_of


class Fault(NamedTuple):
    """Who misbehaves, and how."""

    who: np.ndarray
    """bool[N]."""
    change: Callable[[Report, Key], Report]
    """What they would all send: ``(report, key) -> report``; the engine keeps it for ``who`` alone.

    Only signals and updates count: ids, sizes and the Gram matrix stay the server's. Draw per client, with
    ``fold_in(key, id)``."""


def some(n_clients: int, share: float, seed: int = 0) -> np.ndarray:
    """``round(share * N)`` random clients, as bool[N]; a larger share takes the same clients and more.

    Args:
      n_clients: N.
      share: in [0, 1].
      seed: of the draw.

    Raises:
      ValueError: a share outside [0, 1], or a count below 1.

    >>> int(ff.faults.some(5, 0.4).sum())
    2
    """
    check_range("share", share, 0, 1)
    order = np.random.default_rng(check_count("seed", seed, low=0)).permutation(check_count("n_clients", n_clients))
    who = np.zeros(n_clients, bool)
    who[order[: round(share * n_clients)]] = True
    return who


def inflate_loss(who: Any, factor: float = 10.0) -> Fault:
    """Report losses ``factor`` times the truth: FedMABA's open question. Below 1 deflates them.

    Args:
      who: bool[N].
      factor: on the losses of the received model, of local training and of probes; at least 0.

    Raises:
      ValueError: ``who`` is not bool[N], or a negative factor.
    """
    check_range("factor", factor, 0)
    return Fault(
        _mask(who),
        lambda report, key: report._replace(
            loss=factor * report.loss,
            train_loss=factor * report.train_loss,
            train_loss_std=factor * report.train_loss_std,
        ),
    )


def scale_update(who: Any, factor: float = -1.0) -> Fault:
    """Send the update times ``factor``: -1 flips its sign, 10 boosts it.

    Args:
      who: bool[N].
      factor: any number.

    Raises:
      ValueError: ``who`` is not bool[N], or the factor not a number.
    """
    check_range("factor", factor)
    return Fault(
        _mask(who),
        lambda report, key: report._replace(updates=jax.tree.map(lambda u: factor * u, report.updates)),
    )


def noisy_update(who: Any, std: float = 0.1) -> Fault:
    """Send the update plus independent Gaussian noise on every coordinate.

    Args:
      who: bool[N].
      std: of the noise, in units of the parameters; at least 0.

    Raises:
      ValueError: ``who`` is not bool[N], or a negative ``std``.
    """
    check_range("std", std, 0)

    def change(report: Report, key: Key) -> Report:
        leaves, structure = jax.tree.flatten(report.updates)
        keys = jax.vmap(lambda i: jax.random.split(jax.random.fold_in(key, i), max(1, len(leaves))))(report.ids)

        def noise(own: Key, leaf: Array) -> Array:
            return std * jax.random.normal(own, leaf.shape, leaf.dtype)

        noisy = [leaf + jax.vmap(noise)(keys[:, j], leaf) for j, leaf in enumerate(leaves)]
        return report._replace(updates=jax.tree.unflatten(structure, noisy))

    return Fault(_mask(who), change)


def not_finite(who: Any, value: float = float("nan")) -> Fault:
    """Send nothing but NaN (or infinity): a crashed client. The engine leaves such clients out and counts them.

    Args:
      who: bool[N].
      value: what every signal and every coordinate of the update becomes; NaN, inf or -inf.

    Raises:
      ValueError: ``who`` is not bool[N], or ``value`` is finite.
    """
    if not isinstance(value, float) or np.isfinite(value):
        raise ValueError(f"value must be NaN or infinite, got {value!r}")

    def change(report: Report, key: Key) -> Report:
        sent = {name: jnp.full_like(getattr(report, name), value) for name in SIGNALS}
        return report._replace(updates=jax.tree.map(lambda u: jnp.full_like(u, value), report.updates), **sent)

    return Fault(_mask(who), change)


SIGNALS = ("loss", "train_loss", "train_loss_std", "accuracy")


def flip_labels(data: FederatedData, who: Any) -> FederatedData:
    """The federation in which the clients ``who`` train on labels ``C - 1 - y`` instead of y, C classes.

    Their validation and test examples keep the true labels.

    Args:
      data: the federation, with class labels.
      who: bool[N].

    Raises:
      ValueError: ``who`` is not bool[N], labels that are no classes, or examples that are not theirs alone.
    """
    who, y = _mask(who), np.array(data.y)
    if len(who) != data.n_clients:
        raise ValueError(f"who must have one entry for each of the {data.n_clients} clients, got {len(who)}")
    if y.ndim != 1 or not np.issubdtype(y.dtype, np.integer):
        raise ValueError(f"flip_labels needs class labels [E], got {y.dtype}{list(y.shape)}")
    rows, owner = owned(data.train)
    theirs = who[owner]
    others = [rows[~theirs], *(owned(split)[0] for split in (data.validation, data.test))]
    shared = np.intersect1d(rows[theirs], np.concatenate(others))
    if len(shared):
        raise ValueError(f"flip_labels needs examples of the liars' own, but {len(shared)} are shared")
    y[rows[theirs]] = y.max() - y[rows[theirs]]
    return data._replace(y=jnp.asarray(y))


def misreport(report: Report, faults: Sequence[Fault], key: Key) -> Report:
    """What reaches the server: each fault in turn, on the signals and updates of its own clients."""
    for number, fault in enumerate(faults):
        changed, who = fault.change(report, jax.random.fold_in(key, number)), jnp.asarray(fault.who)[report.ids]

        def lie(new: Array, old: Array, who: Array = who) -> Array:
            return jnp.where(who.reshape(-1, *(1,) * (old.ndim - 1)), new.astype(old.dtype), old)

        report = report._replace(
            updates=jax.tree.map(lie, changed.updates, report.updates),
            message=jax.tree.map(lie, changed.message, report.message),
            **{name: lie(getattr(changed, name), getattr(report, name)) for name in SIGNALS},
        )
    return report


def misreport_losses(
    losses: Array,
    ids: Array,
    sizes: Array,
    faults: Sequence[Fault],
    key: Key,
    params: Params,
    memory: Memory | None,
) -> Array:
    """What a probe hears: the losses as their clients, of N ``sizes``, would report them beside no update."""
    zero, square = jnp.zeros_like(losses), jnp.zeros((ids.shape[0],) * 2, losses.dtype)
    updates, message = (  # XLA drops what is not read
        jax.tree.map(lambda leaf: jnp.zeros((ids.shape[0], *leaf.shape), leaf.dtype), tree)
        for tree in (params, message_of(memory, params))
    )
    n, steps = sizes[ids].astype(losses.dtype), jnp.zeros(ids.shape, jnp.int32)
    alone = Report(ids, n, zero == 0, losses, losses, zero, zero, square, updates, steps, message)
    return misreport(alone, faults, key).loss


def check_faults(faults: Any, n_clients: int) -> tuple[Fault, ...]:
    """The faults as a tuple, or ValueError unless each is one and names N clients."""
    if isinstance(faults, Fault) or not isinstance(faults, (list, tuple)):
        raise ValueError(f"faults must be a list, such as [ff.faults.inflate_loss(liars)], got {_kind(faults)}")
    for fault in faults:
        if not isinstance(fault, Fault):
            raise ValueError(f"faults must hold ff.faults, such as inflate_loss(liars), got {_kind(fault)}")
        _mask(fault.who)
        if not callable(fault.change):
            raise ValueError(f"a fault's change must be a function (report, key) -> report, got {fault.change!r}")
        check_takes("a fault's change", fault.change, "report", "key")
        if len(fault.who) != n_clients:
            got = len(fault.who)
            raise ValueError(f"a fault's who must have one entry for each of the {n_clients} clients, got {got}")
    return tuple(faults)


def _kind(value: Any) -> str:
    return f"a single {type(value).__name__}" if isinstance(value, Fault) else repr(value)


def _mask(who: Any) -> np.ndarray:
    mask = np.asarray(who)
    if mask.ndim != 1 or mask.dtype != bool:
        raise ValueError(f"who must be bool[N], such as ff.faults.some(n, .2), got {mask.dtype}{list(mask.shape)}")
    return mask
