"""``python -m fedjax_fair`` is ``fedjax-fair``."""

from fedjax_fair.cli.commands import main

if __name__ == "__main__":
    main()
