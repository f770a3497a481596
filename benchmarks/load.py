"""Learning beside busy programs: the time of `Neighbours` may grow with the load, but not faster than the load does.

    python benchmarks/load.py [--busy 0,4] [--n 3000] [--d 9]

A busy program is a process that spins. On c cores with b of them, a fair share of the machine makes a program that uses
all cores slower by (c + b) / c or less. `slowdown` is against the first number of busy programs.
"""

import argparse
import subprocess
import sys
import time

import jax
import numpy as np

import dualgp as dg
from record import save


def seconds(n: int, d: int, busy: int) -> float:
    """Seconds of `Neighbours`, compiled before, beside so many busy programs."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, d))
    y = np.sin(2.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.3 * rng.normal(size=n)
    start = dg.GaussianProcess(dg.Matern32(np.full(d, d**0.5)), noise=0.1)
    run = lambda: start.learn(x, y, key=jax.random.key(0), method=dg.learning.Neighbours())  # noqa: E731
    run()
    programs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        began = time.perf_counter()
        run()
        return time.perf_counter() - began
    finally:
        for program in programs:
            program.kill()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--busy", default="0,4")
    arguments.add_argument("--n", type=int, default=3000)
    arguments.add_argument("--d", type=int, default=9)
    options = arguments.parse_args()
    first = None
    for busy in map(int, options.busy.split(",")):
        taken = seconds(options.n, options.d, busy)
        first = first or taken
        line = {"version": dg.__version__, "n": options.n, "d": options.d, "busy": busy}
        save("load", {**line, "seconds": round(taken, 2), "slowdown": round(taken / first, 2)})


if __name__ == "__main__":
    main()
