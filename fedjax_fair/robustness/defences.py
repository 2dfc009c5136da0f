"""Defences: what the server does about clients that may lie, for any rule.

:func:`clip_updates`, :func:`median`, :func:`trimmed_mean` and :func:`clip_and_noise` are server transforms: chain
them before the server optimiser, ``optax.chain(ff.defences.clip_updates(1.), optax.sgd(1.))``. They read the
round's ``report``, the rule's ``coef`` and a ``key``, which ``simulation`` hands to every server optimiser, and
make the aggregate anew, so each comes first; ``simulation`` refuses it after another transform (``fedfv`` with
``tau > 0`` has one), and one with no optimiser behind it.
:func:`clip_losses` wraps a rule, which then hears no loss far above the others'.
"""

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from fedjax_fair.checks import check_range, said
from fedjax_fair.reads import report_form
from fedjax_fair.robustness.loss_clipping import clip_losses as clip_losses
from fedjax_fair.types import Key, Memory, Params, Report, State


def clip_updates(max_norm: float) -> optax.GradientTransformationExtraArgs:
    r"""Shorten every client's update to ``max_norm``: no client moves the model by more than c_k times that.

    .. math:: \Delta_k \leftarrow \Delta_k \min(1, C / \lVert \Delta_k \rVert)

    Args:
      max_norm: C, in units of the parameters; above 0.

    Raises:
      ValueError: a norm that is not above 0.

    Source: Sun, Kairouz, Suresh, McMahan, Can you really backdoor federated learning?, 2019.
    """
    check_range("max_norm", max_norm, 0, open_low=True)

    def update(g: Params, state: State, params: Params = None, **sent: Any) -> tuple[Params, State]:
        return _made("clip_updates", g, sent, _clipped(sent["report"], sent["coef"], max_norm)), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def median() -> optax.GradientTransformationExtraArgs:
    r"""Replace the weighted mean of the updates by their coordinate-wise median, times the coefficients' sum.

    .. math:: g = -\Big(\sum_k c_k\Big) \operatorname{median}_{k \text{ active}} \Delta_k

    The coefficients' sum keeps a rule's own step size; their differences, and with them its fairness, are given up.
    ``simulation`` refuses it beside ``fairmoo``, whose coefficients may sum to 0; a rule of your own whose may says
    so by ``weigh.cancels = True``.

    Source: Yin, Chen, Ramchandran, Bartlett, Byzantine-robust distributed learning, ICML 2018.
    """
    return trimmed_mean(0.5)


def trimmed_mean(share: float = 0.1) -> optax.GradientTransformationExtraArgs:
    r"""Replace the weighted mean of the updates by their coordinate-wise trimmed mean, times the coefficients' sum.

    In every coordinate the ``floor(share * K)`` smallest and largest of the K active clients' values are left out,
    but always one (K odd) or two (K even) kept: at ``share = .5`` it is the median.

    Args:
      share: trimmed at either end, in [0, .5].

    Raises:
      ValueError: a share outside [0, .5].

    Source: Yin, Chen, Ramchandran, Bartlett, Byzantine-robust distributed learning, ICML 2018.
    """
    check_range("share", share, 0, 0.5)

    def update(g: Params, state: State, params: Params = None, **sent: Any) -> tuple[Params, State]:
        report, coef = sent["report"], sent["coef"]
        if sent.get("cancels"):
            raise ValueError(
                "median and trimmed_mean step by the coefficients' sum, which may be 0 under this rule (fairmoo): "
                "nothing would move; clip_updates goes with any rule"
            )
        active = report.active
        count = active.sum()
        whole = jnp.floor(share * count * (1 + 4 * jnp.finfo(jnp.float32).eps))  # .42 x 150 is 63, not 62.99999
        cut = jnp.minimum(whole.astype(count.dtype), (count - 1) // 2)

        def trim(updates: Array) -> Array:
            slots = (-1, *(1,) * (updates.ndim - 1))
            ordered = jnp.sort(jnp.where(active.reshape(slots), updates, jnp.inf), axis=0)  # the absent come last
            place = jnp.arange(active.shape[0]).reshape(slots)
            kept = (place >= cut) & (place < count - cut)
            mean = jnp.where(kept, ordered, 0).sum(0) / jnp.maximum(count - 2 * cut, 1).astype(updates.dtype)
            return -coef.sum().astype(updates.dtype) * mean

        return _made("trimmed_mean or median", g, sent, jax.tree.map(trim, report.updates)), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def clip_and_noise(max_norm: float, noise_multiplier: float) -> optax.GradientTransformationExtraArgs:
    r"""Clip every client's update and add Gaussian noise to their sum: the Gaussian mechanism.

    .. math:: g = -\sum_k c_k \Delta_k \min(1, C / \lVert \Delta_k \rVert) + z\,C\,\max_k |c_k|\; \mathcal N(0, I)

    With ``fedavg("uniform")``, whose coefficients do not depend on anybody's data, exchanging one client's data
    moves the clipped sum by at most :math:`2 C / m`: relative to that the noise is z / 2. Any other rule leaks
    through its coefficients as well, which no noise here accounts for. So does a client who is left out because its
    update is not finite: it shows in the others' coefficients and in the noise. What is spent over the rounds, with
    cohorts of ``uniform`` and all clients available, an accountant says (``pip install 'fedjax-fair[privacy]'``
    brings ``dp-accounting``):

        from dp_accounting import GaussianDpEvent, NeighboringRelation, SampledWithoutReplacementDpEvent, rdp
        event = SampledWithoutReplacementDpEvent(n_clients, cohort, GaussianDpEvent(noise_multiplier / 2))
        accountant = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
        accountant.compose(event, rounds).get_epsilon(delta)

    The noise is drawn with the run's key: every seed has its own.

    Args:
      max_norm: C, above 0.
      noise_multiplier: z, at least 0.

    Raises:
      ValueError: a value out of range; in ``simulation``, a method whose clients send a message besides the update.

    Source: McMahan, Ramage, Talwar, Zhang, Learning differentially private recurrent language models, ICLR 2018.
    """
    check_range("max_norm", max_norm, 0, open_low=True)
    check_range("noise_multiplier", noise_multiplier, 0)

    def update(g: Params, state: State, params: Params = None, **sent: Any) -> tuple[Params, State]:
        if sent.get("messages"):
            raise ValueError(
                "clip_and_noise protects the updates alone, and this method's clients send a message besides, as "
                "scaffold's and drfa's do: take a method without one, or ff.defences.clip_updates"
            )
        coef = sent["coef"]
        clipped = _clipped(sent["report"], coef, max_norm)
        leaves, structure = jax.tree.flatten(clipped)
        std = noise_multiplier * max_norm * jnp.abs(coef).max()
        keys = jax.random.split(sent["key"], max(1, len(leaves)))
        noisy = [v + std.astype(v.dtype) * jax.random.normal(k, v.shape, v.dtype) for k, v in zip(keys, leaves)]
        return _made("clip_and_noise", g, sent, jax.tree.unflatten(structure, noisy)), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


def _made(name: str, g: Params, sent: dict[str, Any], aggregate: Params) -> Params:
    """``aggregate``, which ``name`` made anew; while ``simulation`` checks, note that, and refuse a ``g`` not its
    own."""
    trail = sent.get("trail")
    if trail is not None:
        if not is_among(g, trail[:1]):
            raise ValueError(
                f"{name} makes the aggregate anew and undoes what was done before: in server_optimizer it comes "
                "first, ahead of optimisers and other defences, and it does not go with fedfv's memory (tau > 0), "
                "with feddyn's, or with fedeba_plus"
            )
        trail.append(aggregate)
    return aggregate


def check_descends(
    server: Any, params: Params, cohort: int, memory: Memory | None = None, cancels: bool = False
) -> None:
    """What the server does with the aggregate, a rule's own transform included, ends in a step against it.

    Raises:
      ValueError: what a defence or the round made is handed on as it is; a defence is not the first; or one goes by
        the coefficients' sum where that may be 0 (``cancels``).
    """

    def trace(report: Report, params: Params, key: Key) -> Params:
        g = jax.tree.map(lambda u: -u.sum(0), report.updates)
        trail = [g]
        sent = {"report": report, "coef": report.loss, "key": key, "trail": trail, "cancels": cancels}
        sent |= {"messages": memory is not None and memory.message is not None}
        moved, _ = optax.with_extra_args_support(server).update(g, server.init(params), params, **sent)
        if is_among(moved, trail):
            raise ValueError(
                "server_optimizer must end in an optimiser that descends, as in "
                "optax.chain(ff.defences.median(), optax.sgd(1.)); got one that hands the aggregate on"
            )
        return moved

    report = report_form(cohort, params, memory)
    try:
        jax.eval_shape(trace, report, params, jax.random.key(0))
    except TypeError as error:  # one that wants more, such as the loss (value=)
        raise ValueError(
            f"server_optimizer must take the aggregate, its state and params, got {said(error)}"
        ) from error


def is_among(tree: Params, trees: list[Params]) -> bool:
    """Whether these very arrays are one of ``trees``."""
    mine = [id(leaf) for leaf in jax.tree.leaves(tree)]
    return any(mine == [id(leaf) for leaf in jax.tree.leaves(other)] for other in trees)


def _clipped(report: Report, coef: Array, max_norm: float) -> Params:
    """The aggregate of the updates, each no longer than ``max_norm``.

    Made anew from the updates: what an excess of 1e6 cancels in float32 is not what it leaves.
    """
    flat = jnp.concatenate([u.reshape(u.shape[0], -1) for u in jax.tree.leaves(report.updates)], axis=1)
    largest = jnp.abs(flat).max(axis=1, keepdims=True)  # taken out first: the square of 1e20 is not a float32
    norms = largest[:, 0] * jnp.linalg.norm(flat / jnp.where(largest > 0, largest, 1), axis=1)
    shortened = coef * jnp.minimum(1, max_norm / jnp.where(norms > 0, norms, max_norm))
    return jax.tree.map(
        lambda u: -jnp.tensordot(shortened.astype(u.dtype), u, 1, precision="highest"), report.updates
    )
