"""One process of a test with many devices or many processes: what it is told by a JSON file, results into another.

python distributed_worker.py folder rank size port [host]
"""

import json
import sys
from pathlib import Path

import numpy as np


def work(folder: Path, rank: int, size: int, port: int, host: str = "127.0.0.1") -> None:
    from dualgp import distributed

    if size > 0:
        distributed.initialize(f"{host}:{port}", rank, size, wait=60)
    import jax

    import dualgp as dg
    from dualgp import budget
    from dualgp.operators import policy
    from dualgp.solvers import iterate

    job = json.loads((folder / "job.json").read_text())
    iterate.CHECKPOINT_SECONDS = iterate.CHUNK_ENTRIES = 0.0  # a checkpoint after every step
    budget.FEWEST_ROWS = 50
    with distributed.together():
        x, y, x_new = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("x", "y", "x_new"))
        results = {}
        for name, case in job["cases"].items():
            kernel, rows, rows_new = dg.Matern32(0.8), x, np.asarray(x_new)
            if "counts" in case:
                kernel = dg.Tanimoto(0.8)
                rows, rows_new = (np.floor(3.0 * np.abs(array)).astype(np.uint8) for array in (x, x_new))
            model = dg.GaussianProcess(kernel, noise=0.05, mean=0.2)
            settings = {key: case[key] for key in ("dtype", "max_passes", "max_seconds") if key in case}
            policy.REPLICATED_BYTES = case.get("replicated_bytes", 1 << 30)
            policy.SUBSET_FROM = case.get("subset_from", 100_000)
            if "checkpoint" in case:
                settings["checkpoint"] = folder / case["checkpoint"]
            (folder / f"{name}-{rank}").touch()
            posterior = model.condition(
                rows,
                y,
                mesh=case["mesh"],
                num_samples=3,
                num_features=64,
                key=jax.random.key(0),
                memory=case.get("memory", 0),
                solver=getattr(dg, case["solver"])(**case.get("settings", {})),
                **settings,
            )
            mean, std = posterior.predict(rows_new)
            results |= {
                f"{name}.mean": mean,
                f"{name}.std": std,
                f"{name}.samples": posterior.samples(rows_new),
                f"{name}.residual": posterior.solution.residual,
                f"{name}.weights": np.asarray(posterior.gathered().weights),
                f"{name}.steps": posterior.solution.steps,
            }
            dg.save(posterior, folder / f"{name}.dgp")
        if rank == 0:
            np.savez(folder / f"results-{job['name']}.npz", **results)
        if size > 0:
            distributed.finish()


if __name__ == "__main__":
    work(Path(sys.argv[1]), *map(int, sys.argv[2:5]), *sys.argv[5:])
