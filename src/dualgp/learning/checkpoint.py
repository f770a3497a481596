"""The file that lets `FullData` go on where it was killed: parameters and weights after every step."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualgp._types import Columns
from dualgp.checkpoints import Checkpoint, delete
from dualgp.learning.parameters import Vector


@dataclass
class Position:
    """Where learning is: parameters, and the weights of the last solve for parameters near them.

    `is_learned`: learning is complete, and only the last solve is left.
    """

    vector: Vector
    weights: Columns | None = None
    is_learned: bool = False


class LearningFile:
    """The position in a file, and the name of a second one for the last solve; without a path it does nothing.

    `problem` is a tree of everything that the result depends on: a file that belongs to another problem is refused.
    """

    def __init__(self, path: str | os.PathLike | None = None, problem: Any = None) -> None:
        self.checkpoint = None if path is None else Checkpoint(path, problem)
        self.solve_path = None if path is None else f"{path}.solve"
        self.was_learned = False  # when the file was loaded

    def load(self, start: Vector) -> Position:
        """What was saved, or else the start."""
        saved = None if self.checkpoint is None else self.checkpoint.load((np.zeros(0), np.zeros((0, 0))))
        if saved is None:
            return Position(start)
        (vector, weights), progress = saved
        self.was_learned = progress["is_learned"]
        if self.solve_path is not None and not self.was_learned:  # there will be another last solve
            delete(self.solve_path)
        return Position(np.asarray(vector), np.asarray(weights), self.was_learned)

    def save(self, position: Position) -> None:
        """Write a position that has weights: whatever comes before the first solve is quick to repeat."""
        if self.checkpoint is not None and position.weights is not None:
            arrays = (position.vector, np.asarray(position.weights))
            self.checkpoint.save(arrays, {"is_learned": position.is_learned})

    def delete(self) -> None:
        """Delete both files: all is done."""
        if self.checkpoint is not None and self.solve_path is not None:
            self.checkpoint.delete()
            delete(self.solve_path)
