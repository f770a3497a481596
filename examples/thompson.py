"""Thompson sampling twice: a 6-dimensional test function, and a warehouse whose costs are noisy. Draws thompson.png."""

import jax
import matplotlib.pyplot as plt
import numpy as np

import dualgp as dg

A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)
P = [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991]]
P = 1e-4 * np.array([*P, [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]])


def hartmann(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The negative of Hartmann's function of six inputs: its minimum is -3.32."""
    return -np.exp(-np.sum(A * (x[:, None] - P) ** 2, axis=2)) @ np.array([1.0, 1.2, 3.0, 3.2])


def warehouse(x: np.ndarray, rng: np.random.Generator, days: int = 200) -> np.ndarray:
    """Mean daily cost of ordering up to a level whenever stock and orders fall below a point; 3 days of delivery."""
    point, level = x[:, 0], x[:, 0] + x[:, 1]
    stock, on_the_way, cost = level.copy(), np.zeros((3, len(x))), np.zeros(len(x))
    for demand in rng.poisson(10.0, (days, len(x))):
        stock += on_the_way[0]
        cost += 0.1 * np.maximum(stock, 0) + 2.0 * np.maximum(demand - np.maximum(stock, 0), 0)
        stock = np.maximum(stock - demand, 0)
        order = np.where(stock + on_the_way[1:].sum(axis=0) < point, level - stock - on_the_way[1:].sum(axis=0), 0)
        on_the_way, cost = np.stack([*on_the_way[1:], order]), cost + 15.0 * (order > 0)
    return cost / days


PROBLEMS = {"Hartmann, 6 inputs": (hartmann, [(0, 1)] * 6), "warehouse, noisy": (warehouse, [(0, 150), (1, 200)])}


def main() -> None:
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
    for panel, (name, (function, box)) in zip(panels, PROBLEMS.items(), strict=True):
        rng = np.random.default_rng(0)
        sampler = dg.ThompsonSampler(box, maximise=False, key=jax.random.key(0))
        for _ in range(6):
            x = sampler.ask(20)
            sampler.tell(x, function(x, rng))
        random = function(rng.uniform(*np.array(box).T, (120, len(box))), rng)
        panel.plot(np.minimum.accumulate(random), color="0.6", label="random points")
        panel.plot(np.minimum.accumulate(sampler.state.y), color="#4477aa", label="Thompson sampling")
        panel.set(title=name, xlabel="evaluations", ylabel="lowest so far")
        best = sampler.recommend()
        print(f"{name}: {best.y:.3f} at {np.round(best.x, 2)}; the best of 120 random points is {random.min():.3f}.")
    panels[0].legend(frameon=False)
    figure.savefig("thompson.png", dpi=130)
    print("Picture: thompson.png")


if __name__ == "__main__":
    main()
