"""200 posterior functions, each maximised by gradient ascent: one batch of parallel Thompson sampling."""

import jax
import jax.numpy as jnp
import numpy as np

import dualgp as dg

NUM, STARTS, STEPS, STEP_SIZE = 200, 64, 60, 0.01


def objective(x: np.ndarray) -> np.ndarray:
    """What is to be maximised, at great cost: 1 at (0.7, 0.3)."""
    return np.exp(-8 * np.sum((x - np.array([0.7, 0.3])) ** 2, axis=1)) + 0.2 * np.sin(9 * x[:, 0])


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(800, 2)).astype(np.float32)
    y = objective(x) + 0.05 * rng.normal(size=800)

    model = dg.GaussianProcess(dg.Matern52(0.3), noise=0.01).learn(x, y, key=jax.random.key(0))
    post = model.condition(x, y, num_samples=NUM, key=jax.random.key(1))
    f = post.samples

    # Each function starts from the best of a few random points; then all climb together.
    tries = rng.uniform(size=(STARTS, 2)).astype(np.float32)
    points = jnp.asarray(tries[f(tries).argmax(axis=1)])  # (NUM, 2)

    def own_values(points: jax.Array) -> jax.Array:
        """Function i at point i."""
        return jnp.diagonal(f(points))

    climb = jax.jit(jax.grad(lambda points: own_values(points).sum()))
    before = np.diagonal(f(points))
    for _ in range(STEPS):
        points = jnp.clip(points + STEP_SIZE * climb(points), 0.0, 1.0)
    after = np.diagonal(f(np.asarray(points)))

    print(f"The functions' values at their points rose from {before.mean():.3f} to {after.mean():.3f} on average.")
    print(f"Where to look next: around {np.mean(points, axis=0).round(2)}, spread {np.std(points, axis=0).round(3)}.")
    there = objective(np.asarray(points))
    print(f"The objective there: {there.mean():.3f}; at the data at most {objective(x).max():.3f}.")


if __name__ == "__main__":
    main()
