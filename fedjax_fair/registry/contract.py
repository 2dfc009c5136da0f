"""What every stock rule is put through, for a rule of the user's own."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedjax_fair.checks import check_count
from fedjax_fair.reads import check_functions, explained, reads, types_of
from fedjax_fair.registry.plugins import said
from fedjax_fair.types import Aggregator, Method, Report, as_method

LARGE = 10_000
"""A loss whose exponential no float32 holds."""
NOBODY = "nobody there"
FILLED = ("n", "loss", "train_loss", "train_loss_std", "accuracy", "gram", "updates", "steps")
"""Signals that an inactive slot may hold anything in."""


def check_rule(rule: Aggregator | Method, n_clients: int = 8, cohort: int = 5) -> str:
    """Put a rule through the contract that every stock rule keeps; say what it is, or what is wrong with it.

    The state keeps its form, and no number of it becomes NaN, also where nobody is there. Coefficients are finite,
    also where all losses are 0, one is 10,000, or one client is there alone, and 0 for inactive clients. The order
    of the slots, and what inactive slots hold, do not matter; jit, vmap and scan change nothing. A method's second
    look, ``revise``, is part of the rule; its transform and its trainer are not tried.

    Where all losses are equal the order may matter, as it does to a rule that sorts them; then the line says so. A
    rule is tried with its settings as they are: a Python ``if`` about one of them fails in ``ff.sweep`` alone.

    Args:
      rule: an Aggregator or a Method.
      n_clients: N of the federation to try it on.
      cohort: S; N for a rule that needs everybody in every round.

    Returns:
      A line: which signals it reads, whether its coefficients are a convex combination or what they sum to, and
      what happens to ties.

    Raises:
      ValueError: the first promise that it breaks.
    """
    check_count("n_clients", n_clients, low=3)
    if not 3 <= check_count("cohort", cohort) <= n_clients:
        raise ValueError(f"cohort must be from 3 to the {n_clients} clients, got {cohort}")
    check_functions(mine := as_method(rule).aggregator)
    key, weigh = jax.random.key(7), _with_second_look(as_method(rule))
    start = mine.init(jnp.arange(1.0, n_clients + 1), key)
    reports = [_report(seed, n_clients, cohort) for seed in range(3)]
    absent = reports[0]._replace(active=reports[0].active.at[1].set(False))

    _answers("runs as weigh(state, report, key)", lambda: mine.weigh(start, reports[0], key), start, cohort)
    if weigh is not mine.weigh:
        second = "runs as revise(state, coef, report, key, losses)"
        _answers(second, lambda: weigh(start, reports[0], key), start, cohort)
    for name, report in _cases(reports[0], absent).items():
        given, left = weigh(start, report, key)
        _require(_keeps_numbers(start, left), f"keeps its state free of NaN with {name}")
        if name == NOBODY:  # the round makes no step, whatever the coefficients
            continue
        _require(bool(jnp.isfinite(given).all()), f"gives finite coefficients with {name}")
        _require(
            not np.any(np.asarray(given)[~np.asarray(report.active)]), "gives inactive clients a coefficient of 0"
        )

    order = np.random.default_rng(0).permutation(cohort)
    moved = _take(absent, order)
    expected, same = weigh(start, absent, key)
    _alike(weigh(start, moved, key), (expected[order], same), "does not mind the order of the slots")
    ones = jnp.ones(cohort)
    tied = reports[0]._replace(loss=ones, train_loss=ones)
    one, other = (weigh(start, each, key)[0] for each in (tied, _take(tied, order)))
    _require(bool(jnp.isfinite(one).all()), "gives finite coefficients with equal losses")
    by_slot = not np.allclose(one[order], other, rtol=1e-4, atol=1e-5)
    ties = "; of equal losses the order of the slots decides" * by_slot
    if not _close(weigh(start, _filled(absent, FILLED), key), (expected, same)):
        alone = {name: weigh(start, _filled(absent, (name,)), key) for name in FILLED}
        seen = [name for name, got in alone.items() if not _close(got, (expected, same))]
        _require(False, f"does not look at inactive slots, but it does at their {', '.join(seen or FILLED)}")
    under_jit, under_vmap = "is the same under jit", "is the same under vmap"
    in_a_scan = "is the same in a scan as round by round"
    _alike(_ran(under_jit, lambda: jax.jit(weigh)(start, absent, key)), (expected, same), under_jit)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *reports)
    each = _ran(under_vmap, lambda: jax.vmap(weigh, in_axes=(None, 0, None))(start, stacked, key))
    loop = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[weigh(start, report, key) for report in reports])
    _alike(each, loop, under_vmap)
    rounds, state = [], start
    for report in reports:
        given, state = weigh(state, report, key)
        rounds.append(given)
    last, scanned = _ran(in_a_scan, lambda: jax.lax.scan(lambda s, r: weigh(s, r, key)[::-1], start, stacked))
    _alike((scanned, last), (jnp.stack(rounds), state), in_a_scan)

    signals = ", ".join(reads(rule, n_clients=n_clients, cohort=cohort)) or "nothing"
    return f"keeps its promises; reads {signals}; coefficients {_sums(np.asarray(rounds))}{ties}"


def _sums(weights: np.ndarray) -> str:
    """What the coefficients f[rounds, S] sum to, and what that makes of the server's step."""
    sums = weights.sum(1)
    if np.allclose(sums, 1, atol=1e-5):
        return "are nonnegative and sum to 1" if (weights >= 0).all() else "sum to 1"
    if (np.abs(sums) < 1e-3 * np.abs(weights).sum(1)).all():
        return "cancel: they sum to 0"
    low, high = f"{sums.min():.3g}", f"{sums.max():.3g}"
    many = low if low == high else f"{low} ... {high}"
    return f"sum to {many}, so the server steps {many} times as far as FedAvg"


def _report(seed: int, n_clients: int, cohort: int) -> Report:
    """A random cohort's report."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(n_clients)[:cohort]
    kind = jnp.result_type(float)  # that of a federation's signals
    updates = rng.normal(0, 0.3, (cohort, 6)).astype(kind)
    draw: Callable[[], jax.Array] = lambda: jnp.asarray(rng.uniform(0.2, 3, cohort), kind)  # noqa: E731
    report = Report(
        ids=jnp.asarray(ids, jnp.int32),
        n=jnp.asarray(ids + 1.0, kind),
        active=jnp.ones(cohort, bool),
        loss=draw(),
        train_loss=draw(),
        train_loss_std=draw(),
        accuracy=draw() / 3,
        gram=jnp.asarray(updates @ updates.T),
        updates={"w": jnp.asarray(updates)},
        steps=jnp.asarray(rng.integers(1, 9, cohort), jnp.int32),
    )
    return report


def _take(report: Report, order: np.ndarray) -> Report:
    moved: Report = jax.tree.map(lambda leaf: leaf[order], report)
    return moved._replace(gram=moved.gram[:, order])


def _filled(report: Report, names: tuple[str, ...]) -> Report:
    """The report with NaN in some signals of the inactive slots; a million in counts, which are always finite."""
    off = ~report.active

    def fill(name: str, leaf: Any) -> Any:
        where = off[:, None] | off[None, :] if name == "gram" else off.reshape(-1, *(1,) * (leaf.ndim - 1))
        return jnp.where(where, 10**6 if name in ("n", "steps") else jnp.nan, leaf)

    filled = {name: jax.tree.map(functools.partial(fill, name), getattr(report, name)) for name in names}
    return report._replace(**filled)


def _cases(report: Report, absent: Report) -> dict[str, Report]:
    """What a rule may hear, by name."""
    cohort = len(report.ids)
    losses = ("loss", "train_loss")
    return {
        "everybody": report,
        "an absent client": absent,
        "losses of zero": report._replace(**{name: jnp.zeros(cohort) for name in losses}),
        f"a loss of {LARGE}": report._replace(**{name: getattr(report, name).at[0].set(LARGE) for name in losses}),
        "one client alone": report._replace(active=jnp.arange(cohort) == 1),
        NOBODY: report._replace(active=jnp.zeros(cohort, bool)),
    }


def _with_second_look(method: Method) -> Callable[[Any, Report, Any], tuple[Any, Any]]:
    """``weigh``, and ``revise`` on what it gives, where the method has one; as the engine asks them.

    Between the two, who is absent or has a coefficient that is not finite leaves the round.
    """
    weigh, revise = method.aggregator.weigh, method.revise
    if revise is None:
        return weigh

    def both(state: Any, report: Report, key: Any) -> tuple[Any, Any]:
        coef, after = weigh(state, report, key)
        there = report.active & jnp.isfinite(coef)
        return revise(after, jnp.where(there, coef, 0), _silent(report, there), key, _losses_after)

    return both


def _losses_after(update: Any, ids: jax.Array) -> jax.Array:
    """Losses after a step: positive, and another one for each client."""
    return 0.5 + ids / 10 + sum(jnp.square(leaf).sum() for leaf in jax.tree.leaves(update))


def _silent(report: Report, there: jax.Array) -> Report:
    """The report with the signals of who is not ``there`` in zeros."""

    def zeroed(leaf: Any) -> Any:
        return jnp.where(there.reshape(-1, *(1,) * (leaf.ndim - 1)), leaf, 0)

    signals = {name: jax.tree.map(zeroed, getattr(report, name)) for name in FILLED if name not in ("n", "gram")}
    return report._replace(active=there, gram=zeroed(zeroed(report.gram).T), **signals)


def _answers(promise: str, call: Callable[[], Any], start: Any, cohort: int) -> None:
    """The call gives a pair of S coefficients and a state of the form of ``start``."""
    answer = _ran(promise, call)
    pair = isinstance(answer, tuple) and len(answer) == 2
    _require(pair, f"returns a pair, coefficients and state, got {type(answer).__name__}")
    shape = np.shape(answer[0])
    _require(shape == (cohort,), f"gives one coefficient a slot, [{cohort}], got {shape}")
    _same_form(start, answer[1])


def _keeps_numbers(before: Any, after: Any) -> bool:
    """Whether no number of the state has become NaN."""
    pairs = zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    return not any(
        np.any(np.isnan(new) & ~np.isnan(old))
        for old, new in pairs
        if jnp.issubdtype(jnp.result_type(new), jnp.floating)
    )


def _same_form(before: Any, after: Any) -> None:
    old, new = types_of(before), types_of(after)
    _require(old == new, f"keeps the form of its state: structure, shapes and dtypes, but {old} became {new}")


def _alike(got: Any, expected: Any, promise: str) -> None:
    _require(_close(got, expected), promise)


def _close(got: Any, expected: Any) -> bool:
    pairs = zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True)
    return all(np.allclose(a, b, rtol=1e-4, atol=1e-5, equal_nan=True) for a, b in pairs)


def _ran(promise: str, call: Callable[[], Any]) -> Any:
    try:
        with explained():
            return call()
    except Exception as error:  # whatever a user's rule raises
        raise ValueError(f"rule must be one that {promise}, got {said(error)}") from error


def _require(kept: bool, promise: str) -> None:
    if not kept:
        raise ValueError(f"rule must be one that {promise}")
