"""What every round of one simulation is made of: settled once, before anything is compiled."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jax import Array
from jax.sharding import Mesh

from fedjax_fair.data import FederatedData
from fedjax_fair.engine import signals
from fedjax_fair.engine.training import Training
from fedjax_fair.robustness.availability import Available, PerClient
from fedjax_fair.robustness.faults import Fault
from fedjax_fair.types import Memory, Params, Selector


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
    largest_validation: int
    eval_batch: int
    """Examples per forward pass of a model that all clients share."""
    weigh: Callable[..., Any]
    """The rule's, in full precision."""
    update: Callable[..., Any]
    """The server optimiser's, behind the method's own transform, in full precision."""
    reads: tuple[str, ...]
    """The signals that the rule, the server or the selector reads."""
    memory: Memory | None
    """What clients remember."""
    mesh: Mesh | None
    """The devices that share the cohort; None for one."""

    def received_loss(self, params: Params, data: FederatedData, ids: Array) -> Array:
        """F_k(w), f[K]: the model's mean plain loss on the training examples of the clients ``ids``."""
        split, largest = data.train, self.largest_train
        return signals.cohort(self.loss, params, data, split, ids, self.eval_batch, largest, self.mesh)[0]

    def validated(self, params: Params, data: FederatedData, ids: Array) -> Array:
        """f[K]: the model's mean metric on their validation examples."""
        split, largest = data.validation, self.largest_validation
        return signals.cohort(self.metric, params, data, split, ids, self.eval_batch, largest, self.mesh)[0]
