import jax
import numpy as np

import dualgp as dg
from cases import data
from dualgp.solvers import auto


def chosen(kernel, noise, monkeypatch):
    monkeypatch.setattr(auto, "EXACT_UP_TO", 500)
    monkeypatch.setattr(auto, "NO_PROBE_UP_TO", 500)
    x, y = data(1500, d=2, dtype=np.float32)
    operator = dg.KernelOperator(kernel, x, noise)
    solution = dg.solve(operator, y, "auto", key=jax.random.key(0))
    assert solution.result is dg.Result.CONVERGED
    return solution


def test_few_points_are_solved_exactly():
    x, y = data(200)
    assert isinstance(dg.solve(dg.KernelOperator(dg.RBF(), x, 0.1), y).solver, dg.Cholesky)


def test_a_smooth_kernel_with_noise_goes_to_conjugate_gradients(monkeypatch):
    solution = chosen(dg.RBF(1.0), 0.1, monkeypatch)
    assert isinstance(solution.solver, dg.CG)
    assert solution.passes < 5


def test_a_rough_kernel_with_little_noise_goes_to_block_descent(monkeypatch):
    solution = chosen(dg.Matern12(0.5), 0.01, monkeypatch)
    assert isinstance(solution.solver, dg.BlockDescent)


def test_a_middling_number_of_points_goes_to_block_descent_without_a_probe(monkeypatch):
    monkeypatch.setattr(auto, "EXACT_UP_TO", 500)
    monkeypatch.setattr(auto, "examine", None)
    x, y = data(800, d=2, dtype=np.float32)
    solution = dg.solve(dg.KernelOperator(dg.RBF(1.0), x, 0.1), y, key=jax.random.key(0))
    assert isinstance(solution.solver, dg.BlockDescent)


def test_conjugate_gradients_are_not_trusted_where_rounding_would_defeat_them(monkeypatch):
    solution = chosen(dg.RBF(1.0), 1e-3, monkeypatch)
    assert isinstance(solution.solver, dg.BlockDescent)
    assert "rounding in float32" in solution.message


def test_the_message_says_why(monkeypatch):
    assert "Chosen because 200 columns of K leave about" in chosen(dg.RBF(1.0), 0.1, monkeypatch).message
