"""Which signals of the report a rule reads: found in the traced program, where nothing can be read in secret."""

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.extend.core import Jaxpr, Literal

from fedjax_fair.checks import check_takes, nearest
from fedjax_fair.types import (
    Aggregator,
    Context,
    Memory,
    Method,
    Params,
    Report,
    Selector,
    as_method,
    heard_by_rule,
    message_of,
    server_transform,
)

FREE = ("ids", "active")  # known before anything is computed


def reads(
    rule: Aggregator | Method,
    selector: Selector | None = None,
    *,
    n_clients: int = 3,
    cohort: int | None = None,
    params: Params = None,
) -> tuple[str, ...]:
    """Names of the report's signals that a rule's result (its transform's, a selector's memory) depends on.

    Nothing is computed: the functions are traced on abstract values, which also shows whether they accept a
    cohort of this size at all. ``ids`` and ``active`` are left out.

    Args:
      rule: an aggregator or a method.
      selector: a selector, whose ``observe`` is traced too.
      n_clients: N to trace with.
      cohort: S to trace with; N by default.
      params: parameters (or their shapes) to trace with; two numbers by default.

    Raises:
      ValueError: ``init`` or ``weigh`` takes other arguments.
      AttributeError: the rule reads a signal that there is none of; the sentence has the nearest.

    >>> import fedjax_fair as ff
    >>> reads(ff.fedmaba()), reads(ff.fedavg()), reads(ff.fedmgda_plus())
    (('loss',), ('n',), ('gram',))
    """
    method, slots = as_method(rule), n_clients if cohort is None else cohort
    params = jax.ShapeDtypeStruct((2,), jnp.result_type(float)) if params is None else params
    check_functions(method.aggregator)

    def results(report: Report, params: Params) -> Any:
        heard = heard_by_rule(report, method.memory)
        sizes, key = jnp.ones((n_clients,)), jax.random.key(0)
        transform = server_transform(method, n_clients, slots)
        coef, start = jnp.ones((slots,)), method.aggregator.init(sizes, key)
        sent = {"report": report, "coef": coef, "key": key}
        return (
            method.aggregator.weigh(start, heard, key),
            () if method.revise is None else method.revise(start, coef, heard, key, _losses),
            transform.update(params, transform.init(params), params, **sent),
            selector.observe(selector.init(sizes, key), report) if selector is not None else (),
        )

    report = report_form(slots, params, method.memory)
    with explained(), _without_messages(method.memory):
        program = jax.make_jaxpr(results)(report, params)
    fields = jax.tree.unflatten(jax.tree.structure((report, params)), used_inputs(program.jaxpr))[0]
    used = {name for name, flags in zip(Report._fields, fields) if any(jax.tree.leaves(flags))}
    return tuple(name for name in Report._fields if name in used and name not in FREE)


def check_functions(rule: Aggregator) -> None:
    """Raise ValueError unless ``init`` and ``weigh`` of a rule take what they are given."""
    check_takes("init", rule.init, "sizes", "key")
    check_takes("weigh", rule.weigh, "state", "report", "key")


def types_of(tree: Any) -> str:
    """The types and shapes of a tree's leaves, in a sentence.

    >>> types_of({"mean": jnp.zeros(3), "round": 0})
    '{mean: float32[3], round: int32[]}'
    """
    return str(jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", tree)).replace("'", "")


ASKED = "a Python `if` cannot ask about what JAX traces, such as a signal or a swept setting: use jnp.where"


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """What is often wrong in a rule raises the same error as ever, which also says what to do.

    Raises:
      AttributeError: a signal that the report has not.
      TracerBoolConversionError: a Python ``if`` about a tracer.
    """
    try:
        yield
    except AttributeError as error:
        if not isinstance(error.obj, Report):
            raise
        known = ", ".join(Report._fields)
        sentence = f"report has no signal {error.name!r}, only {known}{nearest(error.name, Report._fields)}"
        # With the place in the rule, but without the attribute, for which Python would add a suggestion of its own.
        raise AttributeError(sentence).with_traceback(error.__traceback__) from None
    except jax.errors.TracerBoolConversionError as error:
        if ASKED not in str(error):
            first, _, rest = str(error).partition("\n")
            error.args = (f"{first.rstrip('.')}; {ASKED}\n{rest}",)
        raise


@contextlib.contextmanager
def _without_messages(memory: Memory | None) -> Iterator[None]:
    """An error of a rule that finds no message says why there is none."""
    try:
        yield
    except (TypeError, AttributeError) as error:
        if memory is not None and memory.summed and "NoneType" in str(error):
            error.add_note("report.message is None for a rule: by Memory(summed=True) only the transform has it")
        raise


def selects_by_rule(selector: Selector, rule: Aggregator, n_clients: int) -> bool:
    """Whether the cohort depends on the rule's state, ``context.rule``."""
    sizes, key = jax.eval_shape(lambda: jnp.ones((n_clients,))), jax.random.key(0)

    def select(state: Any, key: Any, sizes: Array) -> Any:
        def probe(ids: Array, key: Any = None, batch: int | None = None) -> Array:
            return jnp.ones(ids.shape)

        there = Context(
            jnp.zeros((), jnp.int32), n_clients, probe, lambda ids: jnp.ones(ids.shape, bool), rule=state
        )
        return selector.select(selector.init(sizes, key), key, there)

    start = jax.eval_shape(rule.init, sizes, key)
    flags = used_inputs(jax.make_jaxpr(select)(start, key, sizes).jaxpr)
    return any(flags[: len(jax.tree.leaves(start))])


def _losses(update: Params, ids: Array) -> Array:
    """Losses that depend on the whole update."""
    return jnp.zeros(ids.shape) + sum(leaf.sum() for leaf in jax.tree.leaves(update))


def used_inputs(program: Jaxpr) -> list[bool]:
    """Whether each input of a traced program has a path to an output; loops and branches count as a whole."""
    alive = {v for v in program.outvars if not isinstance(v, Literal)}
    for step in reversed(program.eqns):
        if alive.isdisjoint(step.outvars) and not step.effects:
            continue
        inner = step.params.get("jaxpr") if step.primitive.name in ("jit", "pjit") else None
        flags = [True] * len(step.invars) if inner is None else used_inputs(inner.jaxpr)
        alive |= {v for v, flag in zip(step.invars, flags) if flag and not isinstance(v, Literal)}
    return [v in alive for v in program.invars]


def report_form(slots: int, params: Params, memory: Memory | None = None) -> Report:
    """The shapes and types of a report from so many clients."""
    if memory is None:  # whose functions, and what they hold, JAX would keep
        return _of_ones.eval_shape(slots, params)
    return jax.eval_shape(lambda params: toy_report(slots, params, memory), params)


def toy_report(slots: int, params: Params, memory: Memory | None = None) -> Report:
    """A report of ones from clients 0 ... slots - 1, with updates shaped as ``params``."""
    one, sent = jnp.ones((slots,)), message_of(memory, params)

    def like(tree: Any) -> Any:
        return jax.tree.map(lambda p: jnp.ones((slots, *p.shape), p.dtype), tree)

    return Report(
        ids=jnp.arange(slots, dtype=jnp.int32),
        n=one,
        active=one > 0,
        loss=one,
        train_loss=one,
        train_loss_std=one,
        accuracy=one,
        gram=jnp.ones((slots, slots)),
        updates=like(params),
        steps=jnp.ones((slots,), jnp.int32),
        message=sent if memory is not None and memory.summed else like(sent),
    )


_of_ones = jax.jit(toy_report, static_argnums=0)  # traced once for all simulations of one form
