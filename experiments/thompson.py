"""Figures 5 and 9: parallel Thompson sampling of functions drawn from the prior, every method under equal compute.

    python experiments/thompson.py                     the small setting of this script, resumable
    python experiments/thompson.py --paper             the paper's: 50,000 points to start with, 30 steps of 1,000
    python experiments/thompson.py --draw              docs/pictures/paper/figure5.png, figure9.png and a table

Compute is counted in passes over the kernel matrix: 10 (small) or 50 (large) for every iterative method and step, as
the paper gives them to CG. SDD takes its step size from the probe; SVGP has a tenth (small) or half (large) as many
inducing points as there are data. All methods know the kernel and the noise, and search with the same effort.
"""

import time
from pathlib import Path

import jax
import numpy as np

import dualgp as dg
import paper
import svgp
from dualgp.decisions.maxima import Search, climb_all
from results import command_line, in_processes, load

KEYS = ("setting", "lengthscale", "method", "budget", "seed")
DAY = 24 * 3600.0
METHODS = ("default", "SDD", "SGD", "CG", "SVGP", "random")
PASSES = {"small": 10.0, "large": 50.0}
INDUCING = {"small": 0.1, "large": 0.5}  # of n
PICTURES = Path(__file__).parents[1] / "docs" / "pictures" / "paper"
BOX = [(0.0, 1.0)] * paper.THOMPSON_DIMENSIONS


SETTINGS = {
    "here": {"start": 4000, "batch": 100, "steps": 6, "search": Search(num_candidates=1024, num_starts=2)},
    "paper": {
        "start": paper.THOMPSON_START,
        "batch": paper.THOMPSON_BATCH,
        "steps": paper.THOMPSON_STEPS,
        "search": Search(**paper.THOMPSON_SEARCH),
    },
}


def solver(method: str, n: int, passes: float):
    """A solver that stops after so many passes."""
    batch = min(paper.BATCH_SIZE, n // 8)
    steps = max(1, int(passes * n / batch))
    if method == "SDD":
        return dg.SDD(batch_size=batch, num_steps=steps, tol=0.0)
    if method == "SGD":
        return dg.SGD(batch_size=batch, num_steps=max(1, steps // 2), step_size=paper.SGD_STEP[0], tol=0.0)
    if method == "CG":
        preconditioner = dg.PivotedCholesky(rank=paper.CG_RANK)
        return dg.CG(max_iterations=int(passes), tol=paper.CG_TOLERANCE, preconditioner=preconditioner)
    return dg.BlockDescent(max_passes=passes)


def functions(method: str, budget: str, model: dg.GaussianProcess, x: np.ndarray, y: np.ndarray, num: int, key):
    """`num` posterior functions by a method within a budget."""
    if method == "SVGP":
        return svgp.sample_paths(model, x, y, round(INDUCING[budget] * len(x)), num, key)
    posterior = model.condition(x, y, solver=solver(method, len(x), PASSES[budget]), num_samples=num, key=key)
    return posterior.samples


def measure(setting: str, lengthscale: str, method: str, budget: str, seed: str) -> dict:
    """The best value after every step, of the function itself."""
    numbers = SETTINGS[setting]
    model = dg.GaussianProcess(dg.Matern32(float(lengthscale)), paper.THOMPSON_NOISE)
    key, rng = jax.random.key(int(seed)), np.random.default_rng(int(seed))
    target = model.sample_prior(len(BOX), 1, key=jax.random.fold_in(key, 1), num_features=paper.THOMPSON_FEATURES)
    x = rng.random((numbers["start"], len(BOX))).astype(np.float32)
    y = target(x)[0] + paper.THOMPSON_NOISE**0.5 * rng.standard_normal(len(x)).astype(np.float32)
    best, cpu, began = [float(y.max())], [0.0], time.process_time()
    for step in range(numbers["steps"]):
        solve_key, search_key = jax.random.split(jax.random.fold_in(key, 100 + step))
        if method == "random":
            new = rng.random((numbers["batch"], len(BOX))).astype(np.float32)
        else:
            paths = functions(method, budget, model, x, y, numbers["batch"], solve_key)
            found, _ = climb_all(paths, BOX, key=search_key, search=numbers["search"], near=(x, y))
            new = found[:, 0].astype(np.float32)
        values = target(new)[0] + paper.THOMPSON_NOISE**0.5 * rng.standard_normal(len(new)).astype(np.float32)
        x, y = np.concatenate([x, new]), np.concatenate([y, values])
        best.append(float(y.max()))
        cpu.append(round(time.process_time() - began, 1))
    return {"best": [round(value, 4) for value in best], "cpu": cpu, "cpu seconds": cpu[-1]}


def _ended() -> list[dict]:
    """The runs of our size that came to their end."""
    return [line for line in load("thompson") if "best" in line and line["setting"] == "here"]


def draw() -> None:
    """Figures 5 and 9, and a table of the end values."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = _ended()
    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    for panel, budget in zip(panels, PASSES, strict=True):
        _curves(panel, lines, budget)
        panel.set(title=f"{budget} budget: {PASSES[budget]:.0f} passes a step", xlabel="steps", ylabel="best value")
    panels[0].legend(frameon=False, fontsize=8)
    figure.savefig(PICTURES / "figure5.png", dpi=130)

    scales = paper.THOMPSON_LENGTHSCALES
    figure, panels = pyplot.subplots(2, len(scales), figsize=(13, 5.6), sharex=True, layout="constrained")
    for row, budget in zip(panels, PASSES, strict=True):
        for panel, scale in zip(row, scales, strict=True):
            _curves(panel, [line for line in lines if line["lengthscale"] == str(scale)], budget)
            panel.set(title=f"{budget}, lengthscale {scale}", xlabel="steps")
    panels[0, 0].legend(frameon=False, fontsize=7)
    figure.savefig(PICTURES / "figure9.png", dpi=130)
    print(table())


def _curves(panel, lines: list[dict], budget: str) -> None:
    """The mean of each method's best values over lengthscales, and over seeds of one: and its standard error."""
    for number, method in enumerate(METHODS):
        chosen = [line for line in lines if line["method"] == method and line["budget"] in (budget, "none")]
        if not chosen:
            continue
        scales = sorted({line["lengthscale"] for line in chosen})
        seeds = [[line["best"] for line in chosen if line["lengthscale"] == scale] for scale in scales]
        best = np.array([np.mean(found, axis=0) for found in seeds] if len(scales) > 1 else seeds[0])
        error = best.std(axis=0, ddof=1) / len(best) ** 0.5 if len(best) > 1 else np.zeros(best.shape[1])
        where, middle, color = np.arange(best.shape[1]), best.mean(axis=0), f"C{number}"
        panel.plot(where, middle, "o-", ms=3, color=color, label=method)
        panel.fill_between(where, middle - error, middle + error, color=color, alpha=0.15)
    panel.spines[["top", "right"]].set_visible(False)


def table() -> str:
    """Best values at the end by lengthscale, the mean of the seeds (their number), and of all; in Markdown."""
    lines = _ended()
    scales = [str(scale) for scale in paper.THOMPSON_LENGTHSCALES]
    rows = ["| method | budget | " + " | ".join(f"l = {scale}" for scale in scales) + " | mean | CPU s |"]
    rows.append("|---|---|" + "---|" * (len(scales) + 2))
    for budget in ("none", *PASSES):
        for method in METHODS:
            chosen = [line for line in lines if (line["method"], line["budget"]) == (method, budget)]
            if not chosen:
                continue
            ends = {scale: [line["best"][-1] for line in chosen if line["lengthscale"] == scale] for scale in scales}
            cells = [f"{np.mean(found):.2f} ({len(found)})" if found else "" for found in ends.values()]
            means = [np.mean(found) for found in ends.values() if found]
            cells.append(f"{np.mean(means):.2f}" if len(means) == len(scales) else "")
            cells.append(f"{np.mean([line['cpu seconds'] for line in chosen]):.0f}")
            rows.append(f"| {method} | {budget} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def main() -> None:
    defaults = {"methods": ",".join(METHODS), "budgets": ",".join(PASSES), "seeds": "0", "paper": False}
    scales = ",".join(map(str, paper.THOMPSON_LENGTHSCALES))
    options = command_line(__doc__, KEYS, measure, limit=DAY, show={"draw": draw}, lengthscales=scales, **defaults)
    cells = [
        ("paper" if options.paper else "here", scale, method, "none" if method == "random" else budget, seed)
        for seed in options.seeds.split(",")
        for scale in options.lengthscales.split(",")
        for budget in options.budgets.split(",")
        for method in options.methods.split(",")
    ]
    in_processes("thompson", __file__, list(dict.fromkeys(cells)), KEYS, options.limit)


if __name__ == "__main__":
    main()
