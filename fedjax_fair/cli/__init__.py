"""The command line: ``fedjax-fair list | run | compare | sweep | report | reproduce``."""

from fedjax_fair.cli.commands import main
from fedjax_fair.cli.process import leave

__all__ = ["main"]


def program() -> None:
    """A process that runs one command."""
    main()
    leave()
