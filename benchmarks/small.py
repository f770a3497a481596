"""Exact learning at n = 1,000, d = 5: log marginal likelihood and seconds, ours and scikit-learn's best of 5 starts.

python benchmarks/small.py
"""

import time
import warnings

import jax
import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

import dualgp as dg
from record import prior_draw, save

LENGTHSCALES = [0.3, 0.5, 1.0, 2.0, 5.0]


def main() -> None:
    for seed in range(3):
        true = dg.GaussianProcess(dg.Matern32(LENGTHSCALES), noise=0.05)
        data = prior_draw(true, 1000, d=5, key=jax.random.key(seed))
        x, y = np.asarray(data.x, np.float64), np.asarray(data.y, np.float64)

        began = time.perf_counter()
        start = dg.GaussianProcess(dg.Matern32(np.ones(5)), noise=0.1)
        model = start.learn(x, y, key=jax.random.key(1), priors=None, fixed=("mean",))
        ours = time.perf_counter() - began
        reached = dg.learning.log_likelihood(model, x, y)

        began = time.perf_counter()
        kernel = ConstantKernel(1.0) * Matern(np.ones(5), nu=1.5) + WhiteKernel(0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            peer = GaussianProcessRegressor(kernel, n_restarts_optimizer=4, random_state=0).fit(x, y)
        theirs = time.perf_counter() - began
        line = {"seed": seed, "ours": round(reached, 3), "scikit-learn": round(peer.log_marginal_likelihood_value_, 3)}
        save("small", {**line, "ours, s": round(ours, 1), "scikit-learn, s": round(theirs, 1)})


if __name__ == "__main__":
    main()
