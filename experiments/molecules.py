"""Table 2: docking scores from fingerprints with a Tanimoto kernel, and further comparisons.

    python experiments/molecules.py                           the benchmark's five targets, if its files are there
    python experiments/molecules.py --data F2-other --splits random,scaffold --model learned --steps 2000
    python experiments/molecules.py --data F2-other --study   which fingerprint is best?
    python experiments/molecules.py --table                   only reads results

`F2-other` are 97,045 molecules with scores for F2 that are *not* the benchmark's, nor is there a split: 80/20 at
random, or by scaffold. R2 is 1 - SSE / SST; explained variance, which forgives a constant error, stands beside it.
`--model paper` has the paper's hyperparameters of the target, `learned` those found from random points given their
neighbours. SDD and SGD solve for the mean only; the paper runs 50,000 steps of 512 molecules. SVGP has 1,000 molecules
at random for inducing points. A cell without `rows` has all training molecules.
"""

import time
from typing import NamedTuple

import jax
import numpy as np

import dualgp as dg
import paper
import svgp
from datasets import docking_f2, docking_f2_counts, dockstring
from dualgp.sklearn.fingerprints import fingerprints
from dualgp.sklearn.scaffolds import random_split, scaffold_split
from results import RESULTS, command_line, in_processes, load

KEYS = ("data", "split", "method", "fingerprint", "model", "rows", "steps")
METHODS = ("default", "SDD", "SGD", "SVGP", "XGBoost", "ridge")
OTHERS = "F2-other"
COUNTS = "1,1024,counts"  # the paper's: radius, size, counts or bits
STUDY = ("1,1024,counts", "1,1024,bits", "2,1024,counts", "2,2048,counts", "2,2048,bits", "3,4096,counts")
NUM_SAMPLES = 16


class Data(NamedTuple):
    """Fingerprints and scores."""

    x: np.ndarray
    y: np.ndarray
    x_test: np.ndarray
    y_test: np.ndarray


def load_data(name: str, split: str, fingerprint: str, rows: int) -> Data:
    """`rows` of the training molecules, and a fourth as many of the test molecules; all for 0."""
    if name == OTHERS:
        molecules = docking_f2()
        train, test = random_split(len(molecules.y)) if split == "random" else _scaffold_split(molecules.smiles)
        smiles, y = np.array(molecules.smiles), molecules.y
    else:
        parts = dockstring(name)
        smiles, y = np.concatenate([part.smiles for part in parts]), np.concatenate([part.y for part in parts])
        train, test = np.split(np.arange(len(y)), [len(parts[0].y)])
    if rows:
        rng = np.random.default_rng(0)
        train, test = rng.permutation(train)[:rows], rng.permutation(test)[: rows // 4]
    chosen = np.concatenate([train, test])
    if name == OTHERS and fingerprint == COUNTS:
        x = docking_f2_counts()[chosen]
    else:
        radius, size, kind = fingerprint.split(",")
        settings = {"radius": int(radius), "size": int(size), "counts": kind == "counts"}
        x, valid = fingerprints(smiles[chosen], **settings, invalid="drop")
        train, test = train[valid[: len(train)]], test[valid[len(train) :]]
    return Data(x[: len(train)], y[train], x[len(train) :], y[test])


def _scaffold_split(smiles: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Found once: it takes a minute."""
    file = RESULTS / "scaffold_split.npz"
    if not file.exists():
        train, test = scaffold_split(smiles)
        np.savez(file, train=train, test=test)
    with np.load(file) as arrays:
        return arrays["train"], arrays["test"]


def make_model(which: str, target: str, data: Data, name: str) -> dg.GaussianProcess:
    """`name`: of the file that keeps what was learned, for the other methods."""
    variance, noise, mean = paper.MOLECULE_MODELS[target.split("-")[0]]
    model = dg.GaussianProcess(dg.Tanimoto(variance), noise, mean)
    if which == "paper":
        return model
    file = RESULTS / f"molecules_{name}.dgp"
    if not file.exists():
        settings = {"key": jax.random.key(1), "method": dg.learning.Neighbours()}
        dg.save(dg.learn(model, data.x, data.y, **settings).model, file)
    return dg.load(file)


def measure(name: str, split: str, method: str, fingerprint: str, which: str, rows: str, steps: str) -> dict:
    data = load_data(name, split, fingerprint, int(rows))
    began = time.perf_counter(), time.process_time()
    line: dict = {"train": len(data.y), "test": len(data.y_test)}
    if method in ("XGBoost", "ridge"):
        mean, std = _baseline(method, data), None
    else:
        model = make_model(which, name, data, f"{name}_{split}_{fingerprint}_{rows}")
        line |= {"variance": _short(model.kernel.variance), "noise": _short(model.noise), "mean": _short(model.mean)}
        line |= {"seconds to learn": round(time.perf_counter() - began[0], 1)}
        began = time.perf_counter(), time.process_time()
        if method == "SVGP":
            mean, std = svgp.predict(model, data, paper.MOLECULE_POINTS)
        else:
            posterior = _condition(method, model, data, int(steps))
            line |= _solution(posterior)
            std = None
            if posterior.num_samples:
                mean, std = posterior.predict(data.x_test, noise=True)
            else:
                mean = posterior.mean(data.x_test)
    line |= {
        "seconds": round(time.perf_counter() - began[0], 1),
        "cpu seconds": round(time.process_time() - began[1], 1),
    }
    return line | _scores(data.y_test.astype(np.float64), mean, std)


def _condition(method: str, model: dg.GaussianProcess, data: Data, steps: int) -> dg.Posterior:
    if method == "default":
        return model.condition(data.x, data.y, num_samples=NUM_SAMPLES, key=jax.random.key(0))
    common = {"batch_size": paper.BATCH_SIZE, "num_steps": steps, "tol": 0.0}
    solver = dg.SDD(**common) if method == "SDD" else dg.SGD(step_size=paper.SGD_STEP[0], **common)
    return model.condition(data.x, data.y, solver=solver, num_samples=0, key=jax.random.key(0))


def _solution(posterior: dg.Posterior) -> dict:
    solution = posterior.solution
    line = {
        "result": solution.result.value,
        "solver": type(solution.solver).__name__,
        "passes": round(solution.passes, 1),
        "solve seconds": round(solution.seconds, 1),
        "residual": _short(solution.residual[0]),
        "worst residual": _short(solution.residual.max()),
    }
    return line | ({"step size": _short(solution.solver.step_size)} if hasattr(solution.solver, "step_size") else {})


def _baseline(method: str, data: Data) -> np.ndarray:
    """Trees and a linear model on the same fingerprints, settings as people start with."""
    if method == "ridge":
        from sklearn.linear_model import Ridge

        return Ridge(alpha=1.0).fit(data.x.astype(np.float32), data.y).predict(data.x_test.astype(np.float32))
    from xgboost import XGBRegressor

    trees = XGBRegressor(
        n_estimators=1000, learning_rate=0.1, max_depth=8, subsample=0.8, colsample_bytree=0.3, n_jobs=2
    )
    return trees.fit(data.x, data.y).predict(data.x_test)


def _scores(y: np.ndarray, mean: np.ndarray, std: np.ndarray | None) -> dict:
    mean = np.asarray(mean, np.float64)
    line = {
        "r2": round(dg.metrics.r2(y, mean), 4),
        "explained variance": round(float(1 - np.var(y - mean) / np.var(y)), 4),
        "rmse": round(dg.metrics.rmse(y, mean), 4),
    }
    if std is not None:
        line |= {"nll": round(dg.metrics.nll(y, mean, std), 4)}
        line |= {f"coverage {p}": round(dg.metrics.coverage(y, mean, std, p / 100), 4) for p in (50, 90, 95)}
    return line


def _short(value) -> float:
    return float(f"{float(value):.4g}")


def table() -> str:
    """Everything that has been run, in Markdown."""
    columns = (
        "train",
        "r2",
        "explained variance",
        "nll",
        "coverage 90",
        "passes",
        "residual",
        "seconds",
        "cpu seconds",
    )
    rows = ["| | " + " | ".join(columns) + " |", "|---|" + "---|" * len(columns)]
    for line in load("molecules"):
        what = [line[key] for key in KEYS if line[key] != "0"]
        published = paper.MOLECULE_R2.get(line["method"], {}).get(line["data"])
        if published is not None:
            what.append(f"*(paper: {published})*")
        rows.append(f"| {' '.join(what)} | " + " | ".join(str(line.get(name, "")) for name in columns) + " |")
    return "\n".join(rows)


def main() -> None:
    options = command_line(
        __doc__,
        KEYS,
        measure,
        limit=7200,
        show={"table": lambda: print(table())},
        data=",".join(paper.MOLECULE_TARGETS),
        splits="random,scaffold",
        methods=";".join(METHODS),
        model="paper",
        rows="0",
        steps=str(paper.MOLECULE_STEPS),
        study=False,
    )
    steps = {"SDD": options.steps, "SGD": str(int(options.steps) // 2)}  # a step of SGD is twice as dear
    cells = [
        (data, split, method, fingerprint, options.model, options.rows, steps.get(method, "0"))
        for data in options.data.split(",")
        for split in (options.splits.split(",") if data == OTHERS else ["cluster"])
        for fingerprint in (STUDY if options.study else [COUNTS])
        for method in (["default"] if options.study else options.methods.split(";"))
    ]
    in_processes("molecules", __file__, cells, KEYS, options.limit)


if __name__ == "__main__":
    main()
