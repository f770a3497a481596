"""Seconds a pass and peak memory of the default beyond 4,096 points, against n: d = 8, mean + 8 samples.

    python benchmarks/scaling.py [--n 25000,50000,100000,200000,400000]

A process for every size. It runs a few steps of BlockDescent (at least 3, about 2e10 kernel entries) and scales their
time to a pass; compilation is left out of the time and in the memory.
"""

import argparse
import json
import resource
import time

import jax
import jax.numpy as jnp
import numpy as np

import dualgp as dg
from dualgp._arrays import wide
from dualgp._threads import one_blas_thread_on_few_cores
from dualgp.solvers.iterate import advance
from record import in_processes

ENTRIES, DIMENSIONS, COLUMNS = 2e10, 8, 9


def measure(n: int) -> dict:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, DIMENSIONS)).astype(np.float32)
    operator = dg.KernelOperator(dg.Matern32(1.0), x, 0.1, memory=0)
    with wide(), one_blas_thread_on_few_cores():
        b, key = jnp.asarray(rng.normal(size=(n, COLUMNS)), jnp.float32), jax.random.key(0)
        solver, _ = dg.BlockDescent().prepare(operator, b, key)
        state = solver.init(operator, b, jnp.zeros_like(b))
        num = max(3, round(ENTRIES / n**2 / solver.passes_per_step(n)))
        state, _ = advance(solver, operator, b, state, key, 0, 1)
        began = time.perf_counter()
        jax.block_until_ready(advance(solver, operator, b, state, key, 1, num))
        seconds = (time.perf_counter() - began) / (num * solver.passes_per_step(n))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"n": n, "seconds a pass": round(seconds, 2), "gigabytes": round(memory / 1e9, 2), "steps": num}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--n", default="25000,50000,100000,200000,400000")
    arguments.add_argument("--one", type=int, default=None, help="measure this size in this process and print it")
    options = arguments.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options.one)))
        return
    in_processes("scaling", __file__, [(n,) for n in options.n.split(",")], ("n",), limit=1200)


if __name__ == "__main__":
    main()
