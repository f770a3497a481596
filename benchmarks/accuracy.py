"""Test error on real data (split 0, published hyperparameters): the exact GP, SDD as in the paper, and the default.

DUALGP_DATA=... python benchmarks/accuracy.py [--sets pol,elevators,bike] [--methods exact,sdd,default]
"""

import argparse

import jax

import dualgp as dg
from record import load_uci, published_model

METHODS = {
    "exact": dg.Cholesky(),
    "sdd": dg.SDD(step_size=50.0, batch_size=512, num_steps=20_000),
    "default": "auto",
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--sets", default="pol,elevators,bike")
    arguments.add_argument("--methods", default="exact,default")
    options = arguments.parse_args()
    for name in options.sets.split(","):
        data, model = load_uci(name), published_model(name)
        for method in options.methods.split(","):
            post = model.condition(data.x, data.y, solver=METHODS[method], num_samples=64, key=jax.random.key(0))
            mean, std = post.predict(data.x_test, noise=True)
            rmse, nll = dg.metrics.rmse(data.y_test, mean), dg.metrics.nll(data.y_test, mean, std)
            cost = f"{post.solution.passes:.1f} passes, {post.solution.seconds:.0f} s"
            print(f"{name:10} {method:8} RMSE {rmse:.4f}  NLL {nll:+.3f}  {cost}  {post.solution.message}", flush=True)


if __name__ == "__main__":
    main()
