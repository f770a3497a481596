"""Every solver on the same equations: passes over the kernel matrix, seconds, residual, distance to the exact ones."""

import jax
import numpy as np

import dualgp as dg

SOLVERS = {
    "Cholesky": dg.Cholesky(),
    "BlockDescent": dg.BlockDescent(tol=1e-3),
    "CG, rank 100": dg.CG(tol=1e-3, preconditioner=dg.PivotedCholesky(rank=100)),
    "SDD, automatic": dg.SDD(tol=1e-3),
    "SDD, 2,000 steps of 5": dg.SDD(step_size=5.0, batch_size=256, num_steps=2000, tol=0.0),
}


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3000, 4)).astype(np.float32)
    y = np.sin(x[:, 0]) + 0.3 * x[:, 1] * x[:, 2] + 0.3 * rng.normal(size=3000)
    operator = dg.KernelOperator(dg.Matern32(1.5), x, noise=0.09)
    exact = dg.solve(operator, y, dg.Cholesky()).weights
    print(f"{'':24}{'passes':>8}{'seconds':>9}{'residual':>10}{'error':>9}  how it ended")
    for name, solver in SOLVERS.items():
        solution = dg.solve(operator, y, solver, key=jax.random.key(0), max_seconds=30)
        error = np.linalg.norm(solution.weights - exact) / np.linalg.norm(exact)
        numbers = f"{solution.passes:8.1f}{solution.seconds:9.2f}{solution.residual.max():10.1e}{error:9.1e}"
        print(f"{name:24}{numbers}  {solution.result.value}")


if __name__ == "__main__":
    main()
