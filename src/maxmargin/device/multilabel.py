"""M3L on a GPU: block sweeps with a kernel, and passes over the lists of labels on sparse rows.

Problem, dual, gap and letters are those of `multilabel.problem`: signed coefficients B between lo and hi,
targets T and residuals E = T - F, all label-major. Work is in float32; training stops on the gap of the
stored coefficients, recomputed in float64, and work continues in float64 when rounding keeps the gap from
falling.

With a kernel (`DeviceSweeps`), every epoch puts the samples in random order and cuts them into blocks. In a
block every coefficient moves to its optimum given the others, and one product adds the change to all
residuals. Independent labels are moved side by side, coupled labels one after the other. Blocks undo part of
each other's progress; an exponential mean of the epochs has less of this, and is the answer where its gap is
smaller.

On sparse rows (`DeviceLabels`), the method is that of `multilabel.sweeps.LabelSweeps`: passes of dual
coordinate ascent (37) over the listed samples of each label in random order, a bias that follows its dual
value by the proximal point method, and a measurement of the gap over all entries, which renews the lists.
Labels share nothing but X, so one warp works on each label.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from maxmargin.core.loop import Certificate, Clock, Evaluated, Patience, Progress
from maxmargin.device import blocks
from maxmargin.device.blocks import BlockMoves, DeviceSolver
from maxmargin.device.numerics import DeviceRows, dtype_of
from maxmargin.multilabel.problem import EntryCosts, KernelM3L, LinearM3L, Solution
from maxmargin.multilabel.sweeps import FIRST_SWEEPS, LABEL_PASSES, NEGLECTED, BiasDamping, SweepRule

# Samples of a block, and moves of each of its coefficients, for independent labels and for coupled ones.
BLOCK, ROUNDS = 128, 2
COUPLED_BLOCK, COUPLED_ROUNDS = 32, 1
# Weight of the last epoch in the mean of epochs.
NEWEST = 0.4


def entry_bounds(
    costs: EntryCosts, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """lo, hi and T = Y * margins on a device, label-major; in single precision boxes are slightly smaller."""
    signs, weight, upper, margin, per_entry = costs.flat(np.float32 if dtype == torch.float32 else np.float64)
    signs, weight, upper, margin = (
        torch.tensor(part, device=device) for part in (signs, weight, upper, margin)
    )
    signs = signs.T
    box = signs * torch.where(signs > 0, upper[1][:, None], upper[0][:, None]) * weight.T
    margins = margin.T if per_entry else torch.where(signs > 0, margin[1][:, None], margin[0][:, None])
    return box.clamp(max=0).contiguous(), box.clamp(min=0).contiguous(), (signs * margins).contiguous()


class IndependentMoves(BlockMoves):
    """Moves of all labels at once; `r` is the diagonal of the prior."""

    def __init__(
        self,
        K: Any,
        E: torch.Tensor,
        bounded: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        r: torch.Tensor,
    ) -> None:
        super().__init__(K, E, BLOCK)
        (self.B, self.lo, self.hi), self.r = bounded, r
        self.compact = torch.zeros(4 * len(E) * self.block, dtype=E.dtype, device=E.device)

    def launch(self, order: torch.Tensor, k: int, tile: torch.Tensor) -> None:
        from maxmargin.device import triton_moves

        L, n = self.scores.shape
        triton_moves.sweep[(L,)](
            order, k, tile, self.scores, self.B, self.lo, self.hi, self.r, self.compact, self.moved, n,
            ROUNDS=ROUNDS, BLOCK=self.block, num_warps=1,
        )  # fmt: skip


class CoupledMoves(BlockMoves):
    """Moves of one sample and label after the other; `R` is the prior."""

    def __init__(
        self,
        K: Any,
        E: torch.Tensor,
        bounded: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        R: torch.Tensor,
    ) -> None:
        super().__init__(K, E, COUPLED_BLOCK)
        (self.B, self.lo, self.hi), self.R = bounded, R
        self.width = blocks.padded_width(len(R))
        padding = self.width - len(R)
        self.padded_R = torch.nn.functional.pad(R, (0, padding, 0, padding)).contiguous()
        self.compact = torch.zeros(4 * self.width, dtype=E.dtype, device=E.device)

    def launch(self, order: torch.Tensor, k: int, tile: torch.Tensor) -> None:
        from maxmargin.device import triton_moves

        L, n = self.scores.shape
        triton_moves.walk[(1,)](
            order, k, tile, self.scores, self.B, self.lo, self.hi, self.padded_R, self.compact, self.moved, n,
            L=L, ROUNDS=COUPLED_ROUNDS, BLOCK=self.block, WIDTH=self.width, num_warps=1,
        )  # fmt: skip


class DeviceSweeps(DeviceSolver):
    """Block sweeps with a kernel on a device of PyTorch.

    Parameters
    ----------
    problem : KernelM3L
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    rng : RandomState
    device : torch.device
    itemsize : int
        Bytes of a number of the working precision, 4 or 8.
    """

    def __init__(
        self,
        problem: KernelM3L,
        alpha: np.ndarray,
        *,
        rng: np.random.RandomState,
        device: torch.device,
        itemsize: int = 4,
    ) -> None:
        self.problem = problem
        block = COUPLED_BLOCK if problem.coupled else BLOCK
        super().__init__(problem.K, problem.shape[1], block, rng, device)
        self.R = torch.from_numpy(problem.prior).to(device)
        numbers = entry_bounds(problem.costs, device, torch.float64)
        self.lo64, self.hi64, self.T64 = (self._padded(part) for part in numbers)
        signs, start = (torch.from_numpy(part).to(device).T for part in (problem.costs.signs, alpha))
        self.load(self._padded(signs * start.double()), itemsize)

    def _padded(self, numbers: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(numbers, (0, self.padding)).contiguous()

    def _make_moves(self, stored: torch.Tensor) -> BlockMoves:
        dtype = stored.dtype
        self.B, self.T = stored, self.T64.to(dtype)
        self.lo, self.hi = self.lo64.to(dtype), self.hi64.to(dtype)
        self.E = torch.empty_like(self.T)
        self.mean: tuple[torch.Tensor, torch.Tensor] | None = None
        self.answer = self.B
        bounded = self.B, self.lo, self.hi
        if self.problem.coupled:
            return CoupledMoves(self.K, self.E, bounded, self.R.to(dtype))
        return IndependentMoves(self.K, self.E, bounded, self.R.diagonal().to(dtype).contiguous())

    def _refresh(self) -> None:
        self.E.copy_(self.T - self.R.to(self.T.dtype) @ self.K.times(self.B))

    def _running(self) -> Certificate:
        if self.mean is None:
            self.mean = self.B.clone(), self.E.clone()
        for mean, last in zip(self.mean, (self.B, self.E), strict=True):
            mean.lerp_(last, NEWEST)
        found = {B: self._measure(B, self.T, E, self.lo, self.hi) for B, E in ((self.B, self.E), self.mean)}
        self.answer = min(found, key=lambda B: found[B].gap)
        return found[self.answer]

    def _measure(
        self, B: torch.Tensor, T: torch.Tensor, E: torch.Tensor, lo: torch.Tensor, hi: torch.Tensor
    ) -> Certificate:
        """Both objectives of B with residuals E; the dual is (25)."""
        value = torch.sum(T * B, dtype=torch.float64)
        norm = 0.5 * (value - torch.sum(E * B, dtype=torch.float64))
        loss = torch.sum(torch.maximum(hi * E, lo * E), dtype=torch.float64)
        value, norm, loss = torch.stack([value, norm, loss]).tolist()
        constant = self.problem.costs.constant
        return Certificate(norm + loss + constant, value - norm + constant)

    def _stored(self) -> torch.Tensor:
        """The answer; coefficients at a rounded bound are put exactly on the bound."""
        B = torch.clamp(self.answer.double(), self.lo64, self.hi64)
        B = torch.where(self.lo == self.answer, self.lo64, B)
        return torch.where(self.hi == self.answer, self.hi64, B)

    def _certificate(self, stored: torch.Tensor) -> Certificate:
        E = self.T64 - self.R @ self.K.times_exactly(stored)
        return self._measure(stored, self.T64, E, self.lo64, self.hi64)

    def solution(self) -> Solution:
        return self.problem.solution(self._evaluated()[0][:, : self.matrix.n].cpu().numpy())


class Lists(NamedTuple):
    """The samples that each label visits: ``members[starts[l] : starts[l] + counts[l]]``, in that order."""

    members: torch.Tensor
    starts: torch.Tensor
    counts: torch.Tensor


class Entries(NamedTuple):
    """Coefficients, their bounds, targets of the scores, and flags of the active entries, all L x n."""

    B: torch.Tensor
    lo: torch.Tensor
    hi: torch.Tensor
    T: torch.Tensor
    flags: torch.Tensor


class Bias(NamedTuple):
    """The constant feature, its weight per label, and rho / s^2 of each: how far the bias follows a step."""

    feature: float
    at: torch.Tensor
    pull: torch.Tensor


class DeviceLabels(Evaluated):
    """Passes over the lists of labels, for sparse rows, on a device of PyTorch.

    Parameters
    ----------
    problem : LinearM3L
        With CSR rows and independent labels.
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    tol : float
        The relative gap that training stops at; which entries are inactive depends on it.
    rng : RandomState
    device : torch.device
    itemsize : int
        Bytes of a number of the working precision, 4 or 8.
    """

    name = "sweeps on a GPU"

    def __init__(
        self,
        problem: LinearM3L,
        alpha: np.ndarray,
        *,
        tol: float,
        rng: np.random.RandomState,
        device: torch.device,
        itemsize: int = 4,
    ) -> None:
        self.problem, self.tol, self.device = problem, tol, device
        self.generator = torch.Generator(device).manual_seed(int(rng.randint(2**31)))
        self.rule = SweepRule(aim=1.1, least=0.02)
        self.n, self.L = problem.shape
        self.damping = BiasDamping(problem.bias, problem.q, self.L, self.rule)
        self.patience = Patience()
        self.r64 = torch.from_numpy(problem.r).to(device)
        self.bias = float(problem.bias)
        self.X64 = DeviceRows(problem.rows.matrix, device, torch.float64)
        signs = torch.from_numpy(problem.costs.signs).to(device).T
        start = torch.from_numpy(np.ascontiguousarray(alpha.T, np.float64)).to(device)
        # The bias as a row of V, with all labels at their dual values.
        self.b = self.bias * (signs * start).sum(dim=1)
        self._load(signs * start, itemsize)

    def _load(self, B: torch.Tensor, itemsize: int) -> None:
        """Continue from coefficients, in numbers of `itemsize` bytes."""
        self.itemsize, dtype = itemsize, dtype_of(itemsize)
        self.X = self.X64.in_precision(dtype)
        q = torch.from_numpy(self.problem.q).to(self.device)
        self.q, self.r = q.to(dtype), self.r64.to(dtype)
        self.lo, self.hi, self.T = entry_bounds(self.problem.costs, self.device, dtype)
        self.B = torch.clamp(B.to(dtype), self.lo, self.hi).contiguous()
        self.flags = torch.ones(self.L, self.n, dtype=torch.bool, device=self.device)
        self.gaps: torch.Tensor | None = None
        self.gap = np.inf
        self._set_weights(self._weights(self.B))
        if self.B.any():
            self._measure()

    def _move(self, clock: Clock) -> Progress:
        if self.gap <= self.tol:
            # The measured gap was small enough but the certificate was not: the weights have drifted.
            self._set_weights(self._weights(self.B))
        active = int(self.flags.any(dim=0).sum())
        self._passes(clock)
        certificate = self._measure()
        if self.itemsize == 4 and self.patience.exhausted(certificate.gap):
            self._load(self.B.double(), 8)
        return Progress(certificate, active)

    def solution(self) -> Solution:
        return Solution(self.B.abs().T.cpu().numpy(), self._evaluated()[0].T.cpu().numpy())

    def _passes(self, clock: Clock) -> None:
        """The ascent of one epoch; a label is finished when a pass measures less than its target gap."""
        first = self.gaps is None
        bounds = torch.full((2, self.L), torch.inf, dtype=self.B.dtype, device=self.device)
        if self.gaps is None:
            target = torch.full_like(self.b, -1.0)
        else:
            share = max(self.tol / max(self.gap, self.tol), self.rule.least)
            target = self.gaps * self.rule.aim * share
        working = torch.ones(self.L, dtype=torch.bool, device=self.device)
        pull = torch.from_numpy(self.damping.values).to(self.device)
        for _ in range(FIRST_SWEEPS if first else LABEL_PASSES):
            left, bounds = self._descend(self._lists(working, whole=first), pull, bounds)
            lag = self.bias * self.B.sum(dim=1, dtype=torch.float64) - self.b
            self.b += torch.where(working, pull * lag, 0.0)
            left += 0.5 * self.r64 * ((1 - pull) * lag) ** 2
            working &= left > target
            if clock.expired() or not working.any():
                break

    def _lists(self, working: torch.Tensor, whole: bool) -> Lists:
        """The active samples of every unfinished label in random order, or all samples."""
        order = torch.randperm(self.n, generator=self.generator, device=self.device)
        if whole:
            counts = torch.full((self.L,), self.n, dtype=torch.int64, device=self.device)
            return Lists(order.int(), torch.zeros_like(counts), counts)
        listed = (self.flags & working[:, None])[:, order]
        counts = listed.sum(dim=1)
        members = order[listed.nonzero()[:, 1]].int()
        return Lists(members, counts.cumsum(0) - counts, counts)

    def _descend(
        self, lists: Lists, pull: torch.Tensor, bounds: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One pass over the lists: the gap of every label on the way, and its largest violations."""
        from maxmargin.device import triton_moves

        dtype = self.B.dtype
        entries = Entries(self.B, self.lo, self.hi, self.T, self.flags)
        bias = Bias(self.bias, (self.b * self.r64).to(dtype), pull.to(dtype))
        seen, violations = triton_moves.descend(lists, self.X, self.w, entries, self.q, self.r, bias, bounds)
        self.b = bias.at.double() / self.r64
        return seen, torch.where(violations > 0, violations, torch.inf)

    def _weights(self, B: torch.Tensor) -> torch.Tensor:
        """V = X'A in float64, label-major and without the bias."""
        return self.X64.columns.times(B.double())

    def _set_weights(self, V: torch.Tensor) -> None:
        self.w = (V * self.r64[:, None]).to(self.B.dtype).contiguous()

    def _measure(self) -> Certificate:
        """Both objectives by the current weights; sets the flags of the entries to visit next."""
        E = self.T - self.X.times(self.w) - (self.bias * self.b * self.r64).to(self.T.dtype)[:, None]
        up, down = (self.hi - self.B) * E.clamp(min=0), (self.B - self.lo) * (-E).clamp(min=0)
        share = up + down
        lag = self.b - self.bias * self.B.sum(dim=1, dtype=torch.float64)
        lag_share = 0.5 * self.r64 * lag**2
        self.gaps = share.sum(dim=1, dtype=torch.float64) + lag_share
        self.damping.update(self.gaps.cpu().numpy(), lag_share.cpu().numpy())
        loss = torch.maximum(self.hi * E, self.lo * E).sum(dtype=torch.float64)
        weights = self.w.square().sum(dim=1, dtype=torch.float64) / self.r64 + self.r64 * self.b**2
        primal = float(0.5 * weights.sum() + loss) + self.problem.costs.constant
        certificate = Certificate(primal, primal - float(self.gaps.sum()))
        self.gap = certificate.gap
        self.flags = share > NEGLECTED * self.tol * abs(primal) / self.B.numel()
        return certificate

    def _evaluate(self) -> tuple[torch.Tensor, Certificate]:
        """Weights Z with the bias last, and the certificate of the current state."""
        B = self.B.double()
        V = self._weights(B)
        Z = torch.cat([V, self.b[:, None]], dim=1) * self.r64[:, None]
        lo, hi, T = entry_bounds(self.problem.costs, self.device, torch.float64)
        E = T - self.X64.rows.times(Z[:, :-1]) - self.bias * Z[:, -1:]
        loss = torch.maximum(hi * E, lo * E).sum()
        norm = (self.r64 * V.square().sum(dim=1)).sum()
        # The squared bias in the primal as it is stored, in the dual as the dual variables give it.
        stored = (self.r64 * self.b**2).sum()
        exact = (self.r64 * (self.bias * B.sum(dim=1)) ** 2).sum()
        value = torch.sum(T * B)
        loss, norm, stored, exact, value = torch.stack([loss, norm, stored, exact, value]).tolist()
        constant = self.problem.costs.constant
        primal = 0.5 * (norm + stored) + loss + constant
        return Z, Certificate(primal, value - 0.5 * (norm + exact) + constant)
