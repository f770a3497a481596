"""Blocks of Vecchia's likelihood: small neighbourhoods of rows, each with the rows that it is conditioned on.

The rows are cut into neighbourhoods by halving, in a random order of neighbourhoods. Each is given the nearest of the
rows that come before it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from scipy.spatial import cKDTree

from dualgp._arrays import in_wide
from dualgp._random import generator
from dualgp._types import RandomKey
from dualgp.learning.parameters import Vector
from dualgp.learning.problem import Problem
from dualgp.learning.rows import RowNoise

# Rows cubed of blocks evaluated at once, 16 with 192 rows: some 12 ms. The clock is looked at in between.
BLOCK_OPERATIONS = 16 * 192**3
MOST_AT_ONCE = 64
SEARCH_ENTRIES = 1 << 22  # distances at once: 16 MB
QUERIES_AT_ONCE = 4096  # of a tree, between two looks at the clock
EACH = 8  # nearest rows of every row of a block, of which it is given the nearest
# Blocks times rows from which a k-d tree is quicker than looking at all rows: 512 blocks of 1.8 million rows with 11
# inputs take 3 s by it.
TREE_FROM = 1 << 27


class Blocks(NamedTuple):
    """Some blocks of equal shape: first the rows that are given, then the block's own. `mask` says which are there."""

    x: Float[np.ndarray, "blocks m d"] | UInt8[np.ndarray, "blocks m d"]
    y: Float[np.ndarray, "blocks m k"]
    mask: Bool[np.ndarray, "blocks m"]
    own: int  # rows of a block of its own
    terms: RowNoise | None = None

    @property
    def num_rows(self) -> int:
        """The rows that it is the likelihood of."""
        return int(self.mask[:, -self.own :].sum())


class Shape(NamedTuple):
    """How many rows a block has of its own, and how many it is given."""

    own: int
    near: int


@in_wide
def find_blocks(
    problem: Problem, vector: Vector, rows: Int[np.ndarray, " rows"], num: int, shape: Shape, key: RandomKey
) -> list[Blocks]:
    """`num` random blocks of a random order of `rows`, or all of them, in batches of equal shape."""
    rng = generator(key)
    rows = rows[rng.permutation(len(rows))]
    coordinates = _coordinates(problem, vector, rows)
    cells = cut(coordinates, shape.own, num, rng, problem.check_time)
    turn, turns = rng.random(len(rows)), rng.permutation(len(cells)) / len(cells)
    for cell, its in zip(cells, turns, strict=True):  # where all rows have a block, each comes before later blocks only
        turn[cell] = its
    given = find_given(coordinates, cells, turn, turns, shape.near, problem.check_time)
    return _in_batches(problem, rows, cells, given, shape)


@in_wide
def find_predictions(
    problem: Problem, vector: Vector, rows: Int[np.ndarray, " rows"], chosen: Int[np.ndarray, " chosen"], num: int
) -> list[Blocks]:
    """Each of the `chosen` rows by itself, given the `num` nearest of `rows`: what a prediction would look at."""
    coordinates = _coordinates(problem, vector, np.concatenate([rows, chosen]))
    cells = list(len(rows) + np.arange(len(chosen))[:, None])
    turn = np.concatenate([np.zeros(len(rows)), np.ones(len(chosen))])
    given = find_given(coordinates, cells, turn, np.ones(len(chosen)), num, problem.check_time)
    return _in_batches(problem, np.concatenate([rows, chosen]), cells, given, Shape(1, num))


def _coordinates(problem: Problem, vector: Vector, rows: Int[np.ndarray, " rows"]) -> Float[np.ndarray, "rows c"]:
    found = np.asarray(problem.parameters.model(vector).kernel.coordinates(problem.x[rows]), np.float32)
    return found - found.mean(axis=0)


def _in_batches(
    problem: Problem, rows: np.ndarray, cells: list[np.ndarray], given: list[np.ndarray], shape: Shape
) -> list[Blocks]:
    length = shape.near + shape.own
    at_once = max(1, min(MOST_AT_ONCE, BLOCK_OPERATIONS // length**3))
    index = np.full((-(-len(cells) // at_once) * at_once, length), -1)
    for place, cell, before in zip(index, cells, given, strict=False):
        place[: len(before)], place[len(place) - len(cell) :] = before, cell
    parts = np.split(index, max(1, len(index) // at_once))
    return [_take(problem, rows, part, shape.own) for part in parts]


def _take(problem: Problem, rows: np.ndarray, index: np.ndarray, own: int) -> Blocks:
    mask, chosen = index >= 0, rows[np.maximum(index, 0)]
    terms = None if problem.terms is None else problem.terms.take(chosen, mask)
    return Blocks(problem.x[chosen], problem.y[chosen], mask, own, terms)


def cut(
    coordinates: Float[np.ndarray, "n c"],
    size: int,
    num: int,
    rng: np.random.Generator,
    check_time: Callable[[], Any] = lambda: None,
) -> list[Int[np.ndarray, " _"]]:
    """`num` random ones of the neighbourhoods of at most `size` rows that halving makes, or all of them.

    A cell is halved across its longest side. Where few are wanted, only the cells that they lie in are cut further.
    """
    wanted, cells = [(np.arange(len(coordinates)), num)], list[np.ndarray]()
    while wanted:
        check_time()
        cell, count = wanted.pop()
        if len(cell) <= size:
            cells.append(cell)
            continue
        leaves = -(-len(cell) // size)
        half = -(-leaves // 2)
        inside = coordinates[cell]
        side = inside[:, np.argmax(np.ptp(inside, axis=0))]
        place = len(cell) * half // leaves
        order = np.argpartition(side, place)
        left = half if count >= leaves else int(rng.hypergeometric(half, leaves - half, count))
        right = leaves - half if count >= leaves else count - left
        wanted += [(cell[part], c) for part, c in ((order[:place], left), (order[place:], right)) if c > 0]
    return cells


def find_given(
    coordinates: Float[np.ndarray, "n c"],
    cells: list[Int[np.ndarray, " _"]],
    turn: Float[np.ndarray, " n"],
    turns: Float[np.ndarray, " cells"],
    num: int,
    check_time: Callable[[], Any] = lambda: None,
) -> list[Int[np.ndarray, " _"]]:
    """For each cell `num` of the rows whose turn comes before its own: the nearest of every row of the cell.

    In many dimensions the rows nearest to the middle of a cell are near to none of its rows.
    """
    given: list[Any] = [None] * len(cells)
    # Of 2^-level of the rows at least half come before a cell that looks at this level.
    levels = np.floor(-np.log2(np.maximum(turns, 0.5 / len(turn)))).astype(int)
    for level in np.unique(levels):
        early = np.flatnonzero(turn < 2.0**-level)
        some = np.flatnonzero(levels == level)
        sizes = [len(cells[place]) for place in some]
        queries, its = coordinates[np.concatenate([cells[place] for place in some])], np.repeat(turns[some], sizes)
        each = max(-(-num // max(min(sizes), 1)), min(num, EACH))
        search = _search_by_tree if len(early) * len(queries) >= TREE_FROM else _search_all
        near = search(coordinates[early], turn[early], queries, its, each, check_time)
        for place, found in zip(some, np.split(near, np.cumsum(sizes)[:-1]), strict=True):
            ranked = found.ravel(order="F")
            ranked = early[ranked[ranked >= 0]]
            nearest = ranked[np.sort(np.unique(ranked, return_index=True)[1])][:num]
            given[place] = _filled(nearest, coordinates, cells[place], early[turn[early] < turns[place]], num)
    return given


def _filled(
    nearest: np.ndarray, coordinates: np.ndarray, cell: np.ndarray, before: np.ndarray, num: int
) -> Int[np.ndarray, " given"]:
    """These and, where they are fewer than `num`, the nearest to the middle of the cell of the other rows before it."""
    lacking = min(num, len(before)) - len(nearest)
    if lacking <= 0:
        return nearest
    others = np.setdiff1d(before, nearest)
    squared = np.sum((coordinates[others] - coordinates[cell].mean(axis=0)) ** 2, axis=1)
    return np.concatenate([nearest, others[np.argsort(squared)[:lacking]]])


def _search_all(
    coordinates: Any, turn: Any, queries: Any, turns: Any, num: int, check_time: Callable[[], Any]
) -> Int[np.ndarray, "queries num"]:
    """By looking at all rows, some queries at a time; -1 where there are fewer."""
    norms, near = np.einsum("ij,ij->i", coordinates, coordinates), np.full((len(queries), num), -1)
    at_once, count = max(1, SEARCH_ENTRIES // max(len(norms), 1)), min(num, len(norms))
    for start in range(0, len(queries), at_once):
        check_time()
        some = slice(start, start + at_once)
        squared = norms - 2.0 * queries[some] @ coordinates.T
        squared[turn >= turns[some, None]] = np.inf
        places = np.argpartition(squared, count - 1, axis=1)[:, :count] if count else np.zeros((len(squared), 0), int)
        distances = np.take_along_axis(squared, places, axis=1)
        order = np.argsort(distances, axis=1)
        places, distances = (np.take_along_axis(array, order, axis=1) for array in (places, distances))
        near[some, :count] = np.where(np.isfinite(distances), places, -1)
    return near


def _search_by_tree(
    coordinates: Any, turn: Any, queries: Any, turns: Any, num: int, check_time: Callable[[], Any]
) -> Int[np.ndarray, "queries num"]:
    """By a k-d tree of the rows, of which at least half come before: three times as many are looked at."""
    check_time()
    tree = cKDTree(coordinates, balanced_tree=False, compact_nodes=False)
    check_time()
    counts, found = np.arange(1, min(3 * num, len(turn)) + 1), np.empty((len(queries), min(3 * num, len(turn))), int)
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        check_time()
        some = slice(start, start + QUERIES_AT_ONCE)
        found[some] = tree.query(queries[some], counts, workers=-1)[1]
    comes_after = turn[found] >= turns[:, None]
    order = np.argsort(comes_after, axis=1, kind="stable")
    found = np.where(np.take_along_axis(comes_after, order, axis=1), -1, np.take_along_axis(found, order, axis=1))
    return np.pad(found[:, :num], ((0, 0), (0, max(0, num - found.shape[1]))), constant_values=-1)
