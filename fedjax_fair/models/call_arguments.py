"""What a model's function takes beside its inputs: the engine sets what says whether it trains, and no other."""

import inspect
from collections.abc import Callable, Mapping

SWITCHES = {"train", "training", "deterministic", "eval", "evaluate", "evaluation", "inference", "test", "testing"}
"""Words in the name of an argument that says whether a module trains."""
MODES = {"mode", "phase", "stage"}
"""Words in the name of one that says so in words."""
DROPPING = {"dropout", "drop", "stochastic", "noise", "noisy", "sample", "sampling", "augment"}
"""Words in the name of one that says whether anything is random."""
RANDOM = {"rng", "rngs", "prng"}
"""Words in the name of an argument that takes a key."""


def flags(training: bool) -> dict[str, bool]:
    """The switches that the engine sets."""
    return {"train": training, "training": training, "is_training": training, "deterministic": not training}


def arguments_of(function: Callable) -> dict[str, inspect.Parameter]:
    """Its arguments by name; none where Python cannot tell."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}


def check_switches(module: type, but: tuple[str, ...] = ()) -> Mapping[str, inspect.Parameter]:
    """The arguments of a module's ``__call__``.

    Args:
      module: a class of flax modules.
      but: arguments that the engine sets beside its switches.

    Raises:
      ValueError: a switch, or a key, of a name that nobody would set: left at its default, dropout would never be
        on, or never off.
    """
    arguments = arguments_of(module.__call__)
    if module.__module__.split(".")[0] == "flax":  # its layers' switches are attributes, too
        return arguments
    for name, argument in arguments.items():
        if name in flags(True) or name in but:
            continue
        if is_switch(name, argument):
            raise ValueError(
                f"model's __call__ must say whether it trains by one of {', '.join(flags(True))}, got {name}"
            )
        if takes_key(name, arguments):
            raise ValueError(
                f"model's __call__ must draw from flax's own keys, as nn.Dropout does, got an argument {name} that "
                "nobody would give it"
            )
    return arguments


def is_switch(name: str, argument: inspect.Parameter) -> bool:
    """Whether an argument's name, and what it is by default, say that the model trains, or is random."""
    words, default = set(name.lower().split("_")), argument.default
    missing = default is argument.empty
    in_words = isinstance(default, str) and bool(
        set(default.lower().replace("-", "_").split("_")) & (SWITCHES | MODES)
    )
    if words & SWITCHES:
        return missing or default is None or isinstance(default, bool | str)
    if words & DROPPING:
        return isinstance(default, bool)
    return in_words or (bool(words & MODES) and missing)


def takes_key(name: str, arguments: Mapping[str, inspect.Parameter]) -> bool:
    """Whether an argument is a key of random numbers; attention has keys of another kind."""
    words = set(name.lower().split("_"))
    key = "key" in words and not {"query", "value", "queries", "values", "q", "v"}.intersection(arguments)
    return bool(words & RANDOM) or (key and "mask" not in words and "size" not in words and "dim" not in words)
