"""Entries of a Tanimoto kernel matrix a second: ours against the ways to write it, and RDKit's bulk similarity.

    python benchmarks/tanimoto.py [--rows 512] [--columns 8192] [--one-core]

Counts of real molecules (1,024 columns, radius 1) where the data are there, else random ones as sparse. Ours is the
operator's product with a vector, as solvers ask for it; the others are the block alone. Processor seconds stand beside
wall-clock ones, because other work may share the cores: RDKit uses one core, the others what they find.

- thermometer, 1 level: the product of [x >= 1] and [y >= 1] as float32 matrices. Counts take 2.9 times as many columns.
- popcount, 1 level: ones of packed words in common, as many as there are levels.
- broadcast: minimum and maximum of rows x columns x 1,024 numbers, in parts of 16 rows.
"""

import argparse
import os
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import dualgp as dg
from dualgp.operators.tiles import tiled_product
from record import docking_f2_counts, save

REPEATS = 5


def counts(num: int) -> np.ndarray:
    try:
        x = docking_f2_counts()
    except FileNotFoundError:
        rng = np.random.default_rng(0)
        return (rng.geometric(0.6, (num, 1024)) * (rng.random((num, 1024)) < 0.032)).astype(np.uint8)
    return x[np.random.default_rng(0).permutation(len(x))[:num]]


def broadcast(x, y):
    part = lambda rows: jnp.sum(jnp.minimum(rows[:, None], y), 2) / jnp.sum(jnp.maximum(rows[:, None], y), 2)  # noqa: E731
    return jax.lax.map(part, x.reshape(-1, 16, x.shape[1])).reshape(x.shape[0], -1)


def ways(x: np.ndarray, y: np.ndarray) -> dict:
    """Functions that compute as many entries as they say."""
    operator = dg.KernelOperator(dg.Tanimoto(), y, 0.1, memory=0)
    rows = eqx.filter_jit(lambda operator, x, v: tiled_product(operator.kernel, x, operator.x, v))
    v = jnp.ones((len(y), 1), jnp.float32)
    bits = [jnp.asarray(np.packbits(a > 0, axis=1).view(np.uint32)) for a in (x, y)]
    floats = [jnp.asarray(a, jnp.float32) for a in (x, y)]
    ones = [jnp.asarray(a > 0, jnp.float32) for a in (x, y)]
    product, in_pairs = jax.jit(lambda x, y: x @ y.T), jax.jit(broadcast)
    common = jax.jit(lambda x, y: jnp.sum(jax.lax.population_count(x[:, None] & y), axis=2))
    x_bytes = jnp.asarray(x)
    few = len(y) // 16
    found = {
        "ours": (lambda: rows(operator, x_bytes, v), x.shape[0] * y.shape[0]),
        "thermometer, 1 level": (lambda: product(*ones), x.shape[0] * y.shape[0]),
        "popcount, 1 level": (lambda: common(*bits), x.shape[0] * y.shape[0]),
        "broadcast": (lambda: in_pairs(floats[0][:64], floats[1][:few]), 64 * few),
    }
    try:
        from rdkit import DataStructs
    except ImportError:
        return found
    vectors = [[_vector(row) for row in part] for part in (x[:16], y)]
    bulk = lambda: [DataStructs.BulkTanimotoSimilarity(row, vectors[1]) for row in vectors[0]]  # noqa: E731
    bits_of = [
        [DataStructs.CreateFromBitString("".join(map(str, row))) for row in 1 * (part > 0)] for part in (x[:64], y)
    ]
    bulk_bits = lambda: [DataStructs.BulkTanimotoSimilarity(row, bits_of[1]) for row in bits_of[0]]  # noqa: E731
    return found | {"RDKit, counts": (bulk, 16 * len(y)), "RDKit, bits": (bulk_bits, 64 * len(y))}


def _vector(row: np.ndarray):
    from rdkit import DataStructs

    vector = DataStructs.UIntSparseIntVect(len(row))
    for column in np.flatnonzero(row):
        vector[int(column)] = int(row[column])
    return vector


def measure(rows: int, columns: int) -> dict:
    x = counts(rows + columns)
    todo = ways(x[:rows], x[rows:])
    spent: dict[str, list] = {name: [] for name in todo}
    for repeat in range(REPEATS + 1):  # in turns; the first compiles
        for name, (function, entries) in todo.items():
            began = time.perf_counter(), time.process_time()
            jax.block_until_ready(function())
            ended = time.perf_counter(), time.process_time()
            if repeat:
                spent[name].append([(end - begin) / entries * 1e9 for begin, end in zip(began, ended, strict=True)])
    middle = {name: np.median(times, axis=0) for name, times in spent.items()}
    wall, cpu = ({name: round(float(v[i]), 2) for name, v in middle.items()} for i in (0, 1))
    ratios = {name: round(cpu[name] / cpu["ours"], 1) for name in todo if name != "ours"}
    return {"rows": rows, "columns": columns, "ns an entry": wall, "cpu ns an entry": cpu, "cpu, theirs / ours": ratios}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rows", type=int, default=512)
    arguments.add_argument("--columns", type=int, default=8192)
    arguments.add_argument("--one-core", action="store_true")
    options = arguments.parse_args()
    if options.one_core:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    save("tanimoto", measure(options.rows, options.columns))


if __name__ == "__main__":
    main()
