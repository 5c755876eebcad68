"""`maxmargin.dask.SparseMultiClassSVC` and `SparseMultiLabelSVC`: sparse machines on a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Options, StrOptions
from sklearn.utils.validation import column_or_1d

from maxmargin.core.kernels import NAMES, Kernel, row_sums, squared_norms
from maxmargin.dask import partitions
from maxmargin.dask.basis_parts import Parts, ScatteredBasis, ScatteredNewton
from maxmargin.dask.cluster import Cluster
from maxmargin.dask.estimator import OnCluster
from maxmargin.dask.partitions import Block
from maxmargin.edge.estimator import warn_if_single
from maxmargin.edge.labels import LabelSpace, constant_labels, warn_of_constants
from maxmargin.sparse.greedy import Greedy
from maxmargin.sparse.loss_loops import SquaredHinges, SquaredMargins
from maxmargin.sparse.machines import BasisMachine
from maxmargin.sparse.machines import SparseMultiClassSVC as LocalMultiClass
from maxmargin.sparse.machines import SparseMultiLabelSVC as LocalMultiLabel
from maxmargin.sparse.problem import BasisProblem, row_keys

# How the Newton equation is solved: by a Cholesky factor, by conjugate gradients, or by its size.
DIRECT = {"auto": None, "newton": True, "newton-cg": False}
# Unknowns up to which it is a factor: more than on one machine, where a product is no round of messages.
DENSE = 300


class Spread(NamedTuple):
    """Sum of the weights of a part's entries, their mean, and the weighted sum of squares around it."""

    size: float
    mean: float
    squares: float


class MachineOnCluster(OnCluster, BasisMachine):
    """What both machines share: a kernel, a pool of candidates and a basis over all partitions."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **BasisMachine._parameter_constraints,
        "kernel": [StrOptions(set(NAMES) - {"precomputed"}), callable],
        "solver": [StrOptions(set(DIRECT))],
        "full_bound": [Options(bool, {False})],
        "basis": [StrOptions({"greedy"})],
        "device": [StrOptions({"cpu"})],
    }

    def _gathered_kernel(self, cluster: Cluster, blocks: list[Any]) -> Kernel:
        """The kernel; gamma="scale" follows the entries of all partitions."""
        gamma = self.gamma
        if gamma == "scale":
            whole = merged(cluster.ask(spread, blocks))
            partitions.check_weighted(whole.size)
            variance = whole.squares / whole.size
            gamma = 1.0 / (self.n_features_in_ * variance) if variance > 0 else 1.0
        local = self._unfitted().set_params(gamma=gamma)
        return cluster.ask(kernel_of, blocks, local)[0]

    def _scattered_solver(
        self, cluster: Cluster, blocks: list[Any], nobody: BasisProblem, parts: list[Any], sizes: list[int]
    ) -> Greedy:
        """The solver over parts; `nobody` is their problem without samples."""
        keys = cluster.ask(keys_of, blocks)
        index = np.flatnonzero(np.concatenate([weighed for _, weighed in keys]))
        _, first = np.unique(np.concatenate([some for some, _ in keys])[index], return_index=True)
        return Greedy(
            nobody,
            index[first],
            check_random_state(self.random_state),
            max_basis=self.max_basis,
            n_candidates=self.n_candidates,
            rel_tol=self.rel_tol,
            patience=self.n_iter_no_change,
            tol=self.tol,
            optimiser=ScatteredNewton(self.max_iter, DIRECT[self.solver], dense=DENSE),
            selection=self.selection,
            keep_path=self.keep_path,
            basis=ScatteredBasis(nobody, Parts(cluster, parts, sizes)),
        )


@dataclass(eq=False, repr=False, kw_only=True)
class SparseMultiClassSVC(MachineOnCluster, LocalMultiClass):
    """Multi-class SVM whose kernel functions are few and shared by all classes, on a Dask cluster.

    The machine of `maxmargin.SparseMultiClassSVC`: the same objective, parameters, attributes and certified
    gap, and, with the same random state and `solver="newton"`, the same basis (other solvers are as near to
    the optimum on the way, but elsewhere). `to_local` gives the ordinary estimator. Workers score candidates
    and sum gradients and Hessians over their rows.

    Parameters
    ----------
    C, max_basis, n_candidates, selection, kernel, gamma, degree, coef0, fit_intercept, intercept_scaling, \
rel_tol, n_iter_no_change, tol, max_iter, keep_path, time_limit, random_state, verbose
        As in `maxmargin.SparseMultiClassSVC`; the kernel is not "precomputed".
    solver : {"auto", "newton", "newton-cg"}, default="auto"

    Attributes
    ----------
    basis_indices_, basis_vectors_, coef_, intercept_, path_, classes_, primal_objective_, dual_objective_, \
duality_gap_, history_, n_iter_, n_features_in_, feature_names_in_
        As in `maxmargin.SparseMultiClassSVC`; indices count through the partitions in their order.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from sklearn.datasets import load_iris
    >>> from maxmargin.dask import SparseMultiClassSVC
    >>> X, y = load_iris(return_X_y=True)
    >>> machine = SparseMultiClassSVC(C=10, max_basis=5, random_state=0)
    >>> with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
    ...     machine = machine.fit(da.from_array(X, (50, 4)), y, client=client)
    >>> machine.n_basis_ <= 5
    True
    """

    LOCAL: ClassVar[type[LocalMultiClass]] = LocalMultiClass

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LocalMultiClass._parameter_constraints,
        **MachineOnCluster._parameter_constraints,
        "loss": [StrOptions({"weston_watkins"})],
    }

    def _learn(
        self, cluster: Cluster, blocks: list[Any], seen: list[partitions.Facts], X: Any, y: Any
    ) -> None:
        self.classes_ = classes = partitions.common_classes(seen)
        warn_if_single(classes)
        blocks, sizes = filled(blocks, seen)
        kernel = self._gathered_kernel(cluster, blocks)
        parts = [cluster.submit(class_machine, one, kernel, classes, self.C) for one in blocks]
        nobody = class_machine(no_rows(self.n_features_in_, seen), kernel, classes, self.C)
        solver = self._scattered_solver(cluster, blocks, nobody, parts, sizes)
        self._run(nobody, solver, y, np.zeros(len(classes)))


@dataclass(eq=False, repr=False, kw_only=True)
class SparseMultiLabelSVC(MachineOnCluster, LocalMultiLabel):
    """Multi-label SVM whose kernel functions are few and shared by all labels, on a Dask cluster.

    The machine of `maxmargin.SparseMultiLabelSVC`: the same objective, parameters, attributes and certified
    gap, and, with the same random state and `solver="newton"`, the same basis. `to_local` gives the ordinary
    estimator.

    Parameters
    ----------
    C, prior, max_basis, n_candidates, selection, kernel, gamma, degree, coef0, fit_intercept, \
intercept_scaling, rel_tol, n_iter_no_change, tol, max_iter, keep_path, time_limit, random_state, verbose
        As in `maxmargin.SparseMultiLabelSVC`; the kernel is not "precomputed". A prior that is a callable is
        given the labels of all partitions at once.
    solver : {"auto", "newton", "newton-cg"}, default="auto"

    Attributes
    ----------
    basis_indices_, basis_vectors_, coef_, intercept_, path_, classes_, constant_labels_, primal_objective_, \
dual_objective_, duality_gap_, history_, n_iter_, n_features_in_, feature_names_in_
        As in `maxmargin.SparseMultiLabelSVC`; indices count through the partitions in their order.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from sklearn.datasets import make_multilabel_classification
    >>> from maxmargin.dask import SparseMultiLabelSVC
    >>> X, Y = make_multilabel_classification(60, n_classes=4, random_state=0)
    >>> machine = SparseMultiLabelSVC(C=10, max_basis=5, random_state=0)
    >>> with Client(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as client:
    ...     machine = machine.fit(da.from_array(X, (20, 20)), Y, client=client)
    >>> machine.predict(X[:2]).shape
    (2, 4)
    """

    LOCAL: ClassVar[type[LocalMultiLabel]] = LocalMultiLabel

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LocalMultiLabel._parameter_constraints,
        **MachineOnCluster._parameter_constraints,
    }

    def _learn(
        self, cluster: Cluster, blocks: list[Any], seen: list[partitions.Facts], X: Any, y: Any
    ) -> None:
        self._labels = space = partitions.common_space(seen)
        self.classes_ = space.classes
        blocks, sizes = filled(blocks, seen)
        totals = partitions.totals(cluster, blocks, seen, space)
        one_sided, on = constant_labels(*partitions.two_sided(totals))
        warn_of_constants(space.names, one_sided)
        P = self._gathered_factor(cluster, blocks, one_sided)
        kernel = self._gathered_kernel(cluster, blocks)
        known = Known(space, ~one_sided, P, self.C)
        parts = [cluster.submit(label_machine, one, kernel, known) for one in blocks]
        nobody = label_machine(no_rows(self.n_features_in_, seen), kernel, known)
        solver = self._scattered_solver(cluster, blocks, nobody, parts, sizes)
        self._run(nobody, solver, y, np.where(one_sided, np.where(on, 1.0, -1.0), 0.0))
        self.constant_labels_ = one_sided

    def _gathered_factor(
        self, cluster: Cluster, blocks: list[Any], one_sided: np.ndarray
    ) -> np.ndarray | None:
        """P with P'P = R; a callable prior is given the labels of all partitions."""
        signs = np.zeros((0, len(one_sided)), np.int8)
        if callable(self.prior):
            signs = np.where(one_sided, np.int8(0), partitions.all_signs(cluster, blocks, self._labels))
        return self._factor(signs)


class Known(NamedTuple):
    """Labels, which of them are to be learnt, the factor of the prior, and C."""

    space: LabelSpace
    learnt: np.ndarray
    P: np.ndarray | None
    C: float


def filled(blocks: list[Any], seen: list[partitions.Facts]) -> tuple[list[Any], list[int]]:
    """The blocks with rows, and their sizes."""
    return [block for block, one in zip(blocks, seen, strict=True) if one.n], [one.n for one in seen if one.n]


def no_rows(n_features: int, seen: list[partitions.Facts]) -> Block:
    """A block without rows, of the kind of the others."""
    kind = sp.csr_array if any(one.sparse for one in seen) else np.empty
    return Block(kind((0, n_features)), None, None, None)


def weights_of(block: Block) -> np.ndarray:
    """One weight for every sample of a block."""
    return np.ones(block.X.shape[0]) if block.weight is None else column_or_1d(block.weight)


def kernel_of(block: Block, model: BasisMachine) -> Kernel:
    """The kernel, which must suit the rows of a block; its gamma is settled."""
    return model._settle_kernel(block.X, None)


def keys_of(block: Block) -> tuple[np.ndarray, np.ndarray]:
    """What tells rows apart, and which of them have a weight."""
    return row_keys(block.X), weights_of(block) > 0


def spread(block: Block) -> Spread:
    """How the entries of a block are spread, each row counted with its weight."""
    X, weight = block.X, weights_of(block)
    size = float(weight.sum()) * X.shape[1]
    if not size:
        return Spread(0.0, 0.0, 0.0)
    mean = float(weight @ row_sums(X)) / size
    if sp.issparse(X):
        return Spread(size, mean, float(weight @ squared_norms(X)) - size * mean**2)
    return Spread(size, mean, float(weight @ np.square(X - mean, dtype=np.float64).sum(axis=1)))


def merged(parts: list[Spread]) -> Spread:
    """How the entries of all blocks are spread."""
    size = sum(one.size for one in parts)
    mean = sum(one.size * one.mean for one in parts) / size if size else 0.0
    return Spread(size, mean, sum(one.squares + one.size * (one.mean - mean) ** 2 for one in parts))


def class_machine(block: Block, kernel: Kernel, classes: np.ndarray, C: float) -> BasisProblem:
    """The block as a part of the problem with one class per sample."""
    codes, weight = partitions.coded(block, classes)
    return BasisProblem(kernel, block.X, SquaredMargins(codes, C * weight, len(classes)))


def label_machine(block: Block, kernel: Kernel, known: Known) -> BasisProblem:
    """The block as a part of the problem with several labels per sample."""
    signs = np.where(known.learnt, partitions.signs_of(block, known.space), np.int8(0))
    return BasisProblem(kernel, block.X, SquaredHinges(signs, known.C * weights_of(block)), known.P)
