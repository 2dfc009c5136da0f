"""The metric where none is given: the one that the loss asks for."""

from fedjax_fair.engine.behaviour import Tried, sign_decides
from fedjax_fair.engine.signals import PerExample
from fedjax_fair.models import losses
from fedjax_fair.models.client_metrics import Whole
from fedjax_fair.models.made_losses import inside

OF_LOSS: dict[object, PerExample | Whole] = {
    losses.sigmoid_cross_entropy: losses.binary_accuracy,
    losses.squared_error: losses.rmse,
    losses.absolute_error: losses.absolute_error,
}
"""What the package's own losses are judged by, where that is not accuracy."""


def default_metric(loss: PerExample, one: bool, tried: Tried | None) -> PerExample | Whole:
    """That of the loss, or of the loss that a weighted one is made of; else accuracy, of one output and two classes
    the one by its sign, where that is what the loss asks for."""
    for known, metric in OF_LOSS.items():
        if inside(loss) is known:
            return metric
    # Under a trace (sweep) only the shapes are there; the same call was made without one before.
    return losses.binary_accuracy if one and (tried is None or sign_decides(tried)) else losses.accuracy
