"""The GP of the nearest rows: with all rows it is the exact one, with some it has seen less."""

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np

import dualgp as dg
from cases import gram, points

sys.path.append(str(Path(__file__).parents[1] / "experiments"))
import nearest

MODEL = dg.GaussianProcess(dg.Matern32([0.7, 1.5], 1.3), noise=0.05, mean=0.4)
X, X_TEST = points(120, 2), points(30, 2, seed=1)
DATA = SimpleNamespace(x=X, y=np.sin(2 * X[:, 0]) + X[:, 1], x_test=X_TEST)


def test_all_rows_are_the_exact_gp():
    inverse = np.linalg.inv(gram(MODEL.kernel, X) + 0.05 * np.eye(120))
    across = gram(MODEL.kernel, X_TEST, X)
    mean, std = nearest.predict(MODEL, DATA, 120)
    np.testing.assert_allclose(mean, 0.4 + across @ inverse @ (DATA.y - 0.4), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(std**2, 1.3 - np.sum(across @ inverse * across, axis=1) + 0.05, rtol=1e-6)


def test_fewer_rows_know_less():
    stds = [nearest.predict(MODEL, DATA, num)[1] for num in (5, 40, 120)]
    assert (np.diff(stds, axis=0) <= 1e-9).all()
