"""The work that every opponent does: data, initial parameters, shapes, FLOP. NumPy and the standard library only.

Images are [..., H, W, C], kernels [rows, columns, in, out] and [in, out]; :func:`to_torch` converts. A model is a
tuple of operations, which each framework builds in its own way.
"""

import math
from typing import NamedTuple

import numpy as np

CLASSES = 10
PROBED = 10
"""The losses before and after are means over the data of the first ten clients."""


class Workload(NamedTuple):
    """FedAvg with plain SGD on clients of equal size; unweighted mean of their models; float32."""

    name: str
    title: str
    clients: int
    examples: int
    """Training examples of each client."""
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

    @property
    def steps(self) -> int:
        """Local steps of a client in one round."""
        return self.epochs * self.examples // self.batch


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
    )
}


def make_data(work: Workload) -> tuple[np.ndarray, np.ndarray]:
    """Features f32[clients, examples, *shape] and labels i32[clients, examples]; the same in every process.

    One label in five is redrawn at random: loss and gradients stay away from zero however long one runs, and with
    them the denormal numbers that would slow a processor down.
    """
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


def products(work: Workload) -> list[tuple[int, int, int]]:
    """(m, k, n) of each layer's forward product of one local step, convolutions as patches times kernel."""
    return [(work.batch * layer.outputs, math.prod(layer.kernel[:-1]), layer.kernel[-1]) for layer in layers(work)]


def flop(work: Workload) -> int:
    """FLOP of one round's products: forward, kernel gradient, input gradient of every layer but the first."""
    each = [2 * m * k * n * (2 if i == 0 else 3) for i, (m, k, n) in enumerate(products(work))]
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
