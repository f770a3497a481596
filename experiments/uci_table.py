"""Table 1: RMSE and NLL of every method on the UCI sets. Cells are resumable; `--table` only reads results.

    python experiments/uci_table.py --sets pol,elevators,bike --splits 0 --methods "SDD;SGD;CG;default"
    python experiments/uci_table.py --table

SDD and SGD solve for the mean and for the samples apart, because the paper gives them different step sizes. SDD-auto
has the step size that is predicted to be stable, one for all of them, and everything else as in the paper. `--steps` is
T, for both or as `mean,samples`, or the iterations of CG; where it is less than the paper's 100,000 (CG: 1,000), the
table says so. SVGP-500 has 500 inducing points instead of 3,000, and in SVGP-500-Adam (GPyTorch, `make bench` installs
it) they are moved by Adam.
"""

import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

import dualgp as dg
import paper
import svgp
from datasets import load_uci, published_model
from dualgp._arrays import wide
from results import averages, command_line, in_processes, in_thousands, load

KEYS = ("set", "split", "method", "steps")
METHODS = ("default", "SDD", "SDD-auto", "SGD", "CG", "SVGP", "exact")
# T, where a method has one; 0 is the paper's.
STEPS = {"SDD": "100000,20000", "SDD-auto": "20000", "SGD": "20000,5000", "CG": "0", "SVGP-500-Adam": "2000"}
ROWS = (*METHODS, "SVGP-500", "SVGP-500-Adam")  # of the table: the last one needs PyTorch
METRICS = ("rmse", "nll", "cpu seconds", "passes")
KEEP = 9 << 30  # bytes: SDD, SGD and CG take thousands of passes, so that keeping K pays up to keggdirected's 7.7e9


def condition(model: dg.GaussianProcess, data, method: str, name: str, steps: str) -> dg.Posterior:
    """The posterior by a method with the paper's settings."""
    settings = {"num_samples": paper.NUM_SAMPLES, "num_features": paper.NUM_FEATURES, "key": jax.random.key(0)}
    if method == "default":
        return model.condition(data.x, data.y, num_samples=paper.NUM_SAMPLES, key=jax.random.key(0))
    if method == "exact":
        return model.condition(data.x, data.y, solver=dg.Cholesky(), **settings)
    settings["memory"] = KEEP
    if method == "CG":
        preconditioner = dg.PivotedCholesky(rank=paper.CG_RANK)
        iterations = int(steps) or paper.CG_ITERATIONS
        solver = dg.CG(tol=paper.CG_TOLERANCE, preconditioner=preconditioner, max_iterations=iterations)
        return model.condition(data.x, data.y, solver=solver, **settings)
    common = {"batch_size": paper.BATCH_SIZE, "momentum": paper.MOMENTUM, "tol": 0.0}
    if method == "SDD-auto":
        solver = dg.SDD(step_size="auto", num_steps=int(steps), **common)
        return model.condition(data.x, data.y, solver=solver, **settings)
    sizes = paper.SGD_STEP if method == "SGD" else paper.SDD_STEPS.get(name, paper.SDD_STEP)
    kind = dg.SGD if method == "SGD" else dg.SDD
    solvers = [kind(step_size=size, num_steps=T, **common) for size, T in zip(sizes, _both(steps), strict=True)]
    mean = model.condition(data.x, data.y, solver=solvers[0], **settings | {"num_samples": 0})
    both = model.condition(data.x, data.y, solver=solvers[1], **settings)
    with wide():
        weights = jnp.concatenate([mean.weights, both.weights[:, 1:]], axis=1)
    solution = replace(both.solution, passes=mean.solution.passes + both.solution.passes)
    return replace(both, weights=weights, solution=solution)


def _both(steps: str) -> tuple[int, int]:
    """T for the mean and for the samples."""
    first, _, second = steps.partition(",")
    return int(first), int(second or first)


def measure(name: str, split: str, method: str, steps: str) -> dict:
    data, model = load_uci(name, int(split)), published_model(name, int(split))
    began, began_cpu = time.perf_counter(), time.process_time()
    if method.startswith("SVGP"):
        mean, std = _svgp(model, data, method, steps)
        seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
        return {**_scores(data, mean, std), "seconds": round(seconds, 1), "cpu seconds": round(cpu, 1)}
    posterior = condition(model, data, method, name, steps)
    mean, std = posterior.predict(data.x_test, noise=True)
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    operator = dg.KernelOperator(model.kernel, data.x, model.noise)
    with wide():
        product = np.asarray(operator @ jnp.asarray(posterior.weights, operator.dtype))
    targets = np.asarray(posterior.targets)
    residual = np.linalg.norm(targets - product, axis=0) / np.linalg.norm(targets, axis=0)
    return {
        **_scores(data, mean, std),
        "seconds": round(seconds, 1),
        "cpu seconds": round(cpu, 1),
        "passes": round(posterior.solution.passes, 1),
        "residual": float(f"{residual[0]:.3g}"),
        "worst residual": float(f"{residual.max():.3g}"),
    }


def _svgp(model: dg.GaussianProcess, data, method: str, steps: str) -> tuple[np.ndarray, np.ndarray]:
    """SVGP has the paper's number of inducing points, SVGP-500 has 500; in SVGP-500-Adam they are moved."""
    _, points, *adam = *method.split("-"), str(paper.SVGP_POINTS)
    if "Adam" not in adam:
        return svgp.predict(model, data, int(points))
    import svgp_adam  # with PyTorch

    return svgp_adam.predict(model, data, int(points), int(steps))


def _scores(data, mean: np.ndarray, std: np.ndarray) -> dict:
    return {
        "rmse": round(dg.metrics.rmse(data.y_test, mean), 5),
        "nll": round(dg.metrics.nll(data.y_test, mean, std), 4),
    }


def table(metric: str) -> str:
    """Ours and the paper's side by side, in Markdown. A method has a row for every number of steps that it ran with."""
    lines = [line for line in load("uci_table") if metric in line]
    published = {"rmse": paper.RMSE, "nll": paper.NLL}.get(metric, {})
    rows = ["| | " + " | ".join(paper.SETS) + " |", "|---|" + "---|" * len(paper.SETS)]
    rows += [
        f"| *{method}, the paper* | " + " | ".join(_two_digits(values.get(name)) for name in paper.SETS) + " |"
        for method, values in published.items()
    ]
    for method, steps in sorted({(line["method"], line["steps"]) for line in lines}, key=_place):
        chosen = [line for line in lines if (line["method"], line["steps"]) == (method, steps)]
        cells = [averages([line for line in chosen if line["set"] == name], metric) for name in paper.SETS]
        rows.append(f"| {method}{_said(steps)} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


def _place(row: tuple[str, str]) -> tuple[int, int, int]:
    """In the order of `ROWS`, the longest runs first."""
    return ROWS.index(row[0]), *(-T for T in _both(row[1]))


def _said(steps: str) -> str:
    return "" if steps == "0" else f", T = {in_thousands(steps)}"


def _two_digits(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def main() -> None:
    defaults = {"sets": ",".join(paper.SETS), "splits": ",".join(map(str, paper.SPLITS)), "methods": ";".join(METHODS)}
    show = {"table": lambda: print(*map(table, METRICS), sep="\n\n")}
    options = command_line(__doc__, KEYS, measure, limit=3600, show=show, steps="", **defaults)
    cells = [
        (name, split, method, (options.steps or STEPS[method]) if method in STEPS else "0")
        for name in options.sets.split(",")
        for split in options.splits.split(",")
        for method in options.methods.split(";")
    ]
    in_processes("uci_table", __file__, cells, KEYS, options.limit)


if __name__ == "__main__":
    main()
