"""Blocks of a likelihood: small neighbourhoods of rows, each with the rows that it is conditioned on.

The rows are cut into neighbourhoods by halving. In random order, each is given the nearest of the rows that come before
it (Vecchia's likelihood): the blocks are the factors of a joint density. Or each is given the nearest of all other
rows, as in a prediction (a composite likelihood). That is less efficient for a correct model, but it fits a wrong model
to the distances of predictions, and not to the larger distances of the first rows in an order.
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
QUERIES_AT_ONCE = 4096  # queries of a tree between two checks of the clock
EACH = 24  # nearest rows of every row of a block, of which it is given the nearest that are not its own
GROUPS = 16  # groups of blocks in an order: each is given rows of the groups before
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
        """The number of rows whose likelihood this is."""
        return int(self.mask[:, -self.own :].sum())


class Shape(NamedTuple):
    """How many rows a block has of its own and how many it is given: of those before it in an order, or of all."""

    own: int
    near: int
    is_ordered: bool = True


@in_wide
def find_blocks(
    problem: Problem, vector: Vector, rows: Int[np.ndarray, " rows"], num: int, shape: Shape, key: RandomKey
) -> list[Blocks]:
    """`num` random blocks of `rows`, or all of them, in batches of equal shape."""
    rng, coordinates = generator(key), _coordinates(problem, vector, rows)
    cells = cut(coordinates, shape.own, num, rng, problem.check_time)
    if not shape.is_ordered:
        given = find_given(coordinates, cells, shape.near, len(rows), problem.check_time)
        return _in_batches(problem, rows, cells, given, shape)
    order, groups = _in_turn(cells, len(rows), rng)
    coordinates, rows = coordinates[order], rows[order]
    given = []
    for group, known in groups:
        given += find_given(coordinates, group, shape.near, known, problem.check_time)
    return _in_batches(problem, rows, [cell for group, _ in groups for cell in group], given, shape)


def _in_turn(
    cells: list[np.ndarray], n: int, rng: np.random.Generator
) -> tuple[Int[np.ndarray, " n"], list[tuple[list[np.ndarray], int]]]:
    """A random order of the rows in which a block's are in one of GROUPS groups; blocks and rows before, of each."""
    num = min(GROUPS, len(cells))
    turn, turns = rng.integers(num, size=n), np.arange(len(cells)) % num
    cells = [cells[i] for i in rng.permutation(len(cells))]
    for cell, its in zip(cells, turns, strict=True):
        turn[cell] = its
    order = np.argsort(turn, kind="stable")
    place = np.empty_like(order)
    place[order] = np.arange(n)
    before = np.searchsorted(turn[order], np.arange(num))
    return order, [([place[cell] for cell in cells[i::num]], int(before[i])) for i in range(num)]


@in_wide
def find_predictions(
    problem: Problem, vector: Vector, rows: Int[np.ndarray, " rows"], chosen: Int[np.ndarray, " chosen"], num: int
) -> list[Blocks]:
    """Each of the `chosen` rows by itself, given the `num` nearest of `rows`: what a prediction would look at."""
    coordinates = _coordinates(problem, vector, np.concatenate([rows, chosen]))
    cells = list(len(rows) + np.arange(len(chosen))[:, None])
    given = find_given(coordinates, cells, num, len(rows), problem.check_time)
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
    num: int,
    known: int,
    check_time: Callable[[], Any] = lambda: None,
) -> list[Int[np.ndarray, " _"]]:
    """For each cell `num` of the first `known` rows, its own not among them: the nearest of every row of the cell.

    In many dimensions the rows nearest to the middle of a cell are near to none of its rows. Where all that are near to
    its rows are its own, those around its middle follow.
    """
    if known == 0 or not cells:
        return [np.zeros(0, int)] * len(cells)
    sizes, others = [len(cell) for cell in cells], coordinates[:known]
    search = _search_by_tree if known * sum(sizes) >= TREE_FROM else _search_all
    middles = np.stack([coordinates[cell].mean(axis=0) for cell in cells])
    near = search(others, coordinates[np.concatenate(cells)], min(EACH, known), check_time)
    around = search(others, middles, min(num + max(sizes), known), check_time)
    given = []
    for cell, its, ring in zip(cells, np.split(near, np.cumsum(sizes)[:-1]), around, strict=True):
        ranked = np.concatenate([its.ravel(order="F"), ring])
        ranked = ranked[~np.isin(ranked, cell)]
        given.append(ranked[np.sort(np.unique(ranked, return_index=True)[1])][:num])
    return given


def _search_all(coordinates: Any, queries: Any, num: int, check_time: Callable[[], Any]) -> Int[np.ndarray, "m num"]:
    """The nearest rows in order of distance, by comparing all rows, some queries at a time."""
    norms, near = np.einsum("ij,ij->i", coordinates, coordinates), np.empty((len(queries), num), int)
    at_once = max(1, SEARCH_ENTRIES // len(norms))
    for start in range(0, len(queries), at_once):
        check_time()
        some = slice(start, start + at_once)
        squared = norms - 2.0 * queries[some] @ coordinates.T
        places = np.argpartition(squared, num - 1, axis=1)[:, :num]
        order = np.argsort(np.take_along_axis(squared, places, axis=1), axis=1)
        near[some] = np.take_along_axis(places, order, axis=1)
    return near


def _search_by_tree(
    coordinates: Any, queries: Any, num: int, check_time: Callable[[], Any]
) -> Int[np.ndarray, "m num"]:
    """The nearest rows by a k-d tree."""
    check_time()
    tree = cKDTree(coordinates, balanced_tree=False, compact_nodes=False)
    near = np.empty((len(queries), num), int)
    for start in range(0, len(queries), QUERIES_AT_ONCE):
        check_time()
        some = slice(start, start + QUERIES_AT_ONCE)
        near[some] = tree.query(queries[some], np.arange(1, num + 1), workers=-1)[1]
    return near
