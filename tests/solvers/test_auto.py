import jax
import numpy as np

import dualgp as dg
from cases import data
from dualgp._random import subkey
from dualgp.solvers import auto, iterate, spectrum


def chosen(kernel, noise, monkeypatch, **run):
    monkeypatch.setattr(auto, "SOLVE_EXACTLY_UP_TO", 500)
    monkeypatch.setattr(auto, "PROBE_FROM", 500)
    x, y = data(1500, d=2, dtype=np.float32)
    operator = dg.KernelOperator(kernel, x, noise)
    return dg.solve(operator, y, "auto", key=jax.random.key(0), **run)


def test_few_points_are_solved_exactly():
    x, y = data(200)
    assert isinstance(dg.solve(dg.KernelOperator(dg.RBF(), x, 0.1), y).solver, dg.Cholesky)


def test_a_smooth_kernel_with_noise_goes_to_conjugate_gradients(monkeypatch):
    solution = chosen(dg.RBF(1.0), 0.1, monkeypatch)
    assert solution.result is dg.Result.CONVERGED
    assert isinstance(solution.solver, dg.CG)
    assert solution.passes < 5


def test_a_rough_kernel_with_little_noise_goes_to_block_descent(monkeypatch):
    solution = chosen(dg.Matern12(0.5), 0.01, monkeypatch)
    assert solution.result is dg.Result.CONVERGED
    assert isinstance(solution.solver, dg.BlockDescent)


def test_a_middling_number_of_points_goes_to_block_descent_without_a_probe(monkeypatch):
    monkeypatch.setattr(auto, "SOLVE_EXACTLY_UP_TO", 500)
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


def test_the_probe_is_paid_from_the_budget_of_passes(monkeypatch):
    whole = chosen(dg.Matern12(0.5), 0.01, monkeypatch, max_passes=5.0)
    monkeypatch.setattr(auto, "is_probe_worthwhile", lambda n, seconds: False)
    without = chosen(dg.Matern12(0.5), 0.01, monkeypatch, max_passes=5.0)
    assert isinstance(whole.solver, dg.BlockDescent) and isinstance(without.solver, dg.BlockDescent)
    assert whole.steps < without.steps
    assert whole.passes <= 5.0 + 1.0  # and one for the final check


def test_no_probe_is_begun_where_it_would_take_much_of_the_time(monkeypatch):
    monkeypatch.setattr(auto, "examine", None)
    assert isinstance(chosen(dg.RBF(1.0), 0.1, monkeypatch, max_seconds=8.0).solver, dg.BlockDescent)
    assert auto.is_probe_worthwhile(100_000, 60.0) and not auto.is_probe_worthwhile(1_000_000, 60.0)


def test_no_key_is_used_for_two_purposes(monkeypatch):
    used = []

    def recording(key, *path):
        used.append((*np.asarray(jax.random.key_data(key)).tolist(), *path))
        return subkey(key, *path)

    for module in (auto, iterate, spectrum):
        monkeypatch.setattr(module, "subkey", recording)
    assert isinstance(chosen(dg.Matern12(0.5), 0.01, monkeypatch).solver, dg.BlockDescent)
    assert len(used) == len(set(used)) > 5
