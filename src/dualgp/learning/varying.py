"""Noise that depends on the inputs: log squared errors of predictions without the row, smoothed by a Gaussian process.

With z_i = (y_i - m_i) / s_i, where m and s are the prediction of y_i from its nearest other rows,

    log noise_i  =  log of the noise in s_i  +  log z_i^2  -  E log chi^2_1  +  an error of variance pi^2 / 2,

E log chi^2_1 = -1.27. For k outputs z^2 is their average and chi^2_1 becomes chi^2_k / k. The field is that of a random
sample of the rows, so that it is exact and small.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Float

from dualgp._random import generator, subkey
from dualgp._types import RandomKey
from dualgp.gp import GaussianProcess
from dualgp.kernels import Kernel
from dualgp.learning.exact import Exact
from dualgp.learning.learn import learn
from dualgp.learning.robust import BY_NEIGHBOURS
from dualgp.operators import policy
from dualgp.posterior import Posterior

ROUNDS = 2  # the second one uses the noise of the first
LEARN_ROWS = 1_000  # that the field's lengthscales are learned from
LEAST = 1e-8  # the smallest z^2: an error of zero means small noise, not zero noise


def noise_field(
    model: GaussianProcess,
    x: np.ndarray,
    y: Float[np.ndarray, " n"] | Float[np.ndarray, "n k"],
    scale: Float[np.ndarray, " n"],
    kernel: Kernel,
    key: RandomKey,
) -> tuple[Posterior, float]:
    """The logarithm of the noise at points, relative to its geometric mean over the rows; and that mean.

    `scale`: the noise of the rows relative to each other, beyond that, such as one over weights. `kernel`: for the
    field, to start learning from.
    """
    k = 1 if y.ndim == 1 else y.shape[1]
    rows = generator(subkey(key, "rows")).permutation(len(y))[: policy.SOLVE_EXACTLY_UP_TO]
    log_field, smooth = np.zeros(len(y)), GaussianProcess(kernel, _variance_of_log(k))
    for number in range(ROUNDS):
        squares = _squared_errors(model, x, y, float(model.noise) * scale * np.exp(log_field))
        targets = log_field + np.log(np.maximum(squares, LEAST))
        level, targets = float(np.mean(targets)), targets - np.mean(targets)
        if number == 0:
            some, fixed = rows[:LEARN_ROWS], ("noise",) if k == 1 else ()  # errors of several outputs may be alike
            smooth = learn(smooth, x[some], targets[some], method=Exact(), fixed=fixed, key=key).model
        field = smooth.condition(x[rows], targets[rows], num_samples=0, key=subkey(key, "field"))
        log_field = np.asarray(field.mean(x), np.float64)
        model = replace(model, noise=np.asarray(float(model.noise) * math.exp(level - _expected_log(k))))
    return field, float(model.noise)


def _squared_errors(model: GaussianProcess, x: np.ndarray, y: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """z^2, with predictions from the nearest rows."""
    mean, std = model.condition(x, y, noise=noise, **BY_NEIGHBOURS).leave_one_out()
    return np.mean(((y - mean).reshape(len(y), -1) / std[:, None]) ** 2, axis=1)


def _expected_log(k: int) -> float:
    """E log(chi^2_k / k)."""
    from scipy.special import digamma

    return float(digamma(0.5 * k) - math.log(0.5 * k))


def _variance_of_log(k: int) -> float:
    """Var log chi^2_k."""
    from scipy.special import polygamma

    return float(polygamma(1, 0.5 * k))
