"""Settings of the wrong kind at solvers, searches, samplers, priors and scores: one sentence that names them."""

import subprocess
import sys

import jax
import numpy as np
import pytest

import dualgp as dg
from cases import data
from dualgp import learning, metrics

X, Y = data(24)
POSTERIOR = dg.GaussianProcess(dg.Matern32(1.0), 0.01).condition(X, Y, num_samples=0)
MODEL = dg.GaussianProcess(dg.Matern32(1.0), 0.01)
KINDS = """
import jax, numpy as np, dualgp as dg
from dualgp import learning, metrics
no_numbers = [None, "a", [], [1, 2], {}, np.zeros((2, 2))]
numbers = {
    dg.SDD: ("step_size", "momentum", "averaging", "tol"),
    dg.SGD: ("step_size", "momentum", "clip", "tol"),
    dg.CG: ("tol",),
    dg.BlockDescent: ("local", "max_passes", "tol"),
    dg.Search: ("uniform", "adaptive", "step_size"),
    learning.FullData: ("gain", "passes"),
    learning.Neighbours: ("gain",),
}
named = [(kind, name) for kind, names in numbers.items() for name in names]
calls = [(f"{name} must be", kind, {name: value}) for kind, name in named for value in no_numbers]
model, x = dg.GaussianProcess(dg.Matern32(1.0), 0.01), np.arange(9.0)
sampler = lambda **more: dg.ThompsonSampler([(0, 1)], key=jax.random.key(0), **more)
calls += [
    ("averaging must be in", dg.SDD, {"averaging": None}),
    ("averaging must be in", dg.SGD, {"averaging": "auto"}),
    ("preconditioner must be", dg.CG, {"preconditioner": 100}),
    ("memory must be a number", dg.Cholesky, {"memory": "all"}),
    ("search must be", sampler, {"search": 3}),
    ("solver must be", sampler, {"solver": 3}),
    ("relearn must be a number", sampler, {"relearn": "a"}),
    ("path must be text", sampler, {"path": 3}),
    ("prior of 'noise' must be a LogNormal", dg.learn, {"model": model, "x": x, "y": x, "priors": {"noise": 0.1}}),
    ("numbered from 0, got 0.5", model.condition(x, x, num_samples=0).output, {"number": 0.5}),
    ("level must be a number", metrics.coverage, {"y": np.ones(2), "mean": np.ones(2), "std": 1.0, "level": "a"}),
]
for sentence, call, settings in calls:
    try:
        call(**settings)
        print("accepted:", call, settings)
    except (TypeError, ValueError, IndexError) as error:
        if sentence not in str(error):
            print(call, settings, error)
print(len(calls), "calls")
"""


def test_settings_of_the_wrong_kind_get_a_sentence_that_names_them():
    # In a process of its own: here annotations are checked before the package gets to see anything.
    done = subprocess.run([sys.executable, "-c", KINDS], capture_output=True, text=True)
    assert done.stdout == "119 calls\n", done


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: dg.SGD(momentum=1.0), "momentum must be at least 0 and below 1"),
        (lambda: dg.SGD(averaging=-1), "averaging must be in"),
        (lambda: dg.BlockDescent(max_passes=np.inf), "max_passes must be positive and finite"),
        (lambda: dg.Cholesky(memory=-1), "memory must be a number of bytes"),
        (lambda: MODEL.condition(X, Y, num_samples=0, max_passes=np.inf), "max_passes must be positive and finite"),
        (lambda: MODEL.condition(X, Y, num_samples=0, dtype="float16"), "dtype must be float32 or float64"),
        (
            lambda: dg.learn(MODEL, X, Y, priors={"noise": learning.LogNormal(-1.0, 1.0)}),
            "the median of the prior of 'noise' must be positive",
        ),
        (lambda: metrics.crps(Y, Y, np.inf), "std has 1 NaN or infinite"),
        (lambda: POSTERIOR.quantile(X, "a"), "quantiles must hold real numbers"),
    ],
)
def test_settings_that_make_no_sense_are_named(call, sentence):
    with pytest.raises((TypeError, ValueError, IndexError), match=sentence):
        call()


@pytest.mark.parametrize("std", [5e-324, 1e-310])
def test_the_crps_of_a_tiny_std_is_the_mean_absolute_error(std):
    assert metrics.crps(Y, Y + 1.0, std) == pytest.approx(1.0)


@pytest.mark.parametrize("x", ["abc", X[:1], np.where(X > 1, "a", X.astype(object))], ids=["text", "one row", "mixed"])
def test_points_to_search_near_are_checked(x):
    posterior = MODEL.condition(X, Y, num_samples=2, num_features=64, key=jax.random.key(0))
    with pytest.raises((TypeError, ValueError), match=r"near.*(real numbers|for each)"):
        dg.maximise(posterior.samples, [(-2, 2)] * 3, key=jax.random.key(0), near=(x, Y))
