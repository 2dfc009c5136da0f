"""The work that every opponent does: data, initial parameters, shapes, FLOP. NumPy and the standard library only.

Images are [..., H, W, C], kernels [rows, columns, in, out] and [in, out]; :func:`to_torch` converts. A model is a
tuple of operations, which each framework builds in its own way, or a network by name, which is written as a user
of the framework writes it.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

CLASSES = 10
PROBED = 10
"""The losses before and after are means over the data of the first ten clients."""


LETTERS = 65
"""Of random text, and of the Shakespeare whose roles make ``gru-shakespeare``; another file may have others."""


class Workload(NamedTuple):
    """Plain SGD; unweighted mean of the clients' models where no other rule is named; float32."""

    name: str
    title: str
    clients: int
    examples: int
    """Training examples of each client; their mean, about, where sizes differ."""
    shape: tuple[int, ...]
    """Of one example."""
    model: tuple[tuple, ...]
    cohort: int
    epochs: int
    batch: int
    lr: float
    warmup: int
    """Rounds before the clock starts; the first of them holds compilation."""
    rounds: int
    """Timed rounds."""
    call: int
    """Rounds per compiled call of our engine; divides both of the above."""
    network: str = ""
    """One of ``FORWARD``, in the place of ``model``."""
    rule: str = "fedavg"
    even: bool = True
    """Whether all clients have the same number of examples. Where not, everybody's times are means over calls."""

    @property
    def steps(self) -> int:
        """Local steps of a client in one round."""
        return self.epochs * self.examples // self.batch

    @property
    def needs_file(self) -> bool:
        """Whether its processes share a file of :mod:`benchmarks.speed.prepared`."""
        return bool(self.network) or not self.even

    @property
    def is_text(self) -> bool:
        """Whether examples are letters, and labels the letters after them."""
        return self.network in ("gru", "transformer")


class Layer(NamedTuple):
    """One layer with parameters."""

    kind: str
    """"conv" or "dense"."""
    kernel: tuple[int, ...]
    outputs: int
    """Positions of the output: 1 for a dense layer."""
    flattened: tuple[int, int, int] | None
    """Of a dense layer after a flatten: the image [H, W, C] that was flattened."""


SOFTMAX = (("dense", CLASSES),)
MLP = (("dense", 200), ("relu",), ("dense", CLASSES))
CNN5 = (
    *(("conv", 5, 32), ("relu",), ("pool",), ("conv", 5, 64), ("relu",), ("pool",)),
    *(("flatten",), ("dense", 512), ("relu",), ("dense", CLASSES)),
)
CNN3_DROPOUT = (
    *(("conv", 3, 32), ("relu",), ("conv", 3, 64), ("relu",), ("pool",), ("dropout", 0.25)),
    *(("flatten",), ("dense", 128), ("relu",), ("dropout", 0.5), ("dense", CLASSES)),
)
CNN3 = tuple(op for op in CNN3_DROPOUT if op[0] != "dropout")
IMAGE = (32, 32, 3)

WORKLOADS = {
    w.name: w
    for w in (
        Workload(
            "lr-synthetic",
            "softmax regression 60-10; 3 of 30 clients, 30 steps of 50",
            *(30, 500, (60,), SOFTMAX),
            *(3, 3, 50, 0.05),
            *(50, 250, 50),
        ),
        Workload(
            "mlp-fmnist",
            "MLP 784-200-10; 10 of 100 clients, 10 steps of 50",
            *(100, 500, (784,), MLP),
            *(10, 1, 50, 0.1),
            *(5, 30, 5),
        ),
        Workload(
            "mlp-fmnist-all",
            "MLP 784-200-10; all 100 clients, 10 steps of 50",
            *(100, 500, (784,), MLP),
            *(100, 1, 50, 0.1),
            *(2, 6, 2),
        ),
        Workload(
            "cnn-cifar",
            "CNN with 5 x 5 kernels; 10 of 100 clients, 10 steps of 50",
            *(100, 500, IMAGE, CNN5),
            *(10, 1, 50, 0.1),
            *(2, 4, 2),
        ),
        Workload(
            "pfl-cifar",
            "CNN with 3 x 3 kernels; 50 of 1000 clients, 5 steps of 10",
            *(1000, 50, IMAGE, CNN3),
            *(50, 1, 10, 0.1),
            *(2, 4, 2),
        ),
        Workload(
            "pfl-cifar-dropout",
            "the same with dropout",
            *(1000, 50, IMAGE, CNN3_DROPOUT),
            *(50, 1, 10, 0.1),
            *(2, 4, 2),
        ),
        Workload(
            "resnet-user",
            "ResNet-18 with group normalisation, 8 channels, of nn.Conv; 10 of 20 clients, 8 steps of 50",
            *(20, 400, IMAGE, ()),
            *(10, 1, 50, 0.05),
            *(1, 3, 1),
            network="resnet",
        ),
        Workload(
            "gru-shakespeare",
            "GRU of 128 units on sequences of 80 letters; all of 30 roles, batches of 10",
            *(30, 80, (80,), ()),
            *(30, 1, 10, 0.5),
            *(1, 3, 1),
            network="gru",
            even=False,
        ),
        Workload(
            "skewed-fedmaba",
            "softmax regression 60-10, FedMABA on Synthetic(1, 1); 10 of 30 clients, batches of 50",
            *(30, 600, (60,), SOFTMAX),
            *(10, 1, 50, 0.1),
            *(200, 1000, 200),
            rule="fedmaba",
            even=False,
        ),
        Workload(
            "transformer-text",
            "transformer of 2 layers of width 64 on 80 letters; 10 of 50 clients, 5 steps of 10",
            *(50, 50, (80,), ()),
            *(10, 1, 10, 0.1),
            *(2, 6, 2),
            network="transformer",
        ),
    )
}


def quick(work: Workload) -> Workload:
    """The same kind of work in a short form that has every part of it."""
    short = work._replace(warmup=1, rounds=2, call=1)
    return short._replace(examples=2 * work.batch) if work.even and work.network else short


def load(work: Workload, path: Path | None) -> tuple[Sequence[np.ndarray], Sequence[np.ndarray]]:
    """Each client's features and labels: from a file that :mod:`benchmarks.speed.prepared` wrote, or made here."""
    if path is None:
        return make_data(work)
    with np.load(path) as file:
        if "size" not in file:
            return make_data(work)
        ends = np.cumsum(file["size"])[:-1]
        return np.split(file["x"], ends), np.split(file["y"], ends)


def given(path: Path | None) -> dict[str, np.ndarray]:
    """The network's initial parameters in such a file, by their paths in flax."""
    assert path is not None  # a network by name comes with a file
    with np.load(path) as file:
        return {name.partition("/")[2]: file[name] for name in file.files if name.startswith("params/")}


def make_text(work: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Letters i32[clients, examples, T] and those after them; the likely ones after a letter are few."""
    rng = np.random.default_rng(20240)
    ends = rng.dirichlet(np.full(LETTERS, 0.1), LETTERS).cumsum(1)
    drawn = rng.random((work.shape[0] + 1, work.clients * work.examples))
    text = np.zeros(drawn.shape, np.int32)
    for before, after, chance in zip(text, text[1:], drawn[1:]):
        after[:] = np.minimum((ends[before] < chance[:, None]).sum(1), LETTERS - 1)
    text = text.T.reshape(work.clients, work.examples, -1)
    return np.ascontiguousarray(text[..., :-1]), np.ascontiguousarray(text[..., 1:])


def make_data(work: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Features f32[clients, examples, *shape] and labels i32[clients, examples]; the same in every process.

    One label in five is redrawn at random: loss and gradients stay away from zero however long one runs, and with
    them the denormal numbers that would slow a processor down.
    """
    if work.is_text:
        return make_text(work)
    rng = np.random.default_rng(20240)
    total, size = work.clients * work.examples, math.prod(work.shape)
    if len(work.shape) == 1 and size < 100:
        x = rng.standard_normal((total, size), np.float32)
        y = (x @ rng.standard_normal((size, CLASSES), np.float32)).argmax(1)
    else:
        templates = rng.standard_normal((CLASSES, size), np.float32)
        y = rng.integers(0, CLASSES, total)
        x = rng.standard_normal((total, size), np.float32)
        x *= 0.5
        for c in range(CLASSES):  # class by class: a table of templates per example would double the memory
            x[y == c] += 0.25 * templates[c]
    y = np.where(rng.random(total) < 0.2, rng.integers(0, CLASSES, total), y).astype(np.int32)
    return x.reshape(work.clients, work.examples, *work.shape), y.reshape(work.clients, work.examples)


def layers(work: Workload) -> list[Layer]:
    """The layers with parameters, in order, with their shapes."""
    shape, flattened, found = work.shape, None, []
    for name, *settings in work.model:
        if name == "conv":
            side, width = settings
            kernel = (side, side, shape[-1], width)
            shape = (shape[0] - side + 1, shape[1] - side + 1, width)
            found.append(Layer("conv", kernel, shape[0] * shape[1], None))
        elif name == "pool":
            shape = (shape[0] // 2, shape[1] // 2, shape[2])
        elif name == "flatten":
            flattened, shape = shape, (math.prod(shape),)
        elif name == "dense":
            found.append(Layer("dense", (*shape, settings[0]), 1, flattened))
            flattened, shape = None, (settings[0],)
    return found


def initial(work: Workload) -> list[tuple[np.ndarray, np.ndarray]]:
    """Glorot-uniform kernels and zero biases, layer by layer."""
    rng, parameters = np.random.default_rng(7), []
    for layer in layers(work):
        *window, inputs, outputs = layer.kernel
        limit = math.sqrt(6 / (math.prod(window) * (inputs + outputs)))
        kernel = rng.uniform(-limit, limit, layer.kernel).astype(np.float32)
        parameters.append((kernel, np.zeros(outputs, np.float32)))
    return parameters


def resnet_products(width: int = 8) -> list[tuple[int, int, int]]:
    """(m, k, n) of every convolution and of the last layer, for an image of 32 x 32 x 3."""
    found, inputs, side = [(32 * 32, 27, width)], width, 32
    for stage in range(4):
        for stride in (2 if stage else 1, 1):
            outputs, side = width * 2**stage, side // stride
            found += [(side**2, 9 * inputs, outputs), (side**2, 9 * outputs, outputs)]
            found += [(side**2, inputs, outputs)] * (inputs != outputs)
            inputs = outputs
    return [*found, (1, inputs, CLASSES)]


def gru_products(letters: int = LETTERS, inputs: int = 8, width: int = 128) -> list[tuple[int, int, int]]:
    """Of a sequence of 80 letters."""
    return [(80, inputs, 3 * width), (80, width, 3 * width), (80, width, letters)]


def transformer_products(letters: int = LETTERS, width: int = 64) -> list[tuple[int, int, int]]:
    """Likewise; every head's products together."""
    layer = [(80, width, 3 * width), (80, width, 80), (80, 80, width), (80, width, width)]
    return [*2 * [*layer, (80, width, 4 * width), (80, 4 * width, width)], (80, width, letters)]


FORWARD = {"resnet": resnet_products, "gru": gru_products, "transformer": transformer_products}
"""The forward products of one example, by network."""


def products(work: Workload) -> list[tuple[int, int, int]]:
    """(m, k, n) of each layer's forward product of one local step, convolutions as patches times kernel."""
    if work.network:
        return [(work.batch * m, k, n) for m, k, n in FORWARD[work.network]()]
    return [(work.batch * layer.outputs, math.prod(layer.kernel[:-1]), layer.kernel[-1]) for layer in layers(work)]


def flop(work: Workload) -> int:
    """FLOP of one round's products: forward, kernel gradient, input gradient of every layer but the first.

    Of text the first layer has one, too: the embedding's. Signals that a rule reads are not counted.
    """
    each = [2 * m * k * n * (2 if i == 0 and not work.is_text else 3) for i, (m, k, n) in enumerate(products(work))]
    return work.cohort * work.steps * sum(each)


def to_torch(work: Workload) -> list[tuple[np.ndarray, np.ndarray]]:
    """The initial parameters in PyTorch's layouts: [out, in, rows, columns] and [out, in], channels first."""
    converted = []
    for layer, (kernel, bias) in zip(layers(work), initial(work)):
        if layer.kind == "conv":
            kernel = kernel.transpose(3, 2, 0, 1)
        else:
            if layer.flattened is not None:  # PyTorch flattens [C, H, W]
                kernel = kernel.reshape(*layer.flattened, -1).transpose(2, 0, 1, 3).reshape(kernel.shape)
            kernel = kernel.T
        converted.append((np.ascontiguousarray(kernel), bias))
    return converted


def channels_first(x: np.ndarray) -> np.ndarray:
    """[..., H, W, C] to [..., C, H, W]; anything that is no image stays as it is."""
    return np.ascontiguousarray(np.moveaxis(x, -1, -3)) if x.ndim == 5 else x
