"""The stock models: logistic regression, multi-layer perceptron, and FedAvg's convolutional network.

None has batch normalisation: its running statistics have no meaning when clients' weights are averaged.
"""

from collections.abc import Sequence, Sized
from functools import partial
from typing import Any, Literal

import flax.linen as nn

from fedjax_fair.checks import check_count
from fedjax_fair.models.flax_modules import Model, from_linen
from fedjax_fair.models.networks import CNN, MLP
from fedjax_fair.numerics.xla_options import once
from fedjax_fair.types import Key, Params


def logistic_regression(classes: int = 10) -> Model:
    """Multinomial logistic regression on the flattened input, ``x W + b``.

    Under a ``squared_error`` it is linear regression: ``classes`` is then the number of targets.

    Args:
      classes: number of logits.
    """
    return mlp((), classes)


def mlp(features: Sequence[int] = (200, 200), classes: int = 10) -> Model:
    """Multi-layer perceptron: dense layers with ReLU between them.

    Args:
      features: widths of the hidden layers; 784-200-200-10 is FedFV's network on CIFAR-10's vectors, and our
        reading of FedMABA's on Fashion-MNIST.
      classes: number of logits.
    """
    if not isinstance(features, Sized) or isinstance(features, str):
        raise ValueError(f"features must be the widths of the hidden layers, such as (200, 200), got {features!r}")
    widths = tuple(check_count(f"features[{i}]", width) for i, width in enumerate(features))
    return _stock(MLP(widths, check_count("classes", classes)))


def cnn(
    classes: int = 10,
    channels: tuple[int, int] = (32, 64),
    hidden: int = 512,
    padding: Literal["SAME", "VALID"] = "VALID",
) -> Model:
    """The FedAvg CNN (McMahan et al., 2017): two 5 x 5 convolutions, 2 x 2 max pooling, one dense layer.

    Args:
      classes: number of logits.
      channels: output channels of the two convolutions.
      hidden: width of the dense layer.
      padding: "VALID" for images of at least 16 x 16 pixels, "SAME" (as in FedAvg's code) of at least 4 x 4.
    """
    if padding not in ("SAME", "VALID"):
        raise ValueError(f"padding must be 'SAME' or 'VALID', got {padding!r}")
    if not isinstance(channels, Sized) or len(channels) != 2:
        raise ValueError(f"channels must be those of the two convolutions, such as (32, 64), got {channels!r}")
    first, second = (check_count(f"channels[{i}]", width) for i, width in enumerate(channels))
    return _stock(CNN((first, second), check_count("hidden", hidden), check_count("classes", classes), padding))


def _stock(module: nn.Module) -> Model:
    return Model(partial(_draw, module=module), from_linen(module).apply)


def is_stock(model: Model) -> bool:
    """Whether it is one of these: then every example goes through it alone, and outputs are logits [B, classes]."""
    return type(getattr(model.apply, "module", None)) in (MLP, CNN)


@partial(once, static_argnames="module")
def _draw(key: Key, x: Any, *, module: nn.Module) -> Params:
    """One program for all equal models; a user's module, which may read what changes, is drawn step by step."""
    return module.init(key, x)["params"]
