"""The checkpoint of learning: all numbers computed so far.

Learning is a sequence of decisions that depend on evaluations of a likelihood. A resumed run makes the same decisions
again, with the evaluations from the file instead of new ones, up to where the first run ended. So the state of the
optimiser, the rounds and the comparison of kernels need not be saved.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dualgp._types import Columns
from dualgp.checkpoints import Checkpoint


class LearningFile:
    """The numbers so far in a file, and the name of a second one for the last solve; without a path only in memory.

    `problem` is a tree of everything that the result depends on: a file that belongs to another problem is refused.
    `weights` are those of the last solve, if there was any.
    """

    def __init__(self, path: str | os.PathLike | None = None, problem: Any = None) -> None:
        self.solve_path = None if path is None else f"{path}.solve"
        self.files = [] if path is None else [Checkpoint(path, problem), Checkpoint(f"{path}.solve", None)]
        self.weights: Columns | None = None
        self._numbers, self._place = list[np.ndarray](), 0
        saved = self.files[0].load((np.zeros(0), np.zeros(0), np.zeros((0, 0)))) if self.files else None
        if saved is not None:
            numbers, sizes, weights = map(np.asarray, saved[0])
            self._numbers = np.split(numbers, np.cumsum(sizes.astype(int))[:-1])
            self.weights = weights if weights.size else None

    @property
    def is_behind(self) -> bool:
        """Whether a resumed run has not yet reached the end of the file."""
        return self._place < len(self._numbers)

    def once(self, label: Iterable[float], compute: Callable[[], np.ndarray]) -> np.ndarray:
        """The numbers that `compute` returns, or returned in the run that this one resumes.

        `label` identifies the evaluation. If the first run evaluated something else here, because of a time limit, the
        rest of the file is not used.
        """
        label = np.array([*label], np.float64)
        if self.is_behind:
            known = self._numbers[self._place]
            if np.array_equal(known[: len(label)], label):
                self._place += 1
                return known[len(label) :].copy()
            self._numbers, self.weights = self._numbers[: self._place], None
        numbers = np.asarray(compute(), np.float64)
        self._numbers.append(np.concatenate([label, numbers]))
        self._place += 1
        return numbers

    def save(self) -> None:
        """Write the numbers so far, unless the file has more."""
        if self.files and not self.is_behind:
            sizes = np.array([len(numbers) for numbers in self._numbers], np.float64)
            weights = np.zeros((0, 0)) if self.weights is None else self.weights
            self.files[0].save((np.concatenate([np.zeros(0), *self._numbers]), sizes, weights), {})

    def delete(self, with_solve: bool) -> None:
        """Delete the file, and that of the last solve if it is done here."""
        for file in self.files if with_solve else self.files[:1]:
            file.delete()
