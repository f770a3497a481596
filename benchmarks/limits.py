"""Time limits: seconds that a first call takes, in a process of its own with nothing compiled, against its limit.

    python benchmarks/limits.py [--rows 15000,500000] [--limits 5,20]

Eight inputs, a smooth function with noise, 64 samples; `condition` with the model given, `fit` with learning. A limit
of S seconds is to be kept within 10 % + 2 s.
"""

import argparse
import subprocess
import sys

from record import save

RUN = """
import sys, time
import jax, numpy as np
import dualgp as dg
what, n, limit = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
x = np.random.default_rng(0).uniform(-2, 2, (n, 8)).astype(np.float32)
y = np.sin(x[:, 0]) * np.cos(x[:, 1]) + 0.1 * np.random.default_rng(1).normal(size=n).astype(np.float32)
began = time.perf_counter()
if what == "condition":
    model = dg.GaussianProcess(dg.Matern32(2.0), 0.05)
    model.condition(x, y, key=jax.random.key(0), max_seconds=limit, solver=dg.Auto(tol=1e-6))
else:
    dg.GPRegressor(max_seconds=limit, random_state=0, tol=1e-6).fit(x, y)
print(time.perf_counter() - began)
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rows", default="15000,500000")
    arguments.add_argument("--limits", default="5,20")
    options = arguments.parse_args()
    for what in ("condition", "fit"):
        for n in options.rows.split(","):
            for limit in options.limits.split(","):
                command = [sys.executable, "-W", "ignore", "-c", RUN, what, n, limit]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                seconds = float(done.stdout.splitlines()[-1])
                is_kept = seconds <= 1.1 * float(limit) + 2.0
                line = {"call": what, "n": int(n), "limit": float(limit), "seconds": round(seconds, 2)}
                save("limits", {**line, "is_kept": is_kept})


if __name__ == "__main__":
    main()
