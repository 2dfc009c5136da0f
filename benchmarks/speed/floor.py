"""XLA's own matrix products of one round: what an engine on XLA cannot well be faster than on this machine.

Of every layer and local step: the forward product, the kernel's gradient, the input's gradient (but the first
layer's) and the kernel's update, in the shapes of the workload (convolutions as patches times kernel, the
patches given), all in one jitted program. Left out: gathering, patches, pooling, softmax, random numbers, the
average. Tried: all clients in batched products and one client after another, kernels stored [in, out] and
[out, in], the steps looped and unrolled; the best counts.
"""

import time
from collections.abc import Callable
from functools import partial
from itertools import product

from benchmarks.speed import contract, workloads  # isort: skip  (the clock starts here)

import jax
import jax.numpy as jnp
from jax import Array

Arrays = list[Array]
BATCHED_LIMIT = 4e9  # bytes of inputs; a batch that does not fit in memory is not the best


def step(turned: bool, inputs: Arrays, carry: tuple[Arrays, Array], at: Array) -> tuple[tuple[Arrays, Array], None]:
    """The products of one local step; ``at`` is 0, which the compiler cannot know."""
    kernels, kept = carry
    moved = []
    for i, (x, kernel) in enumerate(zip(inputs, kernels)):
        straight = kernel.T if turned else kernel
        outputs = x @ straight  # stands for the gradient too: right shape, and changing from step to step
        if i > 0:
            # One element at a place known at run time only: the product is made, and not carried around.
            kept += jax.lax.dynamic_slice(outputs @ straight.T, (at, at), (1, 1))[0, 0]
        moved.append(kernel - 1e-6 * (outputs.T @ x if turned else x.T @ outputs))
    return (moved, kept), None


def local_steps(turned: bool, unroll: int, inputs: Arrays, kernels: Arrays, places: Array) -> tuple[Arrays, Array]:
    """All local steps of one client."""
    kernels = [kernel.T for kernel in kernels] if turned else kernels
    return jax.lax.scan(partial(step, turned, inputs), (kernels, jnp.zeros(())), places, unroll=unroll)[0]


def candidates(work: workloads.Workload) -> dict[str, tuple[Callable, tuple]]:
    """Programs of a whole round, with their arguments."""
    shapes, found = workloads.products(work), {}
    key = jax.random.key(0)
    places, scales = jnp.zeros((work.steps,), jnp.int32), jnp.ones((work.cohort,))
    starts = [jax.random.normal(key, (k, n)) / k**0.5 for _, k, n in shapes]
    alone = [jax.random.normal(key, (m, k)) for m, k, _ in shapes]
    if 4 * work.cohort * sum(m * k for m, k, _ in shapes) < BATCHED_LIMIT:
        together = [jnp.broadcast_to(x, (work.cohort, *x.shape)) + 0 for x in alone]
    else:
        together = None
    for turned, unroll in product((False, True), sorted({1, min(work.steps, 10)})):
        one, how = partial(local_steps, turned, unroll), f"{'turned, ' * turned}unroll {unroll}"

        # The scales are arguments: clients that the compiler knows to be equal would be computed once.
        def client(inputs: Arrays, kernels: Arrays, places: Array, scale: Array, one: Callable = one) -> object:
            return one(inputs, [w * scale for w in kernels], places)

        def in_turn(inputs: Arrays, kernels: Arrays, places: Array, scales: Array, f: Callable = client) -> object:
            return jax.lax.map(partial(f, inputs, kernels, places), scales)

        found[f"in turn, {how}"] = (in_turn, (alone, starts, places, scales))
        if together is not None:
            at_once = jax.vmap(client, in_axes=(0, None, None, 0))
            found[f"batched, {how}"] = (at_once, (together, starts, places, scales))
    return found


def check_products(work: workloads.Workload) -> None:
    """No product may have been optimised away: one step has all the FLOP that the count says."""
    shapes = workloads.products(work)
    inputs = [jnp.ones((m, k)) for m, k, _ in shapes]
    for turned in (False, True):
        kernels = [jnp.ones((n, k) if turned else (k, n)) for _, k, n in shapes]
        carry, place = (kernels, jnp.zeros(())), jnp.zeros((), jnp.int32)
        compiled = jax.jit(partial(step, turned)).lower(inputs, carry, place).compile()
        counted, expected = compiled.cost_analysis()["flops"], workloads.flop(work) / work.cohort / work.steps
        if counted < expected:
            raise RuntimeError(f"the compiler dropped products: {counted:.3g} of {expected:.3g} FLOP are left")


def seconds_of(program: Callable, arguments: tuple) -> float:
    """One call, to its end."""
    begin = time.perf_counter()
    jax.block_until_ready(program(*arguments))
    return time.perf_counter() - begin


def peak(side: int = 2048, repeats: int = 10) -> list[float]:
    """FLOP/s of one large product in float32, one number per repeat."""
    x = jax.random.normal(jax.random.key(1), (side, side))
    product = jax.jit(lambda a: jnp.matmul(a, a, precision="highest"))
    seconds_of(product, (x,))
    return [2 * side**3 / seconds_of(product, (x,)) for _ in range(repeats)]


def main() -> None:
    """Time every candidate; the rounds printed are those of the best."""
    args = contract.arguments()
    work = workloads.WORKLOADS[args.workload]
    if work.needs_file:
        contract.refuse("its products are laid out for stacks of layers and clients of equal size only")
    check_products(work)
    programs = {name: (jax.jit(program), given) for name, (program, given) in candidates(work).items()}
    ready = time.perf_counter()
    for program, given in programs.values():
        seconds_of(program, given)
    warm = time.perf_counter()
    took = {name: [seconds_of(*entry) for _ in range(args.rounds)] for name, entry in programs.items()}
    best = min(took, key=lambda name: min(took[name]))
    contract.emit(
        setup_s=ready - contract.START,
        warmup_s=warm - ready,
        round_s=took[best],
        best=best,
        candidates=took,
        peak_flops=peak(),
        loss_before=None,
        loss_after=None,
        versions=contract.versions("jax", "jaxlib"),
    )


if __name__ == "__main__":
    main()
