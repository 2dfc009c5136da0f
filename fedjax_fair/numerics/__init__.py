"""Numerical tools that know nothing of federated learning: solvers, shuffles, sums, options of the compiler."""
