"""The command line: ``fedjax-fair list | run | compare | sweep | report | reproduce``."""

from fedjax_fair.cli.commands import main

__all__ = ["main"]
