"""The types of one client's work: what it is given, what it does, and what it leaves behind.

Letters as in :mod:`fedjax_fair.types`, which has all of these names, too.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from jax import Array

Key = Array  # a typed JAX PRNG key, ``jax.random.key(seed)``
Params = Any  # a pytree of arrays: the model's parameters
State = Any  # a pytree of arrays: what a rule, a selector or a server optimiser carries over the rounds


class Batch(NamedTuple):
    """A minibatch, padded to a static size."""

    x: Any
    """[B, ...], or a pytree of such arrays: the model's inputs, already normalised."""
    y: Array
    """[B] or [B, ...]: labels or targets."""
    mask: Array
    """bool[B]: False for padding."""
    key: Key | None = None
    """Randomness of this step (dropout); None when evaluating."""


class Client(NamedTuple):
    """One client as its local trainer sees it: a view into the example store, nothing copied."""

    id: Array
    """i32[]: the client."""
    rows: Array
    """i32[M]: its rows of the example store, as ``take`` numbers them; only the first ``size`` are its own."""
    size: Any
    """i32[]: number of its training examples; a Python integer where all clients have the same."""
    take: Callable[[Array], tuple[Any, Array]]
    """``(rows i32[B]) -> (x, y)``: the normalised examples at those rows of the store."""
    memory: Any = None
    """What it kept of its last round, or ``Memory.init`` where it had none; None where the method keeps nothing."""
    broadcast: Any = None
    """What the server sends everybody besides the model (``Memory.broadcast``); None for nothing."""


class Trace(NamedTuple):
    """What local training leaves behind besides the parameters."""

    loss: Array
    """f32[]: mean minibatch loss over the local steps."""
    loss_std: Array
    """f32[]: standard deviation of the minibatch losses over the local steps."""
    steps: Any = None
    """i32[]: local steps made; None where the trainer does not count them, and then nothing can read them."""
    gradient: Any = None
    """Mean over the local steps of the gradient, of the form of the parameters, where a method asked for it
    (``LocalSGD.gradient``), with the weight decay of plain SGD; it stays at the client."""
    snapshot: Any = None
    """The model on its way, where a method asked for it (``LocalSGD.snapshot``); it stays at the client."""


class Objective(Protocol):
    """How a client turns its per-example losses into the scalar that it differentiates."""

    def __call__(self, losses: Array, mask: Array, params: Params, anchor: Params, /) -> Array:
        """``(losses f32[B], mask bool[B], params, anchor) -> f32[]``; ``anchor`` is the received model."""
        ...


LossFn = Callable[[Params, Batch, Params], tuple[Array, Array]]
"""``(params, batch, anchor) -> (objective, mean plain loss of the batch)``."""


class Train(Protocol):
    """The local work of ONE client; :func:`fedjax_fair.local_sgd` makes one."""

    def __call__(self, loss: LossFn, params: Params, client: Client, key: Key, round: Array, /) -> Any:
        """``(loss, params, client, key, round) -> (params, trace)``: params of the form of those received.

        Of clients that remember also ``(params, trace, memory)``, or ``(params, trace, memory, message)``; where
        the memory is left out, the client keeps the one that it had.
        """
        ...


class Memory(NamedTuple):
    """What clients keep between their rounds, and what goes to and fro besides the model."""

    init: Callable[[Params], Any]
    """``params -> M``: a client's memory before its first round, from the first model; the engine keeps N of them.

    The trainer finds it as ``client.memory`` and returns the next. A client that was absent or failed, or whose
    memory or message is not finite, keeps what it had.
    """
    message: Callable[[Params], Any] | None = None
    """``params -> pytree``: the form of what a client sends besides the update, in zeros; None for nothing. The
    rule and the server find it as ``report.message``."""
    summed: bool = False
    """Whether the sum of the active clients' messages is all that the server needs, as under secure aggregation:
    the ``transform`` finds it as ``report.message``, without a client axis, and a rule finds None. Then no more
    than one message exists at a time."""
    broadcast: Callable[[Any], Any] | None = None
    """``state -> pytree``: what the server sends besides the model, of the state of the method's ``transform``; of
    the rule's, where the method has no transform."""
    personal: Callable[[Params, Any], Params] | None = None
    """``(params, M) -> params``: the model that a client uses itself: scored where ``evaluate`` says
    ``"test@personal"``."""
    received: Callable[[Params, Any], Params] | None = None
    """``(params, M) -> params``: the model that a client begins its round with, whose loss and accuracy it reports;
    None for the server's."""
    of_head: Callable[[str], "Memory"] | None = None
    """``pattern -> memory`` in the place of this one, where it depends on which parameters make the outputs:
    ``simulation`` looks, and the pattern is of their paths. None where it does not."""
