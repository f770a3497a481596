"""Figures 1 to 4 and 6 to 8 on pol, split 0: what each part of SDD is good for.

    python experiments/ablations.py                run every curve that has no result yet (resumable)
    python experiments/ablations.py --draw         draw the figures from the results

A curve is the squared K-norm and K^2-norm distance of the mean to the exact weights, and test RMSE, against steps
and seconds. Those of Figure 1 are computed from the eigenvalues of K (`full_batch.py`).
"""

import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import dualgp as dg
import full_batch
import paper
from datasets import Dataset, load_uci, published_model
from descent import (
    Adaptive,
    Arithmetic,
    Coordinates,
    Descent,
    Geometric,
    Last,
    Nesterov,
    Plain,
    RandomFeatures,
    Trap,
)
from dualgp._arrays import wide
from results import RESULTS, command_line, in_processes, load

ESTIMATORS = {"trap": "only K alpha subsampled", "coordinates": "random coordinates"}
PICTURES = Path(__file__).parents[1] / "docs" / "pictures" / "paper"
STEPS, LOOKS = 10_000, 20  # the paper has 100,000 steps
FEATURE_STEPS = 1000  # with new features for every step one takes 45 ms, fifteen times as long as with coordinates
geometric, nesterov = Geometric(paper.AVERAGING), Nesterov(paper.MOMENTUM)


def curves() -> dict[tuple[str, str], Descent]:
    """Every curve but those of Figure 1, by figure and label."""
    batch, step = paper.BATCH_SIZE, paper.COORDINATES_STEP
    found: dict[tuple[str, str], Descent] = {}
    for label, size in (("5e-4", paper.FEATURES_STEP), ("50", step)):
        found["2", f"random features, {label}"] = Descent(
            RandomFeatures(batch), nesterov, geometric, step_size=size, num_steps=FEATURE_STEPS, tol=0.0
        )
    found["2", "only K alpha subsampled, 50"] = Descent(
        Trap(batch), nesterov, geometric, step_size=step, num_steps=STEPS, tol=0.0
    )
    found["2", "random coordinates, 50"] = Descent(
        Coordinates(batch), nesterov, geometric, step_size=step, num_steps=STEPS, tol=0.0
    )
    for name, size in paper.OPTIMISER_STEPS.items():
        update = nesterov if name == "nesterov" else Adaptive(name)
        found["3", f"{name}, {size:g}"] = Descent(
            Coordinates(batch), update, geometric, step_size=size, num_steps=STEPS, tol=0.0
        )
    small = Coordinates(paper.AVERAGING_BATCH)
    for label, update, average in (
        ("no momentum, no averaging", Plain(), Last()),
        ("momentum, no averaging", nesterov, Last()),
        ("momentum, arithmetic averaging", nesterov, Arithmetic(paper.ARITHMETIC_FROM)),
        ("momentum, geometric averaging", nesterov, geometric),
    ):
        found["4", label] = Descent(small, update, average, step_size=step, num_steps=STEPS, tol=0.0)
    for label, estimate in (("trap", Trap(batch)), ("coordinates", Coordinates(batch))):
        for size in paper.STEP_SIZES:
            found["6", f"{label}, {size:g}"] = Descent(
                estimate, nesterov, geometric, step_size=size, num_steps=STEPS, tol=0.0
            )
    for label, kind in (("trap", Trap), ("coordinates", Coordinates)):
        for size in paper.BATCH_SIZES:
            found["7", f"{label}, B = {size}"] = Descent(
                kind(size), nesterov, geometric, step_size=step, num_steps=STEPS, tol=0.0
            )
    return found


def measure(figure: str, label: str) -> dict:
    """One curve: `[step, seconds, K-norm^2, K^2-norm^2, test RMSE]` at moments evenly spaced in the logarithm."""
    data, model = load_uci("pol"), published_model("pol")
    if figure == "1":
        return _full_batch(data, model, *label.split(", "))
    solver = curves()[figure, label]
    operator = dg.KernelOperator(model.kernel, data.x, model.noise, memory=2 << 30)
    exact = _exact_weights(operator, data.y)
    cross = np.asarray(model.kernel(jnp.asarray(data.x_test), jnp.asarray(data.x)))
    per_step = solver.estimate.passes(operator.n)
    curve, solution, seconds, done = [], None, 0.0, 0
    for mark in sorted({round(v) for v in np.geomspace(1, solver.num_steps, LOOKS)}):
        began = time.perf_counter()
        budget = (mark - done + 0.5) * per_step  # going on from a solution is one run, cut into pieces
        solution = dg.solve(operator, data.y, solver, key=jax.random.key(0), start=solution, max_passes=budget)
        seconds, done = seconds + time.perf_counter() - began, mark
        with wide():
            error = solution.weights - exact
            product = np.asarray(operator @ jnp.asarray(error, jnp.float32)) - float(model.noise) * error
        norms = float(error @ product), float(product @ product)
        curve.append([mark, round(seconds, 2), *norms, dg.metrics.rmse(data.y_test, cross @ solution.weights)])
        if solution.result is dg.Result.DIVERGED or not np.isfinite(curve[-1][2]):
            break
    return {"result": "diverged" if solution.result is dg.Result.DIVERGED else "ran", "curve": curve}


def _full_batch(data: Dataset, model: dg.GaussianProcess, objective: str, step_size: str) -> dict:
    found = full_batch.spectrum(model, data, RESULTS / "spectrum_pol.npz")
    curve: list[list[float]] = []
    for mark in sorted({round(v) for v in np.geomspace(1, paper.NUM_STEPS, 3 * LOOKS)}):
        scores = full_batch.progress(found, float(model.noise), data.y_test, objective, float(step_size), mark)
        if curve and not scores[0] < 2.0 * curve[0][2]:
            return {"result": "diverged", "curve": curve}
        curve.append([mark, 0.0, *scores])
    return {"result": "ran", "curve": curve}


def _exact_weights(operator: dg.KernelOperator, y: np.ndarray) -> np.ndarray:
    """By Cholesky, once for all curves."""
    file = RESULTS / "exact_pol.npy"
    if not file.exists():
        np.save(file, dg.solve(operator, y, dg.Cholesky()).weights)
    return np.load(file)


def _shown(label: str) -> str:
    """A curve's label as a legend says it: its estimator is the row's title."""
    estimator, _, setting = label.partition(", ")
    return setting if estimator in ESTIMATORS else label


def draw() -> None:
    """A picture for each figure: three panels, the paper's axes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = [line for line in load("ablations") if "curve" in line]
    figures = {number: number for number in ("1", "2", "3", "4", "6", "7")} | {"8": "7"}  # 8 is 7 against time
    drawn = {line["figure"] for line in lines}
    for number, source in figures.items():
        if source not in drawn:
            continue
        groups = sorted(
            {line["label"].split(",")[0] for line in lines if line["figure"] == source} & {"trap", "coordinates"}
        )
        rows = groups[::-1] or [""]
        figure, panels = pyplot.subplots(
            len(rows), 3, figsize=(11, 3.3 * len(rows)), squeeze=False, layout="constrained"
        )
        for group, axes in zip(rows, panels, strict=True):
            for line in lines:
                if line["figure"] != source or not line["label"].startswith(group):
                    continue
                curve = np.array(line["curve"], float)
                label = _shown(line["label"]) + (" (diverged)" if line["result"] == "diverged" else "")
                style = "--" if line["label"].startswith(("primal", "random features", "trap")) else "-"
                for panel, column in zip(axes, (2, 3, 4), strict=True):
                    panel.plot(curve[:, 1 if number == "8" else 0], curve[:, column], style, lw=1.4, label=label)
            for panel, title in zip(axes, ("squared K-norm", "squared K²-norm", "test RMSE"), strict=True):
                panel.set(xscale="log", yscale="log", title=title, xlabel="seconds" if number == "8" else "steps")
                panel.xaxis.set_minor_formatter("")  # labels of a short axis would overlap
                panel.spines[["top", "right"]].set_visible(False)
            axes[2].set_ylim(0.07, 1.3)
            axes[0].set_ylabel(ESTIMATORS.get(group, ""))
            axes[0].legend(fontsize=7, frameon=False)
        figure.savefig(PICTURES / f"figure{number}.png", dpi=130)
        pyplot.close(figure)


def main() -> None:
    keys = ("figure", "label")
    options = command_line(__doc__, keys, measure, limit=3600, show={"draw": draw}, figures="1,2,3,4,6,7")
    full = [("1", f"{kind}, {size:g}") for kind, sizes in paper.FULL_BATCH_STEPS.items() for size in sizes]
    cells = [cell for cell in (*full, *curves()) if cell[0] in options.figures.split(",")]
    in_processes("ablations", __file__, cells, keys, options.limit)


if __name__ == "__main__":
    main()
