"""Linear M3L on a GPU for sparse rows and labels that are not coupled: one program walks the list of a label.

Problem, dual and gap are those of `problem`; coefficients B, their bounds lo and hi, targets T and residuals
E = T - F are label-major, as with a kernel. The method is that of `sweeps.LabelSweeps`: passes of dual
coordinate ascent (37) over the samples that each label has listed, in an order drawn anew for every pass, a
bias that follows its dual value by the proximal point method, and after some passes one measurement of the
gap over all samples and labels, which makes the lists anew. Labels share nothing but X, so each is walked by
a warp of its own, exactly as on the CPU; the weights of a label stay in the cache of the processor that works
on it.

Work is in float32; training stops on the gap of the stored coefficients, recomputed in float64. When
rounding keeps the gap from falling, work goes on in float64.
"""

from __future__ import annotations

import numpy as np
import torch

from maxmargin.core.loop import Certificate, Clock, Evaluated, Patience, Progress
from maxmargin.device import moves
from maxmargin.device.backend import dtype_of
from maxmargin.device.multilabel import entry_bounds
from maxmargin.device.rows import DeviceRows, scores
from maxmargin.multilabel.problem import LinearM3L, Solution
from maxmargin.multilabel.sweeps import FIRST_SWEEPS, LABEL_PASSES, NEGLECTED, BiasPull, SweepRule


class DeviceLabels(Evaluated):
    """Passes over the lists of labels on a device of PyTorch.

    Parameters
    ----------
    problem : LinearM3L
        With CSR rows and labels that are not coupled.
    alpha : array of shape (n_samples, n_labels)
        Feasible dual variables to start from.
    tol : float
        The relative gap that training stops at; what rests between two measurements depends on it.
    rng : RandomState
    device : torch.device
    itemsize : int
        Bytes of a number of the working precision, 4 or 8.
    rule : SweepRule
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
        rule: SweepRule | None = None,
    ) -> None:
        self.problem, self.tol, self.device = problem, tol, device
        self.generator = torch.Generator(device).manual_seed(int(rng.randint(2**31)))
        self.rule = SweepRule(aim=1.1, least=0.02) if rule is None else rule
        self.n, self.L = problem.shape
        self.follow = BiasPull(problem.bias, problem.q, self.L, self.rule)
        self.patience = Patience()
        self.r64 = torch.from_numpy(problem.r).to(device)
        self.bias = float(problem.bias)
        self.X64 = DeviceRows(problem.rows.matrix, device, torch.float64)
        signs = torch.from_numpy(problem.costs.signs).to(device).T
        start = torch.from_numpy(np.ascontiguousarray(alpha.T, np.float64)).to(device)
        # The bias as a row of V: what it would be with all labels at their dual values.
        self.b = self.bias * (signs * start).sum(dim=1)
        self._load(signs * start, itemsize)

    def _load(self, B: torch.Tensor, itemsize: int) -> None:
        """Take up work on coefficients in a precision of so many bytes."""
        self.itemsize, dtype = itemsize, dtype_of(itemsize)
        self.X = self.X64.in_precision(dtype)
        q = torch.from_numpy(self.problem.q).to(self.device)
        self.q, self.r = q.to(dtype), self.r64.to(dtype)
        self.lo, self.hi, self.T = entry_bounds(self.problem.costs, self.device, dtype)
        self.B = torch.clamp(B.to(dtype), self.lo, self.hi).contiguous()
        self.flags = torch.ones(self.L, self.n, dtype=torch.bool, device=self.device)
        self.gaps: torch.Tensor | None = None
        self.gap = self.scale = np.inf
        self._set_weights(self._weights(self.B))
        if self.B.any():
            self._measure()

    def _move(self, clock: Clock) -> Progress:
        if self.gap <= self.tol:
            # The measured gap was small enough and yet there is another epoch: the weights have drifted.
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
        """The ascent of one epoch."""
        rule, fresh = self.rule, self.gaps is None
        reach = torch.full((2, self.L), torch.inf, dtype=self.B.dtype, device=self.device)
        if self.gaps is None:
            target = torch.full_like(self.b, -1.0)
        else:
            target = self.gaps * (rule.aim * max(self.tol / max(self.gap, self.tol), rule.least))
        working = torch.ones(self.L, dtype=torch.bool, device=self.device)
        pull = torch.from_numpy(self.follow.pull).to(self.device)
        for _ in range(FIRST_SWEEPS if fresh else LABEL_PASSES):
            left, reach = self._walk(self._lists(working, whole=fresh), pull, reach)
            lag = self.bias * self.B.sum(dim=1, dtype=torch.float64) - self.b
            self.b += torch.where(working, pull * lag, 0.0)
            left += 0.5 * self.r64 * ((1 - pull) * lag) ** 2
            working &= left > target
            if clock.expired() or not working.any():
                break

    def _lists(self, working: torch.Tensor, whole: bool) -> moves.Lists:
        """The samples to visit, in random order: of every label its flagged ones."""
        order = torch.randperm(self.n, generator=self.generator, device=self.device)
        if whole:
            counts = torch.full((self.L,), self.n, dtype=torch.int64, device=self.device)
            return moves.Lists(order.int(), torch.zeros_like(counts), counts)
        listed = (self.flags & working[:, None])[:, order]
        counts = listed.sum(dim=1)
        members = order[listed.nonzero()[:, 1]].int()
        return moves.Lists(members, counts.cumsum(0) - counts, counts)

    def _walk(
        self, lists: moves.Lists, pull: torch.Tensor, reach: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """One pass over the lists: the gaps that it saw, and the largest violations on both sides."""
        dtype = self.B.dtype
        entries = moves.Entries(self.B, self.lo, self.hi, self.T, self.flags)
        bias = moves.Bias(self.bias, (self.b * self.r64).to(dtype), pull.to(dtype))
        if self.device.type == "cuda":
            from maxmargin.device import triton_moves

            descend = triton_moves.descend
        else:
            descend = moves.descend
        seen, violations = descend(lists, self.X, self.w, entries, self.q, self.r, bias, reach)
        self.b = bias.at.double() / self.r64
        return seen, torch.where(violations > 0, violations, torch.inf)

    def _weights(self, B: torch.Tensor) -> torch.Tensor:
        """V = X'A in float64, label-major and without the bias."""
        return self.X64.weighted_sums(B.double())

    def _set_weights(self, V: torch.Tensor) -> None:
        self.w = (V * self.r64[:, None]).to(self.B.dtype).contiguous()

    def _measure(self) -> Certificate:
        """Both objectives by the weights at hand; flags what to visit next."""
        E = self.T - scores(self.X, self.w) - (self.bias * self.b * self.r64).to(self.T.dtype)[:, None]
        up, down = (self.hi - self.B) * E.clamp(min=0), (self.B - self.lo) * (-E).clamp(min=0)
        share = up + down
        lag = self.b - self.bias * self.B.sum(dim=1, dtype=torch.float64)
        lag_share = 0.5 * self.r64 * lag**2
        self.gaps = share.sum(dim=1, dtype=torch.float64) + lag_share
        self.follow.learn(self.gaps.cpu().numpy(), lag_share.cpu().numpy())
        loss = torch.maximum(self.hi * E, self.lo * E).sum(dtype=torch.float64)
        weights = self.w.square().sum(dim=1, dtype=torch.float64) / self.r64 + self.r64 * self.b**2
        primal = float(0.5 * weights.sum() + loss) + self.problem.costs.constant
        certificate = Certificate(primal, primal - float(self.gaps.sum()))
        self.gap, self.scale = certificate.gap, abs(primal)
        self.flags = share > NEGLECTED * self.tol * self.scale / self.B.numel()
        return certificate

    def _evaluate(self) -> tuple[torch.Tensor, Certificate]:
        """Weights Z with the bias last, and the certificate of the state as it is."""
        B = self.B.double()
        V = self._weights(B)
        Z = torch.cat([V, self.b[:, None]], dim=1) * self.r64[:, None]
        lo, hi, T = entry_bounds(self.problem.costs, self.device, torch.float64)
        E = T - self.X64.scores(Z[:, :-1]) - self.bias * Z[:, -1:]
        loss = torch.maximum(hi * E, lo * E).sum()
        norm = (self.r64 * V.square().sum(dim=1)).sum()
        carried = (self.r64 * self.b**2).sum()
        exact = (self.r64 * (self.bias * B.sum(dim=1)) ** 2).sum()
        value = torch.sum(T * B)
        loss, norm, carried, exact, value = torch.stack([loss, norm, carried, exact, value]).tolist()
        constant = self.problem.costs.constant
        return Z, Certificate(
            0.5 * (norm + carried) + loss + constant, value - 0.5 * (norm + exact) + constant
        )
