"""What solvers on a device share: epochs, drift, and the step from float32 to float64."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import torch

from maxmargin.core.kernel_matrix import KernelMatrix
from maxmargin.core.loop import Certificate, Clock, Evaluated, Patience, Progress
from maxmargin.device.backend import KernelDemand, dtype_of, keeps_whole
from maxmargin.device.kernels import DeviceKernel, padded
from maxmargin.device.sweeper import Sweeper, parts_of


class DeviceSolver(Evaluated, ABC):
    """Sweeps in float32 over a kernel matrix, certified in float64 from what is stored.

    Running scores drift, so they are computed anew every `refresh` epochs, and after a certificate that was
    not good enough. When the gap has not fallen by a tenth for `patience` epochs, work goes on in float64.

    Parameters
    ----------
    matrix : KernelMatrix
        The kernel and the rows; its values are made on the device.
    n_columns : int
        Scores of a sample.
    block : int
        Samples moved at a time; samples are padded to a multiple of it.
    """

    name = "block steps on a GPU"

    def __init__(
        self,
        matrix: KernelMatrix,
        n_columns: int,
        block: int,
        *,
        rng: np.random.RandomState,
        device: torch.device,
        refresh: int,
        patience: int,
    ) -> None:
        self.matrix, self.n_columns, self.block = matrix, n_columns, block
        self.rng, self.device, self.refresh = rng, device, refresh
        self.padding = -matrix.n % (block * parts_of(-(-matrix.n // block)))
        self.epochs, self.patience = 0, Patience(patience)
        self.sweeper: Sweeper | None = None

    def load(self, stored: torch.Tensor, itemsize: int) -> None:
        """Take up work on what is stored in a precision of so many bytes."""
        self.itemsize, dtype = itemsize, dtype_of(itemsize)
        n, d = self.matrix.X.shape
        demand = KernelDemand(n, d, self.n_columns, itemsize, self.block)
        self.sweeper = None  # gives its kernel matrix back before the next one is made
        rows = padded(self.matrix.kernel, self.matrix.X, self.padding)
        whole = keeps_whole(self.device, demand)
        self.K = DeviceKernel(self.matrix.kernel, rows, self.device, dtype, whole)
        moved = torch.zeros(self.n_columns, self.block, dtype=dtype, device=self.device)
        self.sweeper = self._sweeper(stored, moved)
        self._refresh()

    def epoch(self, clock: Clock) -> Progress:
        # Evaluated already, and not good enough: the running scores had told otherwise.
        if self._answer is not None:
            self._refresh()
        return super().epoch(clock)

    def _move(self, clock: Clock) -> Progress:
        assert self.sweeper is not None
        self.sweeper.epoch(self.rng, clock)
        self.epochs += 1
        if self.epochs % self.refresh == 0:
            self._refresh()
        certificate = self._running()
        if self.itemsize == 4 and self.patience.exhausted(certificate.gap):
            self.load(self._stored(), 8)
        return Progress(certificate, self.matrix.n)

    def _evaluate(self) -> tuple[torch.Tensor, Certificate]:
        """What is stored, in float64, and its certificate."""
        stored = self._stored()
        return stored, self._certificate(stored)

    @abstractmethod
    def solution(self) -> Any:
        """The answer that the certificate speaks of."""

    @abstractmethod
    def _sweeper(self, stored: torch.Tensor, moved: torch.Tensor) -> Sweeper:
        """The moves, on numbers of the precision of `moved`."""

    @abstractmethod
    def _refresh(self) -> None:
        """Compute running scores anew."""

    @abstractmethod
    def _running(self) -> Certificate:
        """Both objectives by the running scores."""

    @abstractmethod
    def _stored(self) -> torch.Tensor:
        """The dual variables in float64, exactly feasible."""

    @abstractmethod
    def _certificate(self, stored: torch.Tensor) -> Certificate:
        """Both objectives of what is stored, in float64 from kernel values in float64."""
