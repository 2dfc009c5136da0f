"""How fast a round is, beside other simulators on the same work. ``python -m benchmarks.speed``."""
