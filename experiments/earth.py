"""The Earth from half a million heights: all points against inducing points, docs/pictures/earth.png.

    python experiments/earth.py            measures what is missing, then draws; minutes on 2 cores
    python experiments/earth.py --draw     draws what has been measured

A tenth of the grid, at random, is held out. The kernel is Matern-3/2 of chords through the Earth. `dualgp` has nothing
set: hyperparameters by `learn`, the posterior by `condition`. `far field` has weights for 20,000 random rows and no
near field, `far and near` both. SVGP has inducing points at k-means centres, the optimal variational distribution, and
the hyperparameters that maximise its own bound; it is fitted to 100,000 of the rows.
"""

import argparse
import time

import jax
import numpy as np

import dualgp as dg
import earth_picture
import svgp
from datasets import Dataset
from datasets.uci import find
from results import RESULTS, load, save

KEY = jax.random.key(0)
RADIUS = 6371.0  # km
NUM_INDUCING = 1000
LEARNED_FROM, FITTED_TO = 10_000, 100_000  # rows of SVGP: 1,000 weights need no more, and in float64 all take minutes
FAR = {"num_far": 20_000, "solver": dg.BlockDescent()}
METHODS = {"dualgp": {}, "SVGP": {}, "far field": FAR | {"neighbours": 0}, "far and near": FAR}


def heights() -> Dataset:
    """Longitudes and latitudes in degrees and heights in km, nine tenths of the grid and one tenth to test on."""
    with np.load(find("etopo20.npz")) as arrays:
        longitude, latitude = np.meshgrid(arrays["lon"], arrays["lat"])
        z = arrays["z"].ravel() / 1000.0
    x = np.stack([longitude.ravel(), latitude.ravel()], axis=1)
    test, train = np.split(np.random.default_rng(0).permutation(len(z)), [len(z) // 10])
    return Dataset(x[train], z[train], x[test], z[test])


def in_space(x: np.ndarray) -> np.ndarray:
    """Points of the sphere, in km, of longitudes and latitudes."""
    longitude, latitude = np.radians(x).T
    unit = np.cos(latitude) * np.cos(longitude), np.cos(latitude) * np.sin(longitude), np.sin(latitude)
    return RADIUS * np.stack(unit, axis=1)


def all_points(data: Dataset, views: list[np.ndarray], **settings) -> tuple[dict, list]:
    """Learned from the rows alone, and conditioned on all of them."""
    began = time.process_time()
    start = dg.GaussianProcess(dg.OnSphere(dg.Matern32(1000.0, 4.0), radius=RADIUS), noise=0.1)
    model = start.learn(data.x, data.y, key=KEY)
    learned = time.process_time()
    post = model.condition(data.x, data.y, key=KEY, **settings)
    mean, std = post.predict(data.x_test, noise=True)
    line = scores(data, mean, std) | {
        "cpu seconds to learn": round(learned - began, 1),
        "cpu seconds": round(time.process_time() - learned, 1),
        "far rows": post.num_far,
        "neighbours": post.neighbours,
        "lengthscale": float(model.kernel.kernel.lengthscale),
        "noise": float(model.noise),
    }
    return line, [post.predict(view) for view in views]


def inducing(data: Dataset, views: list[np.ndarray]) -> tuple[dict, list]:
    """SVGP in closed form, with the hyperparameters of its own bound."""
    began, x, y = time.process_time(), in_space(data.x), data.y
    some = np.random.default_rng(1).permutation(len(y))[:FITTED_TO]
    x, y = x[some], y[some]
    kernel = dg.Matern32(1500.0, float(y.var()))
    points = svgp.inducing_points(kernel, x[:LEARNED_FROM], NUM_INDUCING, 0)
    model = svgp.learn(kernel, x[:LEARNED_FROM], y[:LEARNED_FROM], points, 0.2 * float(y.var()))
    learned = time.process_time()
    found = svgp.fit(model, x, y, NUM_INDUCING, points=points)
    mean, std = svgp.predict_by(model, found, in_space(data.x_test))
    line = scores(data, mean, std) | {
        "cpu seconds to learn": round(learned - began, 1),
        "cpu seconds": round(time.process_time() - learned, 1),
        "n": len(y),
        "inducing": NUM_INDUCING,
        "lengthscale": float(model.kernel.lengthscale),
        "noise": float(model.noise),
    }
    return line, [(svgp.mean_by(model, found, in_space(view)),) for view in views]


def scores(data: Dataset, mean: np.ndarray, std: np.ndarray) -> dict:
    """On the held-out tenth, in metres."""
    return {
        "n": len(data.y),
        "rmse m": round(1000 * dg.metrics.rmse(data.y_test, mean), 1),
        "nll": round(dg.metrics.nll(data.y_test, mean, std), 4),
        "coverage90": round(dg.metrics.coverage(data.y_test, mean, std, 0.9), 4),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--draw", action="store_true")
    options, data, views = arguments.parse_args(), heights(), [view.places() for view in earth_picture.VIEWS]
    for method, settings in METHODS.items():
        file, is_drawn = RESULTS / f"earth_{method}.npz", method in earth_picture.DRAWN
        if options.draw or (any(line["method"] == method for line in load("earth")) and file.exists() >= is_drawn):
            continue
        measure, seen = inducing if method == "SVGP" else all_points, views if is_drawn else []
        line, found = measure(data, seen, **settings)
        if is_drawn:
            np.savez_compressed(file, **{f"view{i}": np.float32(values) for i, values in enumerate(found)})
        save("earth", {"method": method, **line})
    earth_picture.draw(RESULTS, {line["method"]: line for line in load("earth")})


if __name__ == "__main__":
    main()
