"""``python -m fedjax_fair`` is ``fedjax-fair``."""

from fedjax_fair.cli import program

if __name__ == "__main__":
    program()
