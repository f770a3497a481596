"""Learning from blocks of rows given their neighbours: Vecchia's likelihood, all of it or a sample.

In any order of the data, log p(y) = sum_b log p(y_b | y of all before), for small neighbourhoods b of rows. Vecchia
(1988) replaces the rows before by the nearest of them. A random sample of the terms of a random order estimates the
sum: it has coarse and fine scales, and the noise, in the same proportions as the likelihood of all rows.

Predictions of rows kept aside, each from its nearest rows, decide between kernels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from dualgp._random import generator, subkey
from dualgp._threads import one_blas_thread
from dualgp._types import RandomKey
from dualgp.learning.blocks import Blocks, Shape, find_blocks, find_predictions
from dualgp.learning.candidates import Choice, pick
from dualgp.learning.conditional import likelihood, likelihood_and_gradient
from dualgp.learning.likelihood import NotDefinite
from dualgp.learning.method import Method, Outcome, Stage
from dualgp.learning.optimise import Search, compile_together
from dualgp.learning.parameters import Vector
from dualgp.learning.problem import Problem
from dualgp.operators.policy import MOST_DEVIATIONS

Rows = Int[np.ndarray, " _"]

STAGE = "neighbours"
FIRST_BLOCKS, START_STEPS = 24, 15  # for the choice between starts
KERNEL_BLOCKS, KERNEL_STEPS = 96, 15  # for the choice between kernels, and between earlier rows and all others
GROWTH = 4  # the ratio of the numbers of blocks of two rounds
MOST_WHOLE_ROUNDS = 2  # rounds with all blocks: the second cuts them by the lengthscales of the first
SHORT = 16.0  # the second start has lengthscales shorter by this factor
ASIDE, ASIDE_SHARE = 2048, 8  # rows kept aside: at most so many, and at most one in eight
PREDICTED_FROM = 128  # rows
# A sample of m rows costs about p / (2 m) nats a row with p parameters: then 5e-4. Where p is 34 and m 2,048, far more.
ROWS_PER_PARAMETER = 1000
ORDER_MARGIN = 0.01  # nats a row: on precip 0.08, on elevators and pol less than nothing (benchmarks/candidates.py)
OFF_SCALE = 1.0  # nats a row: a start on a wrong scale is worse by more than that


@dataclass(frozen=True)
class Neighbours(Method):
    """Maximise the likelihood of blocks of rows, each given the nearest of those before it, or of all others.

    **Arguments:**

    - `size`, `num_near`: rows of a block, and the nearest rows that it is given. A step costs about
      n (size + num_near)^3 / size.
    - `num_blocks`: at most. Each round takes four times as many as the one before, cut anew by the lengthscales so far,
      until a round gains less than `gain` nats a row or has 1,000 rows for each parameter; if need be all rows.
    - `num_steps`: at most, in each round.
    """

    size: int = 64
    num_near: int = 128
    num_blocks: int = 1024
    num_steps: int = 25
    gain: float = 2e-3

    def run(self, problem: Problem, key: RandomKey) -> Outcome:
        best = Best(problem, problem.parameters.start)
        with one_blas_thread(self.size), Stage() as stage:
            rows = generator(subkey(key, "aside")).permutation(problem.n)
            aside, others = np.split(rows, [min(ASIDE, len(rows) // ASIDE_SHARE)])
            self._choose_start(best, others, subkey(key, "starts"))
            shape = self._choose_order(best, others, aside, subkey(key, "order"))
            self._choose_kernel(best, others, aside, shape, subkey(key, "kernels"))
            self._grow(best, rows, shape, key)
        return Outcome(best.problem, best.vector, stage.ending, choice=best.choice)

    @property
    def _shape(self) -> Shape:
        return Shape(self.size, self.num_near)

    def _choose_start(self, best: Best, rows: Rows, key: RandomKey) -> None:
        """Start with long or with short lengthscales: a likelihood may have an optimum near either."""
        problem, short = best.problem, best.problem.typical.copy()
        short[problem.parameters.is_lengthscale] -= math.log(SHORT)
        # Proportional lengthscales have the same neighbours.
        blocks = find_blocks(problem, problem.typical, rows, FIRST_BLOCKS, self._shape, key)
        search = Search(problem.part(0.0, 0.05), likelihood_and_gradient, blocks, best.vector)
        best.climb(search, nearer_the_data(search), START_STEPS)
        if np.array_equal(short, problem.typical):
            return
        other = Search(problem.part(0.05, 0.1), likelihood_and_gradient, blocks, short)
        other.climb(np.clip(short, *problem.bounds.T), STAGE, START_STEPS)
        if other.value > search.value:
            best.vector = other.best

    def _choose_kernel(self, best: Best, rows: Rows, aside: Rows, shape: Shape, key: RandomKey) -> None:
        """Every kernel climbs from the same place on the same blocks, and predicts the same rows kept aside."""
        problem, a_while = best.problem, best.problem.deadline.elapsed  # the time of compilation and two starts
        if problem.rivals is None:
            return
        num = min(KERNEL_BLOCKS, self.num_blocks)
        blocks = find_blocks(problem, best.vector, rows, num, shape, key)
        search = Search(problem.part(0.16, 0.2), likelihood_and_gradient, blocks, best.vector)
        best.climb(search, best.vector, self.num_steps)
        asked = find_predictions(problem, best.vector, rows, aside, PREDICTED_FROM)
        searches, values = {problem.name: search}, {problem.name: score(problem, best.vector, asked, search.value)}
        rivals = problem.rivals(problem.parameters.model(best.vector))
        if problem.deadline.left >= a_while:
            usual = (rival for rival in rivals if rival.name != "RBF")
            compile_together(usual, [(likelihood_and_gradient, blocks), (likelihood, asked)])
        for rival in rivals:
            if rival.name == "RBF" and pick(values).chosen != "Matern52":  # as Matern52 is too smooth
                continue
            if problem.deadline.left < a_while:
                break
            rival = replace(rival, deadline=problem.deadline, span=problem.span)
            share = 0.16 / len(rivals)
            part = rival.part(0.2 + share * (len(searches) - 1), 0.2 + share * len(searches))
            other = searches[rival.name] = Search(part, likelihood_and_gradient, blocks, rival.parameters.start)
            other.climb(best_stretch(other), STAGE, KERNEL_STEPS)
            values[rival.name] = score(rival, other.best, asked, other.value)
        best.choice = pick(values)
        winner = searches[best.choice.chosen]
        best.problem, best.vector = replace(winner.problem, span=problem.span), winner.best

    def _choose_order(self, best: Best, rows: Rows, aside: Rows, key: RandomKey) -> Shape:
        """Blocks that are given rows before them, or any: what then predicts rows kept aside better by ORDER_MARGIN."""
        problem, shapes = best.problem, [Shape(self.size, self.num_near, is_ordered) for is_ordered in (True, False)]
        asked = find_predictions(problem, best.vector, rows, aside, PREDICTED_FROM)
        if not asked:
            return shapes[0]
        num, found = min(KERNEL_BLOCKS, self.num_blocks), []
        for number, shape in enumerate(shapes):
            blocks = find_blocks(problem, best.vector, rows, num, shape, subkey(key, number))
            part = problem.part(0.1 + 0.03 * number, 0.13 + 0.03 * number)
            search = Search(part, likelihood_and_gradient, blocks, best.vector)
            search.climb(best.vector, STAGE, KERNEL_STEPS)
            found.append((score(problem, search.best, asked, search.value), search.best))
        (ordered, vector), (freely, other) = found
        is_ordered = freely <= ordered + ORDER_MARGIN
        best.vector = vector if is_ordered else other
        return shapes[0] if is_ordered else shapes[1]

    def _grow(self, best: Best, rows: Rows, shape: Shape, key: RandomKey) -> None:
        """More blocks in each round, until the optimum stays where it is or is known well enough."""
        num, number, whole, begin = KERNEL_BLOCKS, 0, 0, 0.36
        while whole < MOST_WHOLE_ROUNDS:
            num, number, begin = min(GROWTH * num, self.num_blocks), number + 1, 0.5 * (1.0 + begin)
            blocks = find_blocks(best.problem, best.vector, rows, num, shape, subkey(key, "round", number))
            part = best.problem.part(2.0 * begin - 1.0, begin)
            search = Search(part, likelihood_and_gradient, blocks, best.vector)
            best.climb(search, best.vector, self.num_steps)
            whole += search.num_rows == len(rows)
            is_known = search.num_rows >= ROWS_PER_PARAMETER * len(best.vector)
            if (whole == 0 and (is_known or num == self.num_blocks)) or search.value - search.first < self.gain:
                return


@dataclass
class Best:
    """The best so far, also where learning is interrupted: a problem, which knows its kernel, and a vector."""

    problem: Problem
    vector: Vector
    choice: Choice | None = None

    def climb(self, search: Search, start: Vector, num_steps: int) -> None:
        """Climb, and keep the best vector even if the search is stopped."""
        try:
            search.climb(start, STAGE, num_steps)
        finally:
            self.vector = search.best


def best_stretch(search: Search) -> Vector:
    """The start, or with shorter lengthscales: how long they are to be depends on the kernel and the data."""
    factors = search.problem.parameters.is_lengthscale[None] * np.log([[1.0], [0.5], [0.25]])
    for vector in search.best + factors:
        search.evaluate(vector)
    return search.best


def nearer_the_data(search: Search) -> Vector:
    """The start, unless parameters of the data's own scale are better by more than OFF_SCALE."""
    start, typical = search.best, search.problem.typical
    value, other = (search.evaluate(vector)[0] for vector in (start, typical))
    return typical if other > value + OFF_SCALE else start


def score(problem: Problem, vector: Vector, asked: list[Blocks], otherwise: float) -> float:
    """The log density of predictions, in nats a row; where no rows were kept aside, a value known otherwise."""
    num_rows = sum(some.num_rows for some in asked)
    if not num_rows:
        return otherwise
    total = 0.0
    try:
        for some in asked:
            problem.check_time()
            total += likelihood(problem.parameters, vector, some, MOST_DEVIATIONS)
    except NotDefinite:
        return -math.inf
    return total / num_rows
