"""The file that lets `FullData` go on where it was killed: parameters and weights after every step."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from dualgp._types import Columns
from dualgp.checkpoints import Checkpoint
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
        self.solve_path = None if path is None else f"{path}.solve"
        self.files = [] if path is None else [Checkpoint(path, problem), Checkpoint(f"{path}.solve", None)]

    def load(self, start: Vector) -> Position:
        """What was saved, or else the start."""
        saved = self.files[0].load((np.zeros(0), np.zeros((0, 0)))) if self.files else None
        if saved is None:
            return Position(start)
        (vector, weights), progress = saved
        if not progress["is_learned"]:  # there will be another last solve
            self.files[1].delete()
        return Position(np.asarray(vector), np.asarray(weights), progress["is_learned"])

    def save(self, position: Position) -> None:
        """Write a position that has weights: whatever comes before the first solve is quick to repeat."""
        if self.files and position.weights is not None:
            self.files[0].save((position.vector, position.weights), {"is_learned": position.is_learned})

    def delete(self) -> None:
        """Delete both files: all is done."""
        for file in self.files:
            file.delete()
