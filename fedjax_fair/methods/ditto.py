"""Ditto: a personal model beside the global one (Li et al., 2021)."""

from typing import Any

from jax import Array

from fedjax_fair.aggregators.fedavg import fedavg
from fedjax_fair.checks import check_count, check_range
from fedjax_fair.local.remembering import Several, as_late, need_local_sgd, plus, squared_distance
from fedjax_fair.local.sgd import LocalSGD
from fedjax_fair.methods.base import around
from fedjax_fair.types import Aggregator, Client, Key, LossFn, Memory, Method, Params


def ditto(
    lam: Array | float = 1.0, personal_steps: int | None = None, aggregator: Aggregator | Method | None = None
) -> Method:
    r"""Every client trains a model of its own, held to the global one, which is trained as without it.

    .. math:: \min_{v_k} F_k(v_k) + \tfrac{\lambda}{2} \|v_k - w^*\|^2

    In a round the selected clients train v_k from where it is, towards the received w, and send what they trained
    from w. Others keep their v_k, which begins as the first model. ``evaluate=("test@personal",)`` scores v_k.
    Reads what ``aggregator`` reads. ``lam = 0`` is every client alone. F_k is the aggregator's local objective:
    under FedProx v_k is held by lam + mu, under PropFair F_k is its logarithm. Keeps a model for every client; a
    round costs about two of its aggregator's.

    Optimises: for every client F_k + lam / 2 of the squared distance to the minimum of its aggregator's objective.

    Args:
      lam: how strongly personal models are held to the global one, >= 0; the authors try {.1, 1, 2}. Below 2 over
        the local rate, or they diverge.
      personal_steps: s, local steps of the personal model; by default it takes the global one's batches, a step of
        each in turn, as in the authors' code. A client that makes a share of its steps makes this share of s.
      aggregator: how the global model is made; by default ``fedavg()``. ``ff.fedmaba()`` makes it fair.

    Raises:
      ValueError: ``lam`` is negative, ``personal_steps`` below 1, an aggregator whose clients remember; in
        ``simulation``, ``personal_steps`` with a trainer that is not ``local_sgd``'s.

    Differs from the authors' code in: w is weighed by the clients' sizes; ``aggregator=ff.fedavg("uniform")`` with
    ``ff.size_proportional`` selection is theirs.

    Source: Li, Hu, Beirami, Smith, Ditto: Fair and Robust Federated Learning Through Personalization, ICML 2021.
    """
    check_range("lam", lam, 0)
    if personal_steps is not None:
        check_count("personal_steps", personal_steps)

    def local(trainer: Any) -> Several:
        steps = None if personal_steps is None else _of_steps(trainer, personal_steps)

        def work(loss: LossFn, params: Params, client: Client, key: Key, round: Array) -> tuple:
            # The personal model starts elsewhere, but whatever goes by the received model still does.
            held = plus(loss, lambda v: lam / 2 * squared_distance(v, params), anchor=params)
            jobs = (loss, params, client, key), (held, client.memory, client, key)
            if steps is None and type(trainer) is LocalSGD:
                (trained, trace), (own, _) = trainer.together(jobs, round)
            else:
                trained, trace = trainer(*jobs[0], round)
                own = (trainer if steps is None else as_late(steps, trainer, client, key))(*jobs[1], round)[0]
            return trained, trace, own

        return Several(trainer, work)

    memory = Memory(init=lambda params: params, personal=lambda params, own: own)
    return around("ditto", fedavg() if aggregator is None else aggregator, memory, local)


def _of_steps(trainer: Any, steps: int) -> LocalSGD:
    sgd = need_local_sgd(trainer, "ditto(personal_steps=...)")
    return (
        sgd._replace(epochs=steps, steps=None) if sgd.batch_size is None else sgd._replace(epochs=None, steps=steps)
    )
