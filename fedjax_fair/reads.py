"""Which signals of the report a rule reads: found by tracing it with a report that takes notes."""

from typing import Any

import jax
import jax.numpy as jnp

from fedjax_fair.types import Aggregator, Method, Params, Report, Selector, as_method

FREE = ("ids", "active")  # known before anything is computed


def reads(
    rule: Aggregator | Method,
    selector: Selector | None = None,
    *,
    n_clients: int = 3,
    cohort: int | None = None,
    params: Params = None,
) -> tuple[str, ...]:
    """Names of the report's signals that a rule (its transform, and a selector's feedback) looks at.

    Nothing is computed: the functions are traced on abstract values, which also shows whether they accept a
    cohort of this size at all. ``ids`` and ``active`` are left out.

    Args:
      rule: an aggregator or a method.
      selector: a selector, whose ``observe`` is traced too.
      n_clients: N to trace with.
      cohort: S to trace with; N by default.
      params: parameters (or their shapes) to trace with; two numbers by default.
    """
    method = as_method(rule)
    params = jax.ShapeDtypeStruct((2,), jnp.float32) if params is None else params
    notes: set[str] = set()

    def trace(params: Params) -> None:
        report = toy_report(cohort or n_clients, params)
        recorder = recording(report, notes)
        sizes, key = jnp.ones((n_clients,)), jax.random.key(0)
        method.aggregator.weigh(method.aggregator.init(sizes, key), recorder, key)
        if method.transform is not None:
            method.transform.update(params, method.transform.init(params), params, report=recorder)
        if selector is not None:
            selector.observe(selector.init(sizes, key), recorder)

    jax.eval_shape(trace, params)
    return tuple(name for name in Report._fields if name in notes and name not in FREE)


def recording(report: Report, notes: set[str]) -> Report:
    """The same report, which adds to ``notes`` the name of every field that is looked at."""

    class Recorder(Report):
        __slots__ = ()

        def __getattribute__(self, name: str) -> Any:
            if name in Report._fields:
                notes.add(name)
            return super().__getattribute__(name)

        def __getitem__(self, index: Any) -> Any:
            names = Report._fields[index]
            notes.update((names,) if isinstance(names, str) else names)
            return super().__getitem__(index)

        def __iter__(self) -> Any:
            notes.update(Report._fields)
            return super().__iter__()

        def _replace(self, **changes: Any) -> "Recorder":  # making a copy is not reading
            old = zip(Report._fields, tuple.__iter__(self))
            return Recorder(*(changes.get(name, value) for name, value in old))

    return Recorder(*report)


def toy_report(slots: int, params: Params) -> Report:
    """A report of ones from clients 0 ... slots - 1, with updates shaped as ``params``."""
    one = jnp.ones((slots,))
    return Report(
        ids=jnp.arange(slots, dtype=jnp.int32),
        n=one,
        active=one > 0,
        loss=one,
        train_loss=one,
        train_loss_std=one,
        accuracy=one,
        gram=jnp.ones((slots, slots)),
        updates=jax.tree.map(lambda p: jnp.ones((slots, *p.shape), p.dtype), params),
    )
