"""Best value after equal evaluations on standard test functions: ours, BoTorch's batch Thompson sampling, random.

    python benchmarks/decisions.py [--functions hartmann6,ackley5,levy4] [--seeds 0,1,2,3,4]
    python benchmarks/decisions.py --draw     docs/pictures/decisions.png and a table

Every method starts from the same 20 random points and proposes 5 batches of 20. BoTorch: SingleTaskGP fitted by maximum
likelihood, and one posterior path for each point (`PathwiseThompsonSampling`), maximised by `optimize_acqf` from the
best 4 of 512 points. Ours has no settings. A cell is a process.
"""

import time
from pathlib import Path

import numpy as np

from record import command_line, in_processes, load

START, BATCH, ROUNDS = 20, 20, 5
SHOWN = {"ours": "dualgp"}
TITLES = {  # and the maximum
    "hartmann6": ("Hartmann, 6 inputs", 3.322),
    "ackley5": ("Ackley, 5 inputs", 0.0),
    "levy4": ("Levy, 4 inputs", 0.0),
}
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"


def hartmann6(x: np.ndarray) -> np.ndarray:
    """Maximum 3.32237 in [0, 1]^6."""
    A = np.array(
        [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
    )
    P = 1e-4 * np.array(
        [
            [1312, 1696, 5569, 124, 8283, 5886],
            [2329, 4135, 8307, 3736, 1004, 9991],
            [2348, 1451, 3522, 2883, 3047, 6650],
            [4047, 8828, 8732, 5743, 1091, 381],
        ]
    )
    alpha = np.array([1.0, 1.2, 3.0, 3.2])
    return np.exp(-np.sum(A * (x[:, None] - P) ** 2, axis=2)) @ alpha


def ackley5(x: np.ndarray) -> np.ndarray:
    """Maximum 0 in the box [-4, 6]^5, here in units of the box."""
    z = 10.0 * x - 4.0
    wave = np.exp(np.mean(np.cos(2 * np.pi * z), axis=1))
    return 20 * np.exp(-0.2 * np.sqrt(np.mean(z**2, axis=1))) + wave - 20 - np.e


def levy4(x: np.ndarray) -> np.ndarray:
    """Maximum 0 in the box [-10, 10]^4, here in units of the box."""
    w = 1 + (20 * x - 10 - 1) / 4
    middle = np.sum((w[:, :-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:, :-1] + 1) ** 2), axis=1)
    return -(np.sin(np.pi * w[:, 0]) ** 2 + middle + (w[:, -1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[:, -1]) ** 2))


FUNCTIONS = {"hartmann6": (hartmann6, 6), "ackley5": (ackley5, 5), "levy4": (levy4, 4)}
METHODS = ("ours", "BoTorch", "random")


def measure(name: str, method: str, seed: str) -> dict:
    """The best value after each batch."""
    function, d = FUNCTIONS[name]
    rng = np.random.default_rng(int(seed))
    x = rng.random((START, d))
    y, began, best = function(x), time.process_time(), []
    propose = {"ours": _ours, "BoTorch": _botorch, "random": lambda d, seed: lambda x, y: rng.random((BATCH, d))}
    ask = propose[method](d, int(seed))
    for _ in range(ROUNDS):
        best.append(float(y.max()))
        new = ask(x, y)
        x, y = np.concatenate([x, new]), np.concatenate([y, function(new)])
    return {"best": [*best, float(y.max())], "cpu seconds": round(time.process_time() - began, 1)}


def _ours(d: int, seed: int):
    import jax

    import dualgp as dg

    sampler, told = dg.ThompsonSampler([(0.0, 1.0)] * d, key=jax.random.key(seed)), [0]

    def ask(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        sampler.tell(x[told[0] :], y[told[0] :])
        told[0] = len(y)
        return sampler.ask(BATCH)

    return ask


def _botorch(d: int, seed: int):
    import torch
    from botorch.acquisition.thompson_sampling import PathwiseThompsonSampling
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.optim import optimize_acqf
    from gpytorch.mlls import ExactMarginalLogLikelihood

    torch.manual_seed(seed)
    bounds = torch.stack([torch.zeros(d), torch.ones(d)]).double()

    def ask(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        model = SingleTaskGP(torch.from_numpy(x), torch.from_numpy(y)[:, None])
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        # One path at a time: all at once (q = BATCH) takes less than half the time and ends lower.
        points = [
            optimize_acqf(PathwiseThompsonSampling(model), bounds, q=1, num_restarts=4, raw_samples=512)[0]
            for _ in range(BATCH)
        ]
        return torch.cat(points).detach().numpy()

    return ask


def draw() -> None:
    """A panel for each function: the best value, mean and standard error over seeds; and a table."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    lines = [line for line in load("decisions") if "best" in line]
    figure, panels = pyplot.subplots(1, len(FUNCTIONS), figsize=(11, 3.4), layout="constrained")
    rows = [
        "| after " + str(START + ROUNDS * BATCH) + " evaluations | " + " | ".join(METHODS) + " |",
        "|---|---|---|---|",
    ]
    for panel, name in zip(panels, FUNCTIONS, strict=True):
        cells = []
        for method in METHODS:
            curves = np.array([line["best"] for line in lines if line["function"] == name and line["method"] == method])
            if not len(curves):
                cells.append("not run")
                continue
            mean, error = curves.mean(axis=0), curves.std(axis=0, ddof=1) / np.sqrt(len(curves))
            evaluations, label = START + BATCH * np.arange(ROUNDS + 1), SHOWN.get(method, method)
            panel.errorbar(evaluations, mean, error, capsize=2, label=label)
            cells.append(f"{mean[-1]:.3f} ± {error[-1]:.3f} ({len(curves)} seeds)")
        title, maximum = TITLES[name]
        panel.axhline(maximum, color="0.6", lw=0.8, ls="--", label="the maximum")
        panel.set(title=title, xlabel="evaluations", ylabel="best value")
        panel.spines[["top", "right"]].set_visible(False)
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    panels[0].legend(frameon=False)
    figure.savefig(PICTURES / "decisions.png", dpi=130)
    print("\n".join(rows))


def main() -> None:
    keys, defaults = ("function", "method", "seed"), {"functions": ",".join(FUNCTIONS), "methods": ",".join(METHODS)}
    options = command_line(__doc__, keys, measure, limit=3600, show={"draw": draw}, seeds="0,1,2,3,4", **defaults)
    cells = [
        (name, method, seed)
        for seed in options.seeds.split(",")
        for name in options.functions.split(",")
        for method in options.methods.split(",")
    ]
    in_processes("decisions", __file__, cells, keys, options.limit)


if __name__ == "__main__":
    main()
