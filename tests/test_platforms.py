"""On GPUs and TPUs matrix products ask for all digits, as the programs that are lowered for them show."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import points
from dualgp._arrays import wide
from dualgp.learning.parameters import Parameters
from dualgp.learning.pathwise import _kernel_gradient, _shares
from dualgp.operators import policy
from dualgp.solvers import iterate

D, N, S = 12, 700, 3  # more than eight inputs: distances by matrix products where nobody asks for care
KERNEL = dg.Matern32(1.5, 1.0)


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    monkeypatch.setattr(policy, "TILE_ENTRIES", 1)
    monkeypatch.setattr(policy, "TILE_ENTRIES_ON_ONE_CORE", 1)


def columns(num=S):
    return jnp.asarray(points(N, num, seed=1), jnp.float32)


def operator(**settings):
    return dg.KernelOperator(KERNEL, points(N, D, dtype=np.float32), 0.5, **settings)


def solver_step(solver, **settings):
    op, b = operator(**settings), columns()
    prepared, _ = solver.prepare(op, b, jax.random.key(0))
    state = prepared.init(op, b, jnp.zeros_like(b))
    advance = iterate._advance.__wrapped__  # without jit, whose compiler options are for a CPU
    return (lambda b, state: advance(prepared, op, b, state, jax.random.key(0), jnp.int32(0), jnp.int32(2))), (b, state)


def posterior():
    x = points(N, D, dtype=np.float32)
    solver = dg.BlockDescent(block_size=100, tol=0.5)
    return dg.GaussianProcess(KERNEL, 0.5).condition(
        x, x[:, 0], solver=solver, num_samples=S, num_features=64, key=jax.random.key(0)
    )


def prediction():
    post = posterior()
    return (lambda x: (post.predict(x), post.samples(x))), (columns(D)[:20],)


def gradient_of_functions():
    post = posterior()
    return (lambda x: post.samples.each(x)), (jnp.broadcast_to(columns(D)[:5], (S, 5, D)),)


def gradient_in_inputs():
    post = posterior()
    return jax.grad(lambda x: post.samples(x).sum() + post.std(x).sum()), (columns(D)[:20],)


def gradient_of_learning():
    parameters = Parameters(dg.GaussianProcess(dg.Matern32(np.full(D, 1.5)), 0.5))
    x, v = jnp.zeros((3, 64, D), jnp.float32), jnp.zeros((3, 64, S), jnp.float32)

    def gradient(x, v):
        start = jnp.asarray(parameters.start)
        return _kernel_gradient.__wrapped__(parameters, start, x, v, _shares(v[0], 1), jnp.asarray([0, 0]), True)

    return gradient, (x, v)


PROGRAMS = {
    "SDD": lambda: solver_step(dg.SDD(step_size=1.0, batch_size=64), memory=0),
    "SDD, K kept": lambda: solver_step(dg.SDD(step_size=1.0, batch_size=64), memory=1 << 30),
    "BlockDescent": lambda: solver_step(dg.BlockDescent(block_size=100), memory=0),
    "CG": lambda: solver_step(dg.CG(), memory=0),
    "SGD": lambda: solver_step(dg.SGD(batch_size=64), memory=0),
    "prediction": prediction,
    "gradients of functions": gradient_of_functions,
    "gradients in the inputs": gradient_in_inputs,
    "gradients of learning": gradient_of_learning,
}


@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_matrix_products_ask_for_all_digits(name, platform):
    with wide():
        function, arguments = PROGRAMS[name]()
        lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=(platform,)).as_text()
    products = re.findall(r"stablehlo\.dot_general.*", lowered)
    narrow = [line for line in products if "f64" not in line]
    assert narrow and all("HIGHEST" in line for line in narrow), [line for line in narrow if "HIGHEST" not in line][:3]
