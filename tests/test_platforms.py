"""On GPUs and TPUs matrix products ask for all digits, and options, tiles and memory are those of the device."""

import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import dualgp as dg
from cases import points
from dualgp import _arrays
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
    advance = iterate._advance.__wrapped__  # without jit
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


@pytest.mark.parametrize("platform, passed", [("cpu", 1), ("gpu", 0)])
def test_compiler_options_of_cpus_are_passed_on_cpus_only(platform, passed, monkeypatch):
    used = []

    def filter_jit(function, **settings):
        return lambda *args: used.append(len(settings)) or function(*args)

    monkeypatch.setattr(_arrays.eqx, "filter_jit", filter_jit)
    monkeypatch.setattr(_arrays, "platform_of", lambda *trees: platform)
    assert _arrays.compiled(lambda x: x + 1)(1) == 2 and used == [passed]


def test_the_platform_is_that_of_the_arrays(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert _arrays.platform_of((np.ones(2), 1.0)) == "gpu"
    assert _arrays.platform_of({"x": (np.ones(2), jnp.ones(2))}) == "cpu"


def device(**stats):
    return SimpleNamespace(platform="gpu", memory_stats=lambda: stats)


def test_k_is_kept_where_the_memory_of_its_device_allows():
    most = policy.memory_of(device(bytes_limit=4 << 30))
    assert policy.keeps_kernel_matrix(1 << 30, None, most, is_cheap=False)
    assert not policy.keeps_kernel_matrix((1 << 30) + 1, None, most, is_cheap=False)
    assert policy.memory_of(device()) == policy.memory_of(jax.devices("cpu")[0]) == policy.machine_memory()


def test_tiles_of_accelerators_are_larger(monkeypatch):
    monkeypatch.undo()  # of `small_tiles`
    on_cpu = policy.tile_width(6144)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert policy.tile_width(6144) > 4 * on_cpu
