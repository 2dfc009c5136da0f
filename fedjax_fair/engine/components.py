"""What every round of one simulation is made of: settled once, before anything is compiled."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax import Array
from jax.sharding import Mesh

from fedjax_fair.data import FederatedData, Split
from fedjax_fair.engine import personal, signals
from fedjax_fair.engine.training import Training
from fedjax_fair.robustness.availability import Available, PerClient
from fedjax_fair.robustness.faults import Fault
from fedjax_fair.types import Key, Memory, Selector, SimState


class Components(NamedTuple):
    """A simulation's parts; nothing of them changes from round to round."""

    n_clients: int
    selector: Selector
    available: Available | PerClient
    faults: Sequence[Fault]
    training: Training
    loss: signals.Score
    """The plain loss of every example, alone."""
    metric: signals.Score
    """The metric of every example, alone."""
    largest_train: int
    """Examples of the largest client's training split."""
    largest_cohort: int
    """Training examples of the largest cohort."""
    largest_validation: int
    uneven: bool
    """Whether the clients' sizes differ so much that those side by side would wait for the largest."""
    eval_batch: int
    """Examples per forward pass of a model that all clients share."""
    weigh: Callable[..., Any]
    """The rule's, in full precision."""
    update: Callable[..., Any]
    """The server optimiser's, behind the method's own transform, in full precision."""
    reads: tuple[str, ...]
    """The signals that the rule, the server or the selector reads."""
    watches: tuple[str, ...]
    """Those which have to be finite of every client: the same; none where rules share a program, which look
    themselves."""
    memory: Memory | None
    """What clients remember."""
    broadcast: Callable[[SimState], Any]
    """What the server sends besides the model; None for nothing."""
    revise: Callable[..., Any] | None
    """The rule's second look, in full precision."""
    mesh: Mesh | None
    """The devices that share the cohort; None for one."""

    def received_loss(
        self, state: SimState, data: FederatedData, ids: Array, near: FederatedData | None = None
    ) -> Array:
        """F_k(w), f[K]: the model's mean plain loss on the training examples of the clients ``ids``.

        ``near`` holds theirs alone; all clients' go through the model in the order of the whole.
        """
        if near is None or ids.shape[0] == self.n_clients or self._own(state) is not None:
            near = data
        return self._mean(self.loss, state, near, near.train, ids, self.largest_train)

    def validated(self, state: SimState, data: FederatedData, ids: Array) -> Array:
        """f[K]: the model's mean metric on their validation examples."""
        return self._mean(self.metric, state, data, data.validation, ids, self.largest_validation)

    def minibatch_loss(self, state: SimState, data: FederatedData, ids: Array, key: Key, batch: int) -> Array:
        """f[K]: the model's mean plain loss on ``batch`` random training examples of each."""
        params, own = state.params, self._own(state)
        if own is None:
            return signals.minibatch(self.loss, params, data, ids, key, batch, self.mesh)[0]
        return personal.own_minibatch(self.loss, own, data, ids, key, batch, params, self.mesh)[0]

    def _mean(
        self, score: signals.Score, state: SimState, data: FederatedData, split: Split, ids: Array, largest: int
    ) -> Array:
        params, own = state.params, self._own(state)
        if own is None:
            return signals.cohort(score, params, data, split, ids, self.eval_batch, largest, self.mesh)[0]
        return personal.own_means(
            score, own, data, split, ids, self.eval_batch, params, self.mesh, uneven=self.uneven
        )[0]

    def _own(self, state: SimState) -> personal.ModelOf | None:
        """Whose model each client begins with, where it is not the server's."""
        if self.memory is None or self.memory.received is None:
            return None
        return personal.own_model(self.memory.received, state.params, state.memory)
