"""200 posterior functions and where each is highest: how sure are we of the best place?"""

import jax
import numpy as np

import dualgp as dg


def objective(x: np.ndarray) -> np.ndarray:
    """What is to be maximised, at great cost: 1 at (0.7, 0.3)."""
    return np.exp(-8 * np.sum((x - np.array([0.7, 0.3])) ** 2, axis=1)) + 0.2 * np.sin(9 * x[:, 0])


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(size=(800, 2)).astype(np.float32)
    y = objective(x) + 0.05 * rng.normal(size=800)
    model = dg.GaussianProcess(dg.Matern52(0.3), noise=0.01).learn(x, y, key=jax.random.key(0))
    post = model.condition(x, y, num_samples=200, key=jax.random.key(1))

    found = dg.maximise(post.samples, [(0.0, 1.0), (0.0, 1.0)], key=jax.random.key(2))
    print(f"{len(found.x)} posterior functions, each maximised in the unit square.")
    for name, column in zip(("first", "second"), found.x.T, strict=True):
        low, high = np.quantile(column, [0.05, 0.95])
        print(f"The best {name} input is between {low:.3f} and {high:.3f} with probability 90 %.")
    low, high = np.quantile(found.value, [0.05, 0.95])
    print(f"The maximum is between {low:.3f} and {high:.3f}; at the middle of the places it is truly", end=" ")
    print(f"{objective(np.median(found.x, axis=0)[None])[0]:.3f}.")


if __name__ == "__main__":
    main()
