"""scikit-learn's callbacks, which came with its version 1.9; before, nobody watches a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any


class _Unwatched:
    """The context of a fit without callbacks."""

    def subcontext(self, **told: Any) -> _Unwatched:
        return self

    def call_on_fit_task_begin(self, **told: Any) -> None:
        """Nobody is told."""

    def call_on_fit_task_end(self, **told: Any) -> bool:
        """Nobody is told, and nobody says to stop."""
        return False


class Unwatched:
    """What estimators need of scikit-learn's mixin, for versions that do not have it."""

    _callback_fit_ctx: Any = _Unwatched()

    def _init_callback_context(self, **told: Any) -> Any:
        return self._callback_fit_ctx


if TYPE_CHECKING:
    CallbackSupportMixin = Unwatched
else:
    try:
        from sklearn.callback import CallbackSupportMixin
    except ModuleNotFoundError:
        CallbackSupportMixin = Unwatched
