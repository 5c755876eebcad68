"""Construction of a graph of ONNX operators: constants, nodes, and the kernels.

Only primitive operators are used (MatMul, Exp, ArgMax, ...). The SVM operators of the ONNX-ML domain compute
in single precision and choose labels differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.kernels import Clouds, Kernel

# Supported by all runtimes since 2022.
OPSET, IR_VERSION = 17, 8
OUTPUTS = ("labels", "scores", "probabilities")
# Sparse weights with a larger density than this become dense: that product is faster.
SPARSE = 0.05
LARGEST_FILE = 2**31 - 2**20
TOO_LARGE = (
    "larger than 2 GiB, the limit of an ONNX file; fit with a larger prune_below, which drops weights, "
    "or export with dtype=numpy.float32."
)
NEEDS_ONNX = "The export needs the package onnx; pip install onnx."


def onnx() -> Any:
    """Import onnx, which only exports need."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError(NEEDS_ONNX) from error
    return onnx


class Graph:
    """Nodes and constants. Methods that add operators return the name of the result."""

    def __init__(
        self,
        dtype: Any,
        prefix: str = "",
        tensors: list[Any] | None = None,
        columns: Sequence[str] = (),
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.prefix = prefix
        self.nodes: list[Any] = []
        self.tensors: list[Any] = [] if tensors is None else tensors
        # Names of the columns of a table, and the inputs: name -> description.
        self.columns = columns
        self.inputs: dict[str, Any] = {}

    @property
    def element(self) -> int:
        """The number type as an ONNX code."""
        return onnx().helper.np_dtype_to_tensor_dtype(self.dtype)

    def constant(self, values: Any) -> str:
        """Add an array with its own dtype: integers, strings, booleans."""
        name = f"{self.prefix}c{len(self.tensors)}"
        self.tensors.append(onnx().numpy_helper.from_array(np.asarray(values), name))
        return name

    def numbers(self, values: Any) -> str:
        """Add an array in the precision of the graph."""
        return self.constant(np.ascontiguousarray(values, dtype=self.dtype))

    @property
    def domains(self) -> set[str]:
        """Domains of the operators that are not ONNX's own."""
        return {node.domain for node in self.nodes} - {""}

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add a node; return the name of its result, or a list of several."""
        first = f"{self.prefix}n{len(self.nodes)}"
        names = [first if k == 0 else f"{first}_{k}" for k in range(outputs)]
        self.nodes.append(onnx().helper.make_node(op, list(inputs), names, name=first, **attributes))
        return names[0] if outputs == 1 else names

    def column(self, name: str, text: bool) -> str:
        """Add an n x 1 column of a table as an input; rename it if it has the name of an output."""
        kind = onnx().TensorProto.STRING if text else self.element
        name = f"column {name}" if name in OUTPUTS else name
        self.inputs[name] = onnx().helper.make_tensor_value_info(name, kind, ["n_samples", 1])
        return name

    def unit(self, x: str, norm: str) -> str:
        """Divide rows by their norms; rows with norm zero stay unchanged."""
        nothing = self.add("Equal", norm, self.numbers(0.0))
        return self.add("Div", x, self.add("Where", nothing, self.numbers(1.0), norm))

    def name(self, result: str, name: str) -> None:
        """Name a result as an output."""
        self.nodes.append(onnx().helper.make_node("Identity", [result], [name], name=f"{self.prefix}{name}"))

    def sums(self, x: str) -> str:
        """Add the sum of every row, as a column."""
        return self.add("ReduceSum", x, self.constant(np.array([1])), keepdims=1)

    def cast(self, x: str, dtype: Any) -> str:
        return self.add("Cast", x, to=onnx().helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def affine(self, x: str, weights: Any, bias: Any) -> str:
        """Add x weights' + bias."""
        if sp.issparse(weights) and weights.nnz < SPARSE * weights.shape[0] * weights.shape[1]:
            return self._sparse_affine(x, weights.tocoo(), bias)
        if weights.shape[0] * weights.shape[1] * self.dtype.itemsize > LARGEST_FILE:
            raise ValueError(
                f"Weights of {weights.shape[0]} labels and {weights.shape[1]} features are {TOO_LARGE}"
            )
        return self.add("Add", self.add("MatMul", x, self.numbers(_dense(weights).T)), self.numbers(bias))

    def _sparse_affine(self, x: str, weights: Any, bias: Any) -> str:
        """Add x weights' + bias for sparse weights: a loop over rows that scatters products to labels."""
        if weights.nnz * (self.dtype.itemsize + 8) > LARGEST_FILE:
            raise ValueError(f"{weights.nnz} weights are {TOO_LARGE}")
        each = self.inner("each")
        row = f"{each.prefix}row"
        taken = each.add("Gather", row, each.constant(weights.col.astype(np.int32)))
        parts = each.add("Mul", taken, each.numbers(weights.data))
        labels = each.constant(weights.row.astype(np.int32))
        start = each.numbers(np.broadcast_to(bias, weights.shape[0]))
        scores = each.add("ScatterElements", start, labels, parts, axis=0, reduction="add")
        return self.scan(each, [(row, self.element)], [(scores, self.element)], [x], num_scan_inputs=1)

    def inner(self, name: str) -> Graph:
        """Return the body of a loop; its constants belong to the outer graph."""
        return Graph(self.dtype, f"{self.prefix}{name}_", self.tensors)

    def scan(self, body: Graph, inputs: list[Any], results: list[Any], given: list[str], **how: Any) -> Any:
        """Add a Scan with a body over `inputs` (pairs of name and element type, states first)."""
        make = onnx().helper.make_tensor_value_info
        graph = onnx().helper.make_graph(
            body.nodes,
            f"{body.prefix}body",
            [make(name, kind, None) for name, kind in inputs],
            [make(name, kind, None) for name, kind in results],
        )
        return self.add("Scan", *given, outputs=len(results), body=graph, **how)

    def kernel_scores(self, kernel: Kernel, x: str, basis: Any, coefficients: np.ndarray) -> str:
        """Add k(x, basis) @ coefficients; with a precomputed kernel `basis` are columns of x."""
        return self.add("MatMul", self.kernel(kernel, x, basis), self.numbers(coefficients))

    def kernel(self, kernel: Kernel, x: str, basis: Any) -> str:
        """Add the kernel values of the rows of x and a basis."""
        if kernel.function is not None:
            raise ValueError(
                "A callable kernel cannot be exported; use a kernel with a name, or kernel='precomputed'."
            )
        if kernel.name == "precomputed":
            values = self.add("Gather", x, self.constant(np.asarray(basis, np.int64)), axis=1)
        elif kernel.name == "chi2":
            values = self._chi2(kernel, x, _dense(basis))
        elif isinstance(basis, Clouds):
            values = self._clouded(kernel, x, basis)
        elif kernel.name == "rbf":
            values = self._rbf(kernel, x, _dense(basis))
        else:
            values = self.add("MatMul", x, self.numbers(_dense(basis).T))
            if kernel.name in ("poly", "sigmoid"):
                values = self.add("Mul", values, self.numbers(kernel.gamma))
                values = self.add("Add", values, self.numbers(kernel.coef0))
            if kernel.name == "poly":
                values = self.add("Pow", values, self.numbers(kernel.degree))
            elif kernel.name == "sigmoid":
                values = self.add("Tanh", values)
        return self.add("Add", values, self.numbers(kernel.offset)) if kernel.offset else values

    def _rbf(self, kernel: Kernel, x: str, basis: np.ndarray) -> str:
        """Add exp(-gamma max(|Mx|^2 + |Mz|^2 - 2 Mx.Mz, 0))."""
        if kernel.metric is not None:
            x, basis = self.add("MatMul", x, self.numbers(kernel.metric.T)), basis @ kernel.metric.T
        products = self.add("MatMul", x, self.numbers(2 * basis.T))
        norms = self.numbers((basis.astype(np.float64) ** 2).sum(axis=1))
        squares = self.add("Sub", self.add("Add", self.sums(self.add("Mul", x, x)), norms), products)
        distances = self.add("Max", squares, self.numbers(0.0))
        return self.add("Exp", self.add("Mul", distances, self.numbers(-kernel.gamma)))

    def _clouded(self, kernel: Kernel, x: str, clouds: Clouds) -> str:
        """Add exp(-gamma sum_f (u_f - v_f)^2 / (1 + r_f)), where u = M (x - mean of the centres)."""
        middle = clouds.centres.astype(np.float64).mean(axis=0)
        u = self.add("Sub", x, self.numbers(middle))
        if kernel.metric is not None:
            u = self.add("MatMul", u, self.numbers(kernel.metric.T))
        weights = clouds.weights(kernel.gamma, kernel.apply_metric(clouds.centres - middle))
        squares, products, constant = np.split(weights, [clouds.centres.shape[1], -1])
        exponents = self.add("MatMul", self.add("Mul", u, u), self.numbers(squares))
        exponents = self.add("Add", exponents, self.add("MatMul", u, self.numbers(products)))
        exponents = self.add("Add", exponents, self.numbers(constant[0]))
        return self.add("Exp", self.add("Min", exponents, self.numbers(0.0)))

    def _chi2(self, kernel: Kernel, x: str, basis: np.ndarray) -> str:
        """Add exp(-gamma sum_d (x_d - z_d)^2 / (x_d + z_d)), in a loop over basis vectors z."""
        each = self.inner("each")
        z = f"{each.prefix}z"
        difference, total = each.add("Sub", x, z), each.add("Add", x, z)
        nothing = each.add("Equal", total, each.numbers(0.0))
        whole = each.add("Where", nothing, each.numbers(1.0), total)
        terms = each.add("Div", each.add("Mul", difference, difference), whole)
        distance = each.add("ReduceSum", terms, each.constant(np.array([1])), keepdims=0)
        kinds = [(z, self.element)], [(distance, self.element)]
        distances = self.scan(each, *kinds, [self.numbers(basis)], num_scan_inputs=1)
        scaled = self.add("Mul", self.add("Transpose", distances, perm=[1, 0]), self.numbers(-kernel.gamma))
        return self.add("Exp", scaled)

    def interpolated(self, column: str, x: np.ndarray, y: np.ndarray) -> str:
        """Add the piecewise linear curve through (x, y), constant beyond the ends, of a column of numbers."""
        if len(x) == 1:
            flat = self.add("Mul", column, self.numbers(0.0))
            return self.add("Add", flat, self.numbers(y[0]))
        past = self.add("Div", self.add("Sub", column, self.numbers(x[:-1])), self.numbers(np.diff(x)))
        part = self.add("Clip", past, self.numbers(0.0), self.numbers(1.0))
        rises = self.add("MatMul", part, self.numbers(np.diff(y)[:, None]))
        return self.add("Add", rises, self.numbers(y[0]))


def _dense(values: Any) -> np.ndarray:
    return values.toarray() if sp.issparse(values) else np.asarray(values)
