"""The largest stable step size: predicted from a probe of the matrix, and found by trying. B = 512, momentum 0.9.

    python experiments/step_sizes.py [--sets pol,elevators,bike,protein,keggdirected,precip] [--steps 400]

Steps grow by a quarter from 0.4 of the prediction until a run of so many steps diverges. Published hyperparameters on
the UCI sets, learned ones on the others.
"""

import argparse

import jax

import dualgp as dg
import paper
from datasets import load_large, load_uci, published_model
from dualgp._arrays import wide
from dualgp.solvers.sdd import stable_step_size
from dualgp.solvers.spectrum import estimate_spectrum
from large_sets import learned
from results import load, save

GROWTH = 1.25


def measure(name: str, steps: int) -> dict:
    if name in paper.SETS:
        data, model = load_uci(name), published_model(name)
    else:
        data = load_large(name)
        model, _ = learned(data)
    operator = dg.KernelOperator(model.kernel, data.x, model.noise)
    with wide():
        spectrum = estimate_spectrum(operator, jax.random.key(0))
    predicted = stable_step_size(spectrum, paper.BATCH_SIZE, paper.MOMENTUM)
    size, largest = 0.4 * predicted, 0.0
    while size < 20 * predicted:
        solver = dg.SDD(step_size=size, batch_size=paper.BATCH_SIZE, num_steps=steps, tol=0.0)
        if dg.solve(operator, data.y, solver, key=jax.random.key(1)).result is dg.Result.DIVERGED:
            break
        largest, size = size, GROWTH * size
    used = paper.SDD_STEPS.get(name, paper.SDD_STEP)[0]
    return {
        "set": name,
        "predicted": round(predicted, 2),
        "largest stable": round(largest, 2),
        "smallest diverging": round(size, 2),
        "paper uses": used,
        "steps": steps,
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--sets", default=",".join(paper.SETS))
    arguments.add_argument("--steps", type=int, default=400)
    options = arguments.parse_args()
    done = {(line["set"], line["steps"]) for line in load("step_sizes")}
    for name in options.sets.split(","):
        if (name, options.steps) not in done:
            save("step_sizes", measure(name, options.steps))


if __name__ == "__main__":
    main()
