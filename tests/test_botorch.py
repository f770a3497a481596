"""Posterior functions and posteriors inside BoTorch: against our own, the exact answer and BoTorch's paths."""

import subprocess
import sys
from functools import cache, partial

import jax
import numpy as np
import pytest

import dualgp as dg
from dualgp._arrays import wide

pytest.importorskip("botorch", reason="BoTorch is an extra: pip install 'dualgp[botorch]'")

import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound
from botorch.acquisition.logei import qLogExpectedImprovement
from botorch.acquisition.objective import ScalarizedPosteriorTransform
from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize, Standardize
from botorch.optim import optimize_acqf
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.sampling.pathwise.prior_samplers import draw_kernel_feature_paths
from gpytorch.kernels import LinearKernel, MaternKernel, RBFKernel, ScaleKernel

from dualgp.botorch import DualGPModel, dual_prior, dual_update, kernel_block, paths

D, NUM = 2, 6
KERNELS = {
    "rbf": dg.RBF([0.5, 0.8], 1.3),
    "matern12": dg.Matern12(0.7, 0.4),
    "matern32": dg.Matern32([0.5, np.inf]),
    "matern52": dg.Matern52([0.4, 0.9], 2.0),
    "algebra": 0.5 * dg.Matern32(0.6) + dg.RBF(1.0) * (dg.Matern52(0.7) + 0.1 * dg.Matern12(2.0)),
}
UNIT_SQUARE = torch.tensor([[0.0] * D, [1.0] * D], dtype=torch.double)


def data(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(n, D))
    return x, np.sin(6 * x[:, 0]) + np.cos(5 * x[:, 1]) + 0.1 * rng.normal(size=n)


@cache
def fitted(kernel: str = "matern52", exact: bool = True, num_samples: int = NUM) -> dg.Posterior:
    model = dg.GaussianProcess(KERNELS[kernel], noise=0.01, mean=0.3)
    solver = dg.Cholesky() if exact else dg.CG(tol=1e-8)
    return model.condition(*data(), solver=solver, num_samples=num_samples, num_features=128, key=jax.random.key(0))


def points(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, D, dtype=torch.double, generator=torch.Generator().manual_seed(1))


def all_paths(posterior: dg.Posterior, sample_shape: tuple = (NUM,)) -> tuple[paths.StreamedPaths, list[int]]:
    """The functions drawn, and which of the posterior's they are."""
    torch.manual_seed(5)
    order = torch.randperm(posterior.num_samples)[: int(np.prod(sample_shape))].tolist()
    torch.manual_seed(5)
    return draw_matheron_paths(DualGPModel(posterior), torch.Size(sample_shape)), order


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_a_kernel_has_the_same_values_in_torch(kernel):
    x, _ = data()
    x1, x2 = x[:20], x[10:]
    with wide():
        expected = np.asarray(kernel(jax.numpy.asarray(x1), jax.numpy.asarray(x2)))
    np.testing.assert_allclose(kernel_block(kernel, torch.tensor(x1), torch.tensor(x2)), expected, atol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_functions_and_their_gradients_are_those_of_the_posterior(kernel):
    posterior = fitted(kernel)
    functions, order = all_paths(posterior)
    x = points(4).requires_grad_()
    values = functions(x)
    np.testing.assert_allclose(values.detach(), posterior.samples(x.detach().numpy())[order], atol=1e-7)
    (gradient,) = torch.autograd.grad(values[2].sum(), x)
    with wide():
        ours = jax.grad(lambda x: posterior.samples[order[2]](x).sum())(jax.numpy.asarray(x.detach().numpy()))
    np.testing.assert_allclose(gradient, ours, rtol=1e-6, atol=1e-7)


def test_gradients_are_those_of_finite_differences_to_second_order():
    functions, _ = all_paths(fitted(), (2,))
    assert torch.autograd.gradcheck(functions, points(2).requires_grad_(), atol=1e-5)
    assert torch.autograd.gradgradcheck(functions, points(2).requires_grad_(), atol=1e-4, fast_mode=True)


@pytest.mark.parametrize("kernel", KERNELS)
def test_gradients_are_finite_at_the_data(kernel):
    functions, _ = all_paths(fitted(kernel))
    x = torch.tensor(data()[0][:5]).requires_grad_()
    (gradient,) = torch.autograd.grad(functions(x).sum(), x)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("sample_shape", "batch"),
    [
        ((), ()),
        ((), (3, 2)),
        ((1,), (4,)),
        ((6,), ()),
        ((6,), (6,)),
        ((6,), (3, 6)),
        ((6,), (3, 1)),
        ((2, 3), ()),
        ((2, 3), (2, 3)),
        ((2, 3), (5, 2, 3)),
        ((2, 3), (1, 3)),
        ((1, 3), (4, 3)),
    ],
)
def test_batches_of_points_broadcast_against_functions(sample_shape, batch):
    functions, order = all_paths(posterior := fitted(), sample_shape)
    x = points(*batch, 4)
    shape = torch.broadcast_shapes(batch, sample_shape)
    x_of = np.broadcast_to(x.numpy(), (*shape, 4, D)).reshape(-1, 4, D)
    function_of = np.broadcast_to(np.reshape(order, sample_shape), shape).ravel()
    expected = [posterior.samples[int(i)](x_i)[0] for i, x_i in zip(function_of, x_of, strict=True)]
    np.testing.assert_allclose(functions(x), np.reshape(expected, (*shape, 4)), atol=1e-7)


def test_tiles_and_blocks_do_not_change_the_answer(monkeypatch):
    functions, _ = all_paths(fitted())
    x = points(3, NUM, 5)
    whole, whole_own = functions(x[0, 0]), functions(x)
    for name, value in (("TILE_ENTRIES", 1), ("SMALLEST_TILE", 7), ("POINT_BLOCK", 12)):
        monkeypatch.setattr(paths, name, value)
    torch.testing.assert_close(functions(x[0, 0]), whole)
    torch.testing.assert_close(functions(x), whole_own)


def test_the_backward_pass_keeps_no_tile():
    functions, _ = all_paths(fitted())
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()), lambda _: None):
        functions(points(50).requires_grad_())
    assert sum(kept) < 50 * len(data()[0])  # one block of k(x, X)


def test_an_exact_posterior_is_exact_in_torch():
    posterior, x = fitted(), points(3, 4)
    joint = DualGPModel(posterior).posterior(x)
    for i in range(3):
        np.testing.assert_allclose(joint.mean[i, :, 0], posterior.mean(x[i].numpy()), atol=1e-7)
        np.testing.assert_allclose(
            joint.distribution.covariance_matrix[i], posterior.covariance(x[i].numpy()), atol=1e-7
        )
    noisy = DualGPModel(posterior).posterior(x, observation_noise=True)
    torch.testing.assert_close(noisy.variance, joint.variance + 0.01)
    noisy = DualGPModel(posterior).posterior(x, observation_noise=torch.full((4, 1), 0.5, dtype=torch.double))
    torch.testing.assert_close(noisy.variance, joint.variance + 0.5)


def test_a_sampled_posterior_is_that_of_the_functions():
    posterior, x = fitted(exact=False), points(4)
    joint = DualGPModel(posterior).posterior(x)
    np.testing.assert_allclose(joint.mean[:, 0], posterior.mean(x.numpy()), atol=1e-7)
    expected, found = posterior.covariance(x.numpy()), joint.distribution.covariance_matrix.detach().numpy()
    np.testing.assert_allclose(np.diag(found), np.diag(expected), atol=1e-7)
    shrunk = NUM / (NUM + 3) * expected
    np.testing.assert_allclose(found - np.diag(np.diag(found)), shrunk - np.diag(np.diag(shrunk)), atol=1e-7)


def test_few_functions_do_not_know_a_point_given_the_others_too_well():
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 1, (150, 2))
    y = np.sin(6 * x[:, 0]) + np.cos(4 * x[:, 1]) + 0.1 * rng.normal(size=150)
    model = dg.GaussianProcess(dg.Matern52(0.4, 1.5), noise=0.01)
    exact = DualGPModel(model.condition(x, y, num_samples=0))
    solver, ratios = dg.BlockDescent(tol=1e-3, block_size=100), []
    for seed in range(6):
        sampled = DualGPModel(model.condition(x, y, num_samples=64, key=jax.random.key(seed), solver=solver))
        at = torch.tensor(rng.uniform(0, 1, (24, 2)))
        inverses = [torch.linalg.inv(m.posterior(at).distribution.covariance_matrix) for m in (exact, sampled)]
        ratios += (inverses[0].diagonal() / inverses[1].diagonal()).tolist()  # variances given all others
    assert np.median(ratios) > 1.0


@pytest.mark.parametrize("exact", [True, False], ids=["exact", "sampled"])
def test_moments_have_gradients(exact):
    model = DualGPModel(fitted(exact=exact))

    def moments(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        joint = model.posterior(x)
        return joint.mean, joint.distribution.covariance_matrix

    assert torch.autograd.gradcheck(moments, points(2, 2).requires_grad_(), atol=1e-5)


def test_a_posterior_transform_is_applied():
    model, x = DualGPModel(fitted()), points(2, 1)
    transform = ScalarizedPosteriorTransform(torch.tensor([-2.0], dtype=torch.double))
    torch.testing.assert_close(model.posterior(x, posterior_transform=transform).mean, -2 * model.posterior(x).mean)


def test_thompson_sampling_finds_the_maximum_of_every_function():
    torch.manual_seed(0)
    acquisition = PathwiseThompsonSampling(DualGPModel(fitted()))
    candidates, total = optimize_acqf(acquisition, UNIT_SQUARE, q=3, num_restarts=4, raw_samples=128)
    axis = torch.linspace(0, 1, 40, dtype=torch.double)
    best = acquisition.samples(torch.cartesian_prod(axis, axis)).amax(dim=(-1, -2))
    reached = acquisition.samples(candidates[:, None]).flatten()
    assert (reached > best - 1e-3).all()
    torch.testing.assert_close(reached.sum(), total)


def test_analytic_and_monte_carlo_acquisition_functions_are_optimised():
    torch.manual_seed(0)
    model = DualGPModel(fitted())
    axis = torch.linspace(0, 1, 40, dtype=torch.double)
    grid = torch.cartesian_prod(axis, axis)[:, None]
    for acquisition in (UpperConfidenceBound(model, 2.0), LogExpectedImprovement(model, 1.5)):
        _, value = optimize_acqf(acquisition, UNIT_SQUARE, q=1, num_restarts=2, raw_samples=64)
        assert value > acquisition(grid).max() - 1e-3
    acquisition = qLogExpectedImprovement(model, 1.5)
    pair, value = optimize_acqf(acquisition, UNIT_SQUARE, q=2, num_restarts=2, raw_samples=32)
    assert pair.shape == (2, D) and value >= acquisition(pair[:1]).item()


def test_more_observations_give_the_posterior_of_all():
    x, y = data(80)
    first = dg.GaussianProcess(dg.RBF(0.5), noise=0.01).condition(x[:60], y[:60], num_samples=2, key=jax.random.key(0))
    model = DualGPModel(first).condition_on_observations(torch.tensor(x[60:]), torch.tensor(y[60:, None]))
    whole = first.model.condition(x, y, num_samples=0)
    np.testing.assert_allclose(model.posterior(points(5)).mean[:, 0], whole.mean(points(5).numpy()), atol=1e-8)


def single_task(kernel, noise: float = 0.01, **settings) -> SingleTaskGP:
    x, y = (torch.tensor(array) for array in data())
    model = SingleTaskGP(3.0 * x, 5.0 + 2.0 * y[:, None], covar_module=kernel, **settings)
    if "train_Yvar" not in settings:
        model.likelihood.noise = noise
    return model.eval()


THEIRS = {
    "matern": lambda: ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=D)),
    "active": lambda: ScaleKernel(RBFKernel(active_dims=[1])) + MaternKernel(nu=0.5, active_dims=[0]),
    "product": lambda: ScaleKernel(RBFKernel() * MaternKernel(nu=1.5, ard_num_dims=D)),
}


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("solver", ["auto", dg.CG(tol=1e-10)], ids=["exact", "iterative"])
def test_the_update_is_that_of_botorch_for_the_same_draws(name, solver):
    transforms = {"input_transform": Normalize(D), "outcome_transform": Standardize(1)}
    model = single_task(THEIRS[name](), **transforms).double().eval()
    # BoTorch has no features for sums: the prior functions may be any, as long as they are the same.
    prior_sampler = partial(draw_kernel_feature_paths, map_generator=rbf_features)
    drawn = []
    for update in ({}, {"update_strategy": partial(dual_update, solver=solver)}):
        torch.manual_seed(3)
        drawn.append(draw_matheron_paths(model, torch.Size([2, 3]), prior_sampler=prior_sampler, **update))
    theirs, ours = (functions(3.0 * points(5)).detach() for functions in drawn)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)


def rbf_features(kernel, **settings):
    from botorch.sampling.pathwise.features import gen_kernel_features

    return gen_kernel_features(RBFKernel().double(), **settings)


def test_prior_functions_have_the_moments_of_the_model():
    model = single_task(THEIRS["product"](), input_transform=Normalize(D)).double().eval()
    model.mean_module.constant = 2.0
    x = 3.0 * points(4)
    values = dual_prior(model, torch.Size([4000]))(x).detach()
    expected = model.covar_module(model.input_transform(x)).to_dense().detach()
    torch.testing.assert_close(values.mean(0), torch.full((4,), 2.0, dtype=torch.double), rtol=0, atol=0.06)
    torch.testing.assert_close(torch.cov(values.T), expected, rtol=0, atol=0.08)


def test_functions_of_a_single_task_model_have_its_posterior_moments():
    model = single_task(THEIRS["matern"](), input_transform=Normalize(D), outcome_transform=Standardize(1)).double()
    x = 3.0 * points(4)
    drawn = draw_matheron_paths(model.eval(), torch.Size([4000]), prior_sampler=dual_prior, update_strategy=dual_update)
    values, exact = drawn(x).detach(), model.posterior(x)
    std = exact.variance.detach().sqrt()[:, 0]
    assert ((values.mean(0) - exact.mean.detach()[:, 0]).abs() < 0.08 * std).all()
    torch.testing.assert_close(values.std(0), std, rtol=0.06, atol=0)


def test_functions_of_a_single_task_model_have_gradients_and_slots():
    model = single_task(THEIRS["matern"]()).double().eval()
    functions = draw_matheron_paths(model, torch.Size([3]), prior_sampler=dual_prior, update_strategy=dual_update)
    x = points(2, 3, 1).requires_grad_()
    assert functions(x).shape == (2, 3, 1)
    assert torch.autograd.gradcheck(functions, x, atol=1e-5)


def test_paths_of_a_model_with_a_noise_for_every_point_have_its_moments():
    variances = torch.linspace(0.01, 1.0, 60, dtype=torch.double)[:, None]
    model = single_task(RBFKernel(), train_Yvar=variances, outcome_transform=None).double()
    x = points(5)
    sampled = draw_matheron_paths(model, torch.Size([2000]), prior_sampler=dual_prior, update_strategy=dual_update)(x)
    exact = model.posterior(x)
    std = exact.variance.sqrt()[:, 0]
    assert ((sampled.mean(dim=0) - exact.mean[:, 0]).abs() < 5 * std / 2000**0.5).all()
    assert ((sampled.std(dim=0) / std - 1).abs() < 5 / 4000**0.5 + 0.02).all()


def test_observations_come_with_their_own_noise():
    rng = np.random.default_rng(0)
    x, y = rng.uniform(size=(80, 2)), rng.normal(size=80)
    noise = np.r_[np.full(60, 0.01), rng.uniform(0.1, 1.0, 20)]
    model = dg.GaussianProcess(dg.RBF(0.5), noise=0.01)
    first = DualGPModel(model.condition(x[:60], y[:60], num_samples=2, key=jax.random.key(0)))
    more = [torch.from_numpy(array[60:, None]) for array in (y, noise)]
    updated = first.condition_on_observations(torch.from_numpy(x[60:]), more[0], noise=more[1])
    whole = model.condition(x, y, noise=noise, num_samples=0)
    new = points(7)
    np.testing.assert_allclose(updated.posterior(new).mean[:, 0], whole.mean(new.numpy()), atol=1e-8)


def test_a_kernel_of_your_own_can_be_registered():
    class Own(dg.RBF):
        pass

    with pytest.raises(TypeError, match="Own has no formula in torch"):
        kernel_block(Own(0.5), points(2), points(2))
    kernel_block.register(Own)(lambda kernel, x1, x2: torch.cdist(x1, x2))
    torch.testing.assert_close(kernel_block(Own(0.5), points(2), points(3)), torch.cdist(points(2), points(3)))


def test_what_cannot_be_done_is_said():
    model = DualGPModel(fitted(exact=False))
    with pytest.raises(ValueError, match="num_samples=7 or more"):
        draw_matheron_paths(model, torch.Size([NUM + 1]))
    with pytest.raises(ValueError, match="has its functions already"):
        draw_matheron_paths(model, torch.Size([1]), update_strategy=dual_update)
    with pytest.raises(ValueError, match="7 points takes more than the 6 functions"):
        model.posterior(points(7))
    with pytest.raises(ValueError, match="3 column"):
        model.posterior(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="3 column"):
        draw_matheron_paths(model, torch.Size([1]))(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="do not fit"):
        draw_matheron_paths(model, torch.Size([2]))(points(3, 1))
    with pytest.raises(ValueError, match="one output"):
        model.posterior(points(1), output_indices=[1])
    with pytest.raises(NotImplementedError, match="fantasies"):
        model.condition_on_observations(points(2, 3), torch.zeros(2, 3, 1))
    with pytest.raises(NotImplementedError, match="fantasies"):
        model.fantasize(points(2), None)
    with pytest.raises(ValueError, match="must be a tensor of shape"):
        model.posterior(torch.zeros(2))
    with pytest.raises(ValueError, match="this posterior has none"):
        DualGPModel(fitted(exact=False, num_samples=0))
    with pytest.raises(TypeError, match="takes a posterior"):
        DualGPModel(dg.GaussianProcess(dg.RBF(), noise=0.1))
    with pytest.raises(ValueError, match="LinearKernel is not translated"):
        dual_update(single_task(LinearKernel()), torch.zeros(1, 60))


def test_without_botorch_a_sentence_says_what_to_install():
    code = "import sys; sys.modules['botorch'] = None; import dualgp.botorch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert "pip install 'dualgp[botorch]'" in done.stderr.splitlines()[-1]


def test_active_dims_of_a_scale_kernel_are_refused():
    x, y = map(torch.tensor, data())
    model = SingleTaskGP(x, y[:, None], covar_module=ScaleKernel(MaternKernel(2.5), active_dims=[0]))
    with pytest.raises(ValueError, match="active_dims"), torch.no_grad():
        draw_matheron_paths(model, torch.Size([2]), prior_sampler=dual_prior, update_strategy=dual_update)


@pytest.fixture(scope="module", params=["both fields", "neighbours alone"])
def corrected(request):
    """A posterior whose far field has not converged, or that has none."""
    far = {"num_far": 0} if request.param == "neighbours alone" else {"max_passes": 0.7}
    settings = {"solver": dg.BlockDescent(block_size=12, tol=0.0), "num_samples": NUM, "num_features": 128, **far}
    model = dg.GaussianProcess(KERNELS["matern52"], noise=0.01, mean=0.3)
    return model.condition(*data(), neighbours=10, key=jax.random.key(0), **settings)


def test_the_near_field_is_the_same_in_torch(corrected):
    x = points(9)
    posterior = DualGPModel(corrected).posterior(x[:, None])
    np.testing.assert_allclose(posterior.mean[:, 0, 0], corrected.mean(x.numpy()), atol=1e-6)
    np.testing.assert_allclose(posterior.variance[:, 0, 0] ** 0.5, corrected.std(x.numpy()), rtol=1e-4)
    functions, chosen = all_paths(corrected)
    assert functions.near is not None
    np.testing.assert_allclose(functions(x), corrected.samples(x.numpy())[chosen], atol=1e-6)
    slots = points(NUM, 1)
    own = torch.stack([functions(slots[i])[i] for i in range(NUM)])
    np.testing.assert_allclose(functions(slots), own, atol=1e-9)


def test_gradients_of_the_near_field_are_those_of_finite_differences(corrected):
    functions, _ = all_paths(corrected)
    x = points(3).requires_grad_()
    (gradient,) = torch.autograd.grad(functions(x).sum(), x)
    for i, j in np.ndindex(3, D):
        step = torch.zeros_like(x)
        step[i, j] = 1e-6
        difference = (functions(x + step) - functions(x - step)).sum().detach() / 2e-6
        assert float(gradient[i, j]) == pytest.approx(float(difference), rel=1e-3, abs=1e-3)
