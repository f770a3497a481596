"""Passes and seconds of every solver to a relative residual of 1e-2, on real data: mean + 8 samples, split 0, published
hyperparameters. Appends JSON lines (a cell that is there already is not run again) and prints the table.

    DUALGP_DATA=... python benchmarks/solvers.py [--sets pol,elevators] [--max-seconds 60]
"""

import argparse

import jax

import dualgp as dg
from dualgp.solvers import Solver
from record import load, load_uci, published_model, save

PAPER_STEPS = {"elevators": 5.0, "keggdirected": 5.0}  # step sizes of the paper for means; 50 elsewhere


def solvers(name: str) -> dict[str, Solver | str]:
    """The contenders on a data set."""
    return {
        "default": "auto",
        "tight": dg.BlockDescent(tol=1e-4),
        "SDD, paper": dg.SDD(step_size=PAPER_STEPS.get(name, 50.0), batch_size=512, num_steps=100_000),
        "SDD, auto": dg.SDD(),
        "CG, rank 100": dg.CG(),
        "CG, rank 500": dg.CG(preconditioner=dg.PivotedCholesky(rank=500, random=True)),
    }


def run(name: str, label: str, solver: Solver | str, max_seconds: float) -> dict:
    """One cell of the table."""
    data, model = load_uci(name), published_model(name)
    posterior = model.condition(
        data.x, data.y, solver=solver, num_samples=8, key=jax.random.key(0), max_seconds=max_seconds
    )
    solution = posterior.solution
    return {
        "set": name,
        "n": len(data.y),
        "solver": label,
        "ran": type(solution.solver).__name__,
        "result": solution.result.value,
        "residual": float(solution.residual.max()),
        "passes": round(solution.passes, 2),
        "seconds": round(solution.seconds, 1),
        "rmse": round(dg.metrics.rmse(data.y_test, posterior.mean(data.x_test)), 5),
        "max_seconds": max_seconds,
    }


def table(cells: list[dict]) -> str:
    """Markdown: a row for each data set, a column for each solver."""
    labels = list(dict.fromkeys(cell["solver"] for cell in cells))
    rows = ["| data set | " + " | ".join(labels) + " |", "|---|" + "---|" * len(labels)]
    for name in dict.fromkeys(cell["set"] for cell in cells):
        row = {cell["solver"]: cell for cell in cells if cell["set"] == name}
        rows.append(f"| {name} | " + " | ".join(_show(row.get(label)) for label in labels) + " |")
    return "\n".join(rows)


def _show(cell: dict | None) -> str:
    if cell is None:
        return ""
    reached = "" if cell["result"] == "converged" else f" ({cell['result']} at {cell['residual']:.1g})"
    return f"{cell['passes']:.0f} passes, {cell['seconds']:.0f} s, RMSE {cell['rmse']:.4f}{reached}"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sets", default="pol,elevators,bike,protein,keggdirected")
    arguments.add_argument("--solvers", default=None, help="labels, separated by ';'")
    arguments.add_argument("--max-seconds", type=float, default=60.0)
    options = arguments.parse_args()
    cells = load("solvers")
    wanted = options.solvers.split(";") if options.solvers else None
    for name in options.sets.split(","):
        for label, solver in solvers(name).items():
            done = any(cell["set"] == name and cell["solver"] == label for cell in cells)
            if done or (wanted and label not in wanted):
                continue
            cells.append(run(name, label, solver, options.max_seconds))
            save("solvers", cells[-1])
    print(table(cells))


if __name__ == "__main__":
    main()
