"""scikit-learn's callbacks (from version 1.9 on)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualgp.learning import Step

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Older versions of scikit-learn have no callbacks."""

    def with_callbacks(method: Callable) -> Callable:
        """Older versions of scikit-learn have no callbacks."""
        return method


__all__ = ["CallbackSupportMixin", "Watcher", "with_callbacks"]


class Watcher:
    """Reports the fit as a task, and every step of learning as a subtask."""

    def __init__(self, estimator: Any, X: np.ndarray, y: np.ndarray) -> None:
        self.estimator, self.X, self.y = estimator, X, y
        self.root = estimator._init_callback_context(max_subtasks=None)
        self.has_company = bool(getattr(estimator, "_skl_callbacks", None))
        self.root.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def __call__(self, step: Step) -> bool:
        task = self.root.subcontext(task_name=f"learning from {step.stage}")
        task.call_on_fit_task_begin(estimator=self.estimator, X=self.X, y=self.y)
        return task.call_on_fit_task_end(estimator=self.estimator, X=self.X, y=self.y)

    def end(self) -> None:
        """Report the end of the fit."""
        self.root.call_on_fit_task_end(estimator=self.estimator, X=self.X, y=self.y)
