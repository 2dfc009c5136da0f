"""Whether two rules may share a program: those that train alike and read the same signals.

Of tiny models and few clients those, too, of which one reads what the updates show, such as their Gram matrix, or
the received losses where training takes longer: that costs less than a program of its own.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from fedjax_fair.engine.failures import drop_failures
from fedjax_fair.engine.made_alike import made_alike
from fedjax_fair.local.sgd import LocalSGD
from fedjax_fair.numerics.model_size import is_tiny
from fedjax_fair.reads import FREE, explained, selects_by_rule
from fedjax_fair.types import Aggregator, Key, Method, Report, Simulation, State, as_method, marked

Rule = Aggregator | Method

SLIGHT = frozenset(["gram", "updates", "steps"])
"""Signals that training leaves behind, whoever reads them: no other pass over the clients' examples."""

FEW = 32
"""Clients of a cohort whose updates of a tiny model are kept and compared in less time than they train."""


class Made(NamedTuple):
    """What a factory makes, and the simulation that ``build`` makes of it."""

    given: Any
    """A rule, or a pair of a rule and something."""
    sim: Simulation


def rule_of(given: Any) -> Any:
    """The rule of what a factory makes: of a pair of rule and selector its first."""
    return given if isinstance(given, Aggregator | Method) or not isinstance(given, tuple) else given[0]


def share(one: Made, other: Made, nearly: bool) -> bool:
    """Whether two simulations differ in their aggregation rules alone, and read the same signals, or ``nearly``."""
    differ = ({*one.sim.reads} ^ {*other.sim.reads}) - {"n"}
    if differ and not (nearly and differ <= _slight(one.sim)):
        return False
    if not (_handed_on(one) and _handed_on(other) and made_alike(_beside(one), _beside(other))):
        return False
    if not score_alike(one.sim, other.sim):
        return False
    return not any(_selects_by_rule(made.sim) for made in (one, other))


def score_alike(one: Simulation, other: Simulation) -> bool:
    """Whether two simulations differ in their aggregation alone, so that they train and judge by one program."""
    for sim in (one, other):
        if sim.arguments is None or _method(sim) != Method(_method(sim).aggregator):
            return False  # with an objective, a trainer or a transform of its own
    return same_but_rule(one, other)


def same_but_rule(one: Simulation, other: Simulation) -> bool:
    """Whether both were given the same, but for the rule."""
    mine, theirs = ({k: v for k, v in (s.arguments or {}).items() if k != "aggregator"} for s in (one, other))
    return made_alike(mine, theirs)


def telling(rule: Aggregator, read: Sequence[str]) -> Aggregator:
    """The rule, told what it reads alone: a client of whom any of that is not finite is out of its round.

    So it is in a program of its own; where rules share one, another's signals would decide, too.
    """

    def weigh(state: State, report: Report, key: Key) -> tuple[Array, State]:
        unread = [name for name in Report._fields if name not in (*FREE, *read)]
        silent = {name: jax.tree.map(jnp.zeros_like, getattr(report, name)) for name in unread}
        heard = drop_failures(report._replace(**silent), read, report.active)
        with explained():
            coef, after = rule.weigh(state, heard, key)
        return jnp.where(report.active & ~heard.active, jnp.nan, coef), after

    positive, cancels = (getattr(rule.weigh, mark, False) for mark in ("positive_losses", "cancels"))
    return Aggregator(rule.init, marked(weigh, positive_losses=positive, cancels=cancels))


def _method(sim: Simulation) -> Method:
    return as_method((sim.arguments or {})["aggregator"])


def _handed_on(made: Made) -> bool:
    """Whether ``build`` gave the simulation the rule that it was given, and nothing made of it."""
    return made.sim.arguments is not None and made_alike(as_method(rule_of(made.given)), _method(made.sim))


def _beside(made: Made) -> tuple:
    """What comes with the rule."""
    return () if rule_of(made.given) is made.given else tuple(made.given[1:])


def _slight(sim: Simulation) -> frozenset[str]:
    """The signals that cost less than training."""
    arguments = sim.arguments or {}
    selector = arguments.get("selector")
    cohort = sim.data.n_clients if selector is None else selector.cohort
    if cohort > FEW or not is_tiny(jax.eval_shape(sim.init, jax.random.key(0)).params):
        return frozenset()
    return SLIGHT | {"loss"} if _sees_all(arguments.get("trainer"), sim.data.sizes.mean()) else SLIGHT


def _sees_all(train: Any, size: float) -> bool:
    """Whether a client of this size trains on as many examples as its loss looks at, forwards and backwards."""
    if not isinstance(train, LocalSGD):
        return False
    whole = train.batch_size is None or train.steps is None or train.steps * train.batch_size >= size
    return whole and train.limit is None


def _selects_by_rule(sim: Simulation) -> bool:
    """Whether its cohorts depend on the rule's state, which is another's where rules are joined."""
    selector = (sim.arguments or {})["selector"]
    return selector is not None and selects_by_rule(selector, _method(sim).aggregator, sim.data.n_clients)
