"""The probe that step sizes come from."""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, points
from dualgp._arrays import wide
from dualgp.solvers import spectrum

KEY = jax.random.key(0)


def probe(operator):
    with wide():
        return spectrum.estimate_spectrum(operator, KEY)


@pytest.fixture(scope="module")
def operator():
    return dg.KernelOperator(KERNELS["Matern32"], points(400), NOISE)


def test_the_largest_eigenvalue_is_found(operator):
    found = probe(operator)
    assert found.largest == pytest.approx(np.linalg.eigvalsh(operator.dense())[-1], rel=0.01)
    assert found.diagonal == pytest.approx(1.3 + NOISE)


def test_a_subsample_gives_nearly_the_same_eigenvalue(operator, monkeypatch):
    monkeypatch.setattr(spectrum, "PROBE_POINTS", 200)
    found = probe(operator)
    assert found.largest == pytest.approx(np.linalg.eigvalsh(operator.dense())[-1], rel=0.1)
    assert found.passes == pytest.approx(0.25)
