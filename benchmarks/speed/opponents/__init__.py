"""Other simulators, each with an environment of its own and a ``run.py`` that does our workloads."""
