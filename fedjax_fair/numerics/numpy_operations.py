"""JAX's operations on arrays by NumPy's: ``OPERATIONS[name](*arrays, **settings)``, as in a traced program.

NotImplementedError, TypeError or ValueError where settings are not among those that are known here.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np


def wider(dtype: Any) -> Any:
    """A type that NumPy computes in: float32 for floats of less than 32 bits."""
    half = jnp.issubdtype(dtype, jnp.floating) and jnp.finfo(dtype).bits < 32
    return np.float32 if half else dtype


def _product(a: np.ndarray, b: np.ndarray, *, dimension_numbers: Any, **_: Any) -> np.ndarray:
    """``dot_general`` as one ``matmul``."""
    (summed_a, summed_b), (batch_a, batch_b) = dimension_numbers
    own_a = [axis for axis in range(a.ndim) if axis not in (*summed_a, *batch_a)]
    own_b = [axis for axis in range(b.ndim) if axis not in (*summed_b, *batch_b)]
    size = int(np.prod([a.shape[axis] for axis in summed_a]))
    batch, rows = [a.shape[axis] for axis in batch_a], [a.shape[axis] for axis in own_a]
    columns = [b.shape[axis] for axis in own_b]
    left = a.transpose(*batch_a, *own_a, *summed_a).reshape(*batch, int(np.prod(rows)), size)
    right = b.transpose(*batch_b, *summed_b, *own_b).reshape(*batch, size, int(np.prod(columns)))
    return (left @ right).reshape(*batch, *rows, *columns)


def _broadcast(x: np.ndarray, *, shape: Any, broadcast_dimensions: Any, **_: Any) -> np.ndarray:
    laid = [1] * len(shape)
    for axis, size in zip(broadcast_dimensions, x.shape):
        laid[axis] = size
    return np.broadcast_to(x.reshape(laid), shape)


def _convolution(x: np.ndarray, kernel: np.ndarray, *, dimension_numbers: Any, **settings: Any) -> np.ndarray:
    spread = (*settings["lhs_dilation"], *settings["rhs_dilation"])
    if settings["feature_group_count"] * settings["batch_group_count"] > 1 or any(step > 1 for step in spread):
        raise NotImplementedError
    x, kernel = x.transpose(dimension_numbers.lhs_spec), kernel.transpose(dimension_numbers.rhs_spec)
    window = _windows(x, (1, 1, *kernel.shape[2:]), (1, 1, *settings["window_strides"]), settings["padding"], 0)
    window = np.squeeze(window, (x.ndim, x.ndim + 1))
    axes = range(window.ndim - kernel.ndim + 2, window.ndim)
    product = np.tensordot(window, kernel, ([1, *axes], [1, *range(2, kernel.ndim)]))
    return np.moveaxis(product, (0, -1, *range(1, product.ndim - 1)), dimension_numbers.out_spec)


def _windows(x: np.ndarray, sizes: Any, strides: Any, padding: Any, value: float) -> np.ndarray:
    """Windows over the last axes, one axis each; leading windows of one entry may be left out by ``padding``."""
    padding = [(0, 0)] * (x.ndim - len(padding)) + list(padding)
    if any(low < 0 or high < 0 for low, high in padding):
        raise NotImplementedError
    padded = np.pad(x, padding, constant_values=value)
    windows = np.lib.stride_tricks.sliding_window_view(padded, sizes)
    return windows[tuple(slice(None, None, step) for step in strides)]


def _pooling(function: Callable[..., Any], value: float) -> Callable[..., Any]:
    def pool(x: np.ndarray, *, window_dimensions: Any, window_strides: Any, padding: Any, **settings: Any) -> Any:
        if any(step > 1 for step in (*settings["base_dilation"], *settings["window_dilation"])):
            raise NotImplementedError
        windows = _windows(x, window_dimensions, window_strides, padding, value)
        return function(windows, axis=tuple(range(x.ndim, 2 * x.ndim)))

    return pool


def _pad(x: np.ndarray, value: np.ndarray, *, padding_config: Any, **_: Any) -> np.ndarray:
    if any(low < 0 or high < 0 or inner for low, high, inner in padding_config):
        raise NotImplementedError
    return np.pad(x, [(low, high) for low, high, _ in padding_config], constant_values=value)


def _slice(x: np.ndarray, *, start_indices: Any, limit_indices: Any, strides: Any, **_: Any) -> np.ndarray:
    steps = strides or [1] * x.ndim
    return x[tuple(slice(*along) for along in zip(start_indices, limit_indices, steps))]


def _split(x: np.ndarray, *, sizes: Any, axis: int) -> list[np.ndarray]:
    return np.split(x, np.cumsum(sizes)[:-1], axis)


def _select(which: np.ndarray, *cases: np.ndarray) -> np.ndarray:
    if len(cases) != 2:
        raise NotImplementedError
    return np.where(which, cases[1], cases[0])


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f":  # XLA's rounds towards 0
        raise NotImplementedError
    return np.divide(a, b)


def _iota(*, dtype: Any, shape: Any, dimension: int, **_: Any) -> np.ndarray:
    return _broadcast(np.arange(shape[dimension], dtype=dtype), shape=shape, broadcast_dimensions=[dimension])


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """An operation whose settings (accuracies, shardings) do not matter here."""
    return lambda *values, **_: function(*values)


def _over(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *, axes, **_: function(x, axis=tuple(axes))


def _place(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, *, axes, **_: function(x, axis=axes[0])


def _special(name: str) -> Callable[..., Any]:
    """One of SciPy's, whose import takes a fifth of a second."""

    def operation(x: np.ndarray, **_: Any) -> np.ndarray:
        from scipy import special

        return getattr(special, name)(x)

    return operation


def _same(*values: Any, **_: Any) -> list[Any]:
    return list(values)


def _arithmetic() -> Iterator[tuple[str, Callable[..., Any]]]:
    """NumPy's operations under JAX's names."""
    named = "add exp exp2 log log1p expm1 tanh sqrt square sign floor ceil sin cos tan sinh cosh"
    for name in named.split():
        yield name, _plain(getattr(np, name))
    others = (
        "add_any:add sub:subtract mul:multiply neg:negative abs:absolute max:maximum min:minimum pow:power "
        "eq:equal ne:not_equal lt:less le:less_equal gt:greater ge:greater_equal is_finite:isfinite "
        "and:bitwise_and or:bitwise_or xor:bitwise_xor not:invert atan2:arctan2"
    )
    for name, its in (pair.split(":") for pair in others.split()):
        yield name, _plain(getattr(np, its))
    for name in ("sum", "max", "min", "prod"):
        yield f"reduce_{name}", _over(getattr(np, name))


OPERATIONS: dict[str, Callable[..., Any]] = dict(_arithmetic()) | {
    "div": _plain(_quotient),
    "logistic": _plain(lambda x: np.where(x > 0, 1, np.exp(-np.abs(x))) / (1 + np.exp(-np.abs(x)))),
    "rsqrt": _plain(lambda x: 1 / np.sqrt(x)),
    "erf_inv": _special("erfinv"),
    "erf": _special("erf"),
    "integer_pow": lambda x, *, y: x**y,
    "reduce_and": _over(np.all),
    "reduce_or": _over(np.any),
    "argmax": _place(np.argmax),
    "argmin": _place(np.argmin),
    "select_n": _plain(_select),
    "clamp": _plain(lambda low, x, high: np.clip(x, low, high)),
    "convert_element_type": lambda x, *, new_dtype, **_: x.astype(wider(new_dtype)),
    "reshape": lambda x, *, new_sizes, **_: x.reshape(new_sizes),
    "squeeze": lambda x, *, dimensions: np.squeeze(x, tuple(dimensions)),
    "expand_dims": lambda x, *, dimensions: np.expand_dims(x, tuple(dimensions)),
    "transpose": lambda x, *, permutation: x.transpose(permutation),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda *parts, dimension: np.concatenate(parts, dimension),
    "stack": lambda *parts, axis=None, dimension=None: np.stack(parts, dimension if axis is None else axis),
    "rev": lambda x, *, dimensions: np.flip(x, tuple(dimensions)),
    "pad": _pad,
    "slice": _slice,
    "split": _split,
    "dot_general": _product,
    "iota": _iota,
    "conv_general_dilated": _convolution,
    "reduce_window_max": _pooling(np.max, -np.inf),
    "reduce_window_sum": _pooling(np.sum, 0),
    "copy": _same,
    "copy_p": _same,
    "stop_gradient": _same,
    "optimization_barrier": _same,
}
