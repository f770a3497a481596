"""Where rows live, on the one device that every machine has; many are in test_distributed.py."""

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import KERNELS, NOISE, data, points
from dualgp._arrays import wide
from dualgp.operators.layout import Local, Sharded, as_mesh, checksum


@pytest.mark.parametrize("memory", [0, 1 << 30])
@pytest.mark.parametrize("kernel", ["Matern32", "sum-times-kernel"])
@pytest.mark.parametrize("noise", [NOISE, np.linspace(0.05, 2.0, 700)], ids=["one noise", "noises"])
def test_the_sharded_operator_has_the_products_of_the_plain_one(kernel, memory, noise):
    x, v = points(700), points(700, 4, seed=1)
    index, u = np.arange(0, 700, 7), points(100, 4, seed=2)
    plain = dg.KernelOperator(KERNELS[kernel], x, noise, memory=memory)
    sharded = dg.KernelOperator(KERNELS[kernel], x, noise, mesh=1, memory=memory)
    with wide():
        for product in (
            lambda operator: operator.rows(index, operator.layout.place(v, np.float64)),
            lambda operator: operator.residual(
                index, operator.layout.place(v, np.float64), operator.layout.place(v[::-1], np.float64)
            ),
            lambda operator: operator.noiseless.rows(index, operator.layout.place(v, np.float64)),
            lambda operator: operator.check_rows(
                index, *(operator.layout.place(columns, np.float64) for columns in (v, v[::-1]))
            ),
            lambda operator: operator.columns(index, u),
            lambda operator: operator.block(index),
            lambda operator: operator.diagonal(),
            lambda operator: operator @ v,
            lambda operator: operator.dense(),
        ):
            np.testing.assert_allclose(product(sharded), product(plain), rtol=1e-12, atol=1e-12)


def test_a_posterior_on_one_device_of_a_mesh_is_the_plain_one():
    x, y = data(500)
    model, key = dg.GaussianProcess(dg.Matern32(0.8), noise=0.1), jax.random.key(0)
    solver = dg.BlockDescent(block_size=100)
    plain = model.condition(x, y, num_samples=4, key=key, solver=solver)
    spread = model.condition(x, y, num_samples=4, key=key, solver=solver, mesh=1)
    x_new = points(9, seed=3)
    for what in ("mean", "std", "samples"):
        np.testing.assert_allclose(getattr(spread, what)(x_new), getattr(plain, what)(x_new), rtol=1e-10)
    more = [posterior.update(x_new, np.zeros(9), key=key, solver=solver) for posterior in (plain, spread)]
    np.testing.assert_allclose(more[1].mean(x_new), more[0].mean(x_new), rtol=1e-8, atol=1e-10)
    assert more[1].n == 509 and isinstance(more[1].layout, Sharded)


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_counts_on_a_mesh_give_the_plain_posterior(dtype):
    x, y = np.random.default_rng(0).poisson(0.7, (500, 40)).astype(dtype), data(500)[1]
    model, key = dg.GaussianProcess(dg.Tanimoto(), 0.1), jax.random.key(0)
    plain, spread = (
        model.condition(x, y, mesh=mesh, num_samples=4, key=key, solver=dg.BlockDescent(block_size=100))
        for mesh in (None, 1)
    )
    for what in ("mean", "std", "samples"):
        np.testing.assert_allclose(
            getattr(spread, what)(x[:9]), getattr(plain, what)(x[:9]), rtol=1e-4, atol=1e-4
        )  # sums in another order


def test_the_estimator_takes_devices():
    x, y = data(300)
    settings = {"random_state": 0, "learn": False, "noise": 0.1, "solver": dg.BlockDescent(block_size=64)}
    plain, spread = (dg.GPRegressor(devices=devices, **settings).fit(x, y) for devices in (None, "all"))
    assert "devices" in spread.report()
    np.testing.assert_allclose(spread.predict(x[:5]), plain.predict(x[:5]), rtol=1e-8)


def test_what_is_placed_is_what_is_collected():
    layout, array = Sharded(7, as_mesh(1)), points(7)
    placed = layout.place(array, array.dtype)
    assert layout.holds(placed) and not layout.holds(array)
    np.testing.assert_array_equal(layout.collect(placed), array.astype(placed.dtype))


def test_a_checksum_sees_every_number_and_its_place_but_no_padding():
    with wide():
        array, layout = points(50), Local(50)
        total = int(checksum(layout, array))
        assert total == int(checksum(layout, np.concatenate([array, np.zeros((3, array.shape[1]))])))
        assert total == Sharded(50, as_mesh(1)).summarise(Sharded(50, as_mesh(1)).place(array, np.float64))[1]
        swapped = array.copy()
        swapped[[3, 4]] = swapped[[4, 3]]
        changed = array.copy()
        changed[7, 1] = np.nextafter(changed[7, 1], 9.0)
        assert len({total, int(checksum(layout, swapped)), int(checksum(layout, changed))}) == 3


def test_devices_that_are_not_there_are_refused_with_a_remedy():
    with pytest.raises(ValueError, match="xla_force_host_platform_device_count"):
        as_mesh(99)
    with pytest.raises(ValueError, match="all"):
        as_mesh("some")
    with pytest.raises(ValueError, match="one target per row"):
        dg.GaussianProcess(dg.RBF(), noise=0.1).condition(points(9), np.zeros(8), mesh=1, key=jax.random.key(0))
