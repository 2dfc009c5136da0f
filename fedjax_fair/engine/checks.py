"""What ``simulation`` checks before anything is compiled, and the form of what a user's parts return."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from fedjax_fair.checks import check_choice, check_optimizer, check_takes, said
from fedjax_fair.data import FederatedData
from fedjax_fair.local.sgd import LocalSGD
from fedjax_fair.reads import check_functions, explained, types_of
from fedjax_fair.robustness.availability import PerClient
from fedjax_fair.types import Aggregator, Client, Context, LossFn, Params, Selector, Trace


def check_types(data: Any, server_optimizer: Any, loss: Any, deploy: Any) -> None:
    """What would otherwise fail deep inside JAX or optax."""
    if not isinstance(data, FederatedData):
        raise ValueError(f"data must be a FederatedData, such as ff.data.synthetic(), got {type(data).__name__}")
    if server_optimizer is not None:
        check_optimizer("server_optimizer", server_optimizer, "optax.sgd(1.)")
    if not callable(loss):
        raise ValueError(f"loss must be a function of outputs and labels, got {loss!r}")
    if deploy is not None and not callable(deploy):
        raise ValueError(f"deploy must be a function of the state, such as ff.averaged, got {deploy!r}")


def check_federation(selector: Selector, available: Any, n_clients: int, rule: Aggregator) -> None:
    """The selector, beside this rule, and the availability are made for so many clients."""
    check_cohort(selector, n_clients)
    check_functions(rule)
    check_select(selector, n_clients, rule)
    check_available(available, n_clients)


def check_cohort(selector: Selector, n_clients: int) -> None:
    """A selector cannot fill more slots than there are clients."""
    if not isinstance(selector, Selector):
        raise ValueError(f"selector must be a Selector, such as ff.uniform(10), got {type(selector).__name__}")
    if not 1 <= selector.cohort <= n_clients:
        raise ValueError(f"the cohort m must be from 1 to the {n_clients} clients, got {selector.cohort}")


def check_available(available: Any, n_clients: int) -> None:
    """An availability answers for N clients: one bool for each id."""
    if not callable(available):
        raise ValueError(f"available must be a function, such as ff.availability.bernoulli(.8), got {available!r}")
    if isinstance(available, PerClient) and available.n_clients != n_clients:
        raise ValueError(f"available is made for {available.n_clients} clients, got a federation of {n_clients}")
    round, ids = (jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((), (n_clients,)))
    try:
        answer = jax.eval_shape(lambda *asked: available(*asked), jax.random.key(0), round, ids)
    except TypeError as error:
        name = getattr(available, "__name__", available)
        raise ValueError(
            f"available must be a function (key, round, ids) -> bool[K], such as ff.availability.bernoulli(.8), "
            f"got {name}: {error}"
        ) from error
    if answer.shape != (n_clients,) or answer.dtype != bool:
        raise ValueError(
            f"available must return bool[K] for ids [K], got {answer.dtype}{list(answer.shape)} for {n_clients} ids"
        )


def check_splits(evaluate: Sequence[str], data: FederatedData) -> tuple[str, ...]:
    """The splits to evaluate on, each known and not empty; of "test@personal" the first half."""
    if not isinstance(evaluate, (list, tuple)) or not evaluate:
        raise ValueError(f"evaluate must be a non-empty list of splits, such as ('test',), got {evaluate!r}")
    splits = [name.partition("@")[0] if isinstance(name, str) else name for name in evaluate]
    for name in splits:
        check_choice("evaluate", name, ("test", "validation", "train"))
        if not getattr(data, name).rows.shape[0]:
            raise ValueError(
                f"evaluate asks for the {name} split, but the data has none: give split a share for it"
            )
    return tuple(splits)


def check_weights(
    result: Any, cohort: int, before: Any, name: str = "weigh", n_clients: int | None = None
) -> tuple[Array, Any]:
    """What an aggregator's ``weigh``, or a method's ``revise``, must return: ``(coefficients f[S], state)``.

    ``n_clients``, where it is known, is for the sentence to a rule that returns as many.
    """
    result = _as_arrays(result)
    if not isinstance(result, tuple) or len(result) != 2 or jnp.shape(result[0]) != (cohort,):
        alone = "one array" if isinstance(result, Array) else type(result).__name__
        got = jnp.shape(result[0]) if isinstance(result, tuple) and result else alone
        all_of_them = ", one for each of the federation: index with report.ids" if got == (n_clients,) else ""
        wanted = f"(coefficients [{cohort}], state), one for each client of the cohort"
        raise ValueError(f"{name} must return {wanted}, got {got}{all_of_them}")
    check_state(name, before, result[1])
    return result


def check_trained(
    result: Any, params: Params, memory: Any = None, message: Any = None
) -> tuple[Params, Trace, Any, Any]:
    """What a trainer must return, in full: ``(params of the model's form, Trace, memory, message)``.

    ``memory`` is the one that the client had, and ``message`` one of the method's form, in zeros: what holds where
    the trainer leaves them out, as one that knows of neither does.
    """
    wanted = "trainer must return (params, ff.Trace(loss, loss_std))"
    if not isinstance(result, tuple) or not 2 <= len(result) <= 4 or not isinstance(result[1], Trace):
        of = f" of {', '.join(type(part).__name__ for part in result)}" if isinstance(result, tuple) else ""
        raise ValueError(f"{wanted}, got {type(result).__name__}{of}")
    sent, trained = _form(params), _form(result[0])
    if sent != trained:
        raise ValueError(f"trainer must return a model of the form that it was sent, {sent}, got {trained}")
    extra = [*result[2:], *(memory, message)[len(result) - 2 :]]
    for name, place, got, before in zip(("memory", "message"), ("init", "message"), extra, (memory, message)):
        if (form := _form(got)) != (due := _form(before)):
            raise ValueError(f"trainer must return a {name} of the form of Memory.{place}, {due}, got {form}")
    typed = (
        jax.tree.map(lambda new, old: jnp.asarray(new, old.dtype), *both) for both in zip(extra, (memory, message))
    )
    return (result[0], result[1], *typed)


def check_trainer(train: Any, loss: LossFn, params: Params, data: FederatedData) -> None:
    """A trainer of the user's own takes one client and returns a model and a Trace: traced, nothing computed."""
    if isinstance(train, LocalSGD):
        return

    def first(params: Params, data: FederatedData, key: Any, round: Any) -> Any:
        client = Client(round, data.train.rows[:largest], round + 1, data.take)
        return check_trained(train(loss, params, client, key, round), params)

    largest = int(data.sizes.max())
    try:
        jax.eval_shape(first, params, data, jax.random.key(0), jnp.zeros((), jnp.int32))
    except TypeError as error:  # other arguments
        raise ValueError(
            "trainer must be a function (loss, params, client, key, round) -> (params, ff.Trace(loss, loss_std)), "
            f"got {getattr(train, '__name__', train)}: {said(error)}"
        ) from error


def check_deploy(deploy: Any, init: Any, params: Params) -> None:
    """What ``deploy`` makes of a state has the model's form; None, which deploys the state's own, has it."""
    if deploy is None:
        return
    made = jax.eval_shape(lambda key: deploy(init(key)), jax.random.key(0))
    wanted, got = _form(params), _form(made)
    if wanted != got:
        raise ValueError(f"deploy must return a model of the form of state.params, {wanted}, got {got}")


def check_ids(result: Any, cohort: int) -> tuple[Array, Any]:
    """What a selector's ``select`` must return: ``(ids i32[S], state)``."""
    if isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], np.ndarray):
        result = (_in_32_bits(result[0], np), result[1])  # which JAX would cut
    result = _as_arrays(result)
    if not isinstance(result, tuple) or len(result) != 2 or jnp.shape(result[0]) != (cohort,):
        got = jnp.shape(result[0]) if isinstance(result, tuple) and result else type(result).__name__
        raise ValueError(f"select must return (ids [{cohort}], state), got {got}")
    ids, state = result
    if not jnp.issubdtype(ids.dtype, jnp.integer):
        raise ValueError(f"select must return whole numbers as ids, got {ids.dtype}")
    return _in_32_bits(ids, jnp).astype(jnp.int32), state


def _in_32_bits(ids: Any, xp: Any) -> Any:
    """Whole numbers of NumPy or JAX; what 32 bits do not hold becomes a number that nobody has, not somebody's."""
    if not xp.issubdtype(ids.dtype, xp.integer) or (ids.dtype.itemsize <= 4 and ids.dtype != xp.uint32):
        return ids
    return xp.where((ids >= 0) & (ids <= 2**31 - 1), ids, 2**31 - 1)


def _as_arrays(result: Any) -> Any:
    """``(values, state)`` with a list of values, or NumPy's, as JAX has them."""
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[0], list | np.ndarray):
        return result
    return jnp.asarray(result[0]), result[1]


def check_select(selector: Selector, n_clients: int, rule: Aggregator) -> None:
    """A selector accepts N clients and keeps its state's form: traced, nothing computed."""
    check_takes("selector.init", selector.init, "sizes", "key")
    check_takes("selector.select", selector.select, "state", "key", "context")
    check_takes("selector.observe", selector.observe, "state", "report")

    def ask(ids: Array, key: Any = None, batch: int | None = None) -> Array:
        return jnp.ones(ids.shape)

    def first(key: Any) -> tuple[Any, Any]:
        sizes = jnp.ones((n_clients,))
        rules = rule.init(sizes, key)
        context = Context(jnp.zeros((), jnp.int32), n_clients, ask, lambda ids: jnp.ones(ids.shape, bool), rules)
        state = selector.init(sizes, key)
        return state, check_ids(selector.select(state, key, context), selector.cohort)[1]

    with explained():
        check_state("select", *jax.eval_shape(first, jax.random.key(0)))


def observing(selector: Selector) -> Selector:
    """The selector, which when it is traced is held to the form of its state."""

    def observe(state: Any, report: Any) -> Any:
        after = selector.observe(state, report)
        check_state("observe", state, after)
        return after

    return selector._replace(observe=observe)


def checking(aggregator: Aggregator, cohort: int, n_clients: int) -> Aggregator:
    """The rule, which when it is traced is held to S coefficients, and to the form of its state."""

    def weigh(state: Any, report: Any, key: Any) -> tuple[Array, Any]:
        return check_weights(aggregator.weigh(state, report, key), cohort, state, n_clients=n_clients)

    return aggregator._replace(weigh=weigh)


def check_state(name: str, before: Any, after: Any) -> None:
    """A state that is carried over the rounds keeps its structure, its shapes and its types."""
    old, new = _form(before), _form(after)
    if old != new:
        raise ValueError(f"{name} must return a state of the same form as init's, {old}, got {new}")
    if not all(map(_keeps_type, jax.tree.leaves(before), jax.tree.leaves(after))):
        old, new = types_of(before), types_of(after)
        raise ValueError(f"{name} must return a state of the same types as init's, {old}, got {new}")


def _keeps_type(old: Any, new: Any) -> bool:
    """A Python number may become a shorter one of its kind; a loop and a checkpoint keep any other type."""
    before, after = jnp.result_type(old), jnp.result_type(new)
    weak = getattr(old, "weak_type", isinstance(old, bool | int | float | complex))
    return before == after or (weak and before.kind == after.kind)


def _form(tree: Any) -> str:
    return str(jax.tree.map(lambda leaf: list(jnp.shape(leaf)), tree))
