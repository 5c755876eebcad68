"""A graph of ONNX operators under construction: constants, nodes, and the arithmetic of the kernels.

Only primitive operators are used (MatMul, Exp, ArgMax, ...): the operators for SVMs of the ONNX-ML
domain work in single precision and choose among labels in another way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from maxmargin.core.kernels import Clouds, Kernel

# Understood by every runtime since 2022.
OPSET, IR_VERSION = 17, 8
OUTPUTS = ("labels", "scores", "probabilities")
# Sparse weights stay sparse where fewer are there: a product with all of them is faster before.
SPARSE = 0.05
LARGEST_FILE = 2**31 - 2**20
TOO_LARGE = (
    "more than the 2 GiB that an ONNX file can hold; fit with a larger cull, which leaves small weights out, "
    "or export with dtype=numpy.float32."
)
NEEDS_ONNX = "Models are exported with the package onnx; pip install onnx."


def onnx() -> Any:
    """The package, which is needed for exports only."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError(NEEDS_ONNX) from error
    return onnx


class Graph:
    """Nodes and constants; every method that computes returns the name of its result."""

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
        # Names of the columns of a table, and those that are inputs: name -> description.
        self.columns = columns
        self.inputs: dict[str, Any] = {}

    @property
    def element(self) -> int:
        """The type of its numbers, as ONNX numbers types."""
        return onnx().helper.np_dtype_to_tensor_dtype(self.dtype)

    def constant(self, values: Any) -> str:
        """An array as it is: whole numbers, texts, booleans."""
        name = f"{self.prefix}c{len(self.tensors)}"
        self.tensors.append(onnx().numpy_helper.from_array(np.asarray(values), name))
        return name

    def numbers(self, values: Any) -> str:
        """Numbers in the precision of the graph."""
        return self.constant(np.ascontiguousarray(values, dtype=self.dtype))

    @property
    def domains(self) -> set[str]:
        """Where operators beside ONNX's own come from."""
        return {node.domain for node in self.nodes} - {""}

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """A node; several results come as a list."""
        place = f"{self.prefix}n{len(self.nodes)}"
        names = [place if k == 0 else f"{place}_{k}" for k in range(outputs)]
        self.nodes.append(onnx().helper.make_node(op, list(inputs), names, name=place, **attributes))
        return names[0] if outputs == 1 else names

    def column(self, name: str, text: bool) -> str:
        """A column of a table, n x 1, as an input; one that is called as an output is renamed."""
        kind = onnx().TensorProto.STRING if text else self.element
        name = f"column {name}" if name in OUTPUTS else name
        self.inputs[name] = onnx().helper.make_tensor_value_info(name, kind, ["n_samples", 1])
        return name

    def unit(self, x: str, norm: str) -> str:
        """Rows divided by their norms; a norm of zero leaves a row as it is."""
        nothing = self.add("Equal", norm, self.numbers(0.0))
        return self.add("Div", x, self.add("Where", nothing, self.numbers(1.0), norm))

    def name(self, result: str, name: str) -> None:
        """Give a result the name of an output."""
        self.nodes.append(onnx().helper.make_node("Identity", [result], [name], name=f"{self.prefix}{name}"))

    def sums(self, x: str) -> str:
        """Sum of every row, as a column."""
        return self.add("ReduceSum", x, self.constant(np.array([1])), keepdims=1)

    def cast(self, x: str, dtype: Any) -> str:
        return self.add("Cast", x, to=onnx().helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def affine(self, x: str, weights: Any, bias: Any) -> str:
        """x weights' + bias."""
        if sp.issparse(weights) and weights.nnz < SPARSE * weights.shape[0] * weights.shape[1]:
            return self._sparse_affine(x, weights.tocoo(), bias)
        if weights.shape[0] * weights.shape[1] * self.dtype.itemsize > LARGEST_FILE:
            raise ValueError(
                f"Weights of {weights.shape[0]} labels and {weights.shape[1]} features are {TOO_LARGE}"
            )
        return self.add("Add", self.add("MatMul", x, self.numbers(_dense(weights).T)), self.numbers(bias))

    def _sparse_affine(self, x: str, weights: Any, bias: Any) -> str:
        """The same where few weights are there: row by row, each added to the score of its label."""
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
        """The body of a loop; its constants stand outside."""
        return Graph(self.dtype, f"{self.prefix}{name}_", self.tensors)

    def scan(self, body: Graph, inputs: list[Any], results: list[Any], given: list[str], **how: Any) -> Any:
        """A Scan with a body over `inputs` (pairs of name and element type, states first)."""
        make = onnx().helper.make_tensor_value_info
        graph = onnx().helper.make_graph(
            body.nodes,
            f"{body.prefix}body",
            [make(name, kind, None) for name, kind in inputs],
            [make(name, kind, None) for name, kind in results],
        )
        return self.add("Scan", *given, outputs=len(results), body=graph, **how)

    def kernel_scores(self, kernel: Kernel, x: str, basis: Any, coefficients: np.ndarray) -> str:
        """k(x, basis) @ coefficients; with a precomputed kernel `basis` are columns of x."""
        return self.add("MatMul", self.kernel(kernel, x, basis), self.numbers(coefficients))

    def kernel(self, kernel: Kernel, x: str, basis: Any) -> str:
        """Values of a kernel between the rows of x and those of a basis."""
        if kernel.function is not None:
            raise ValueError(
                "A kernel that is a function of your own cannot be exported; use one that has a name, or "
                "kernel='precomputed'."
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
        """exp(-gamma (|x|^2 + |z|^2 - 2 x.z)), the distance cut off at zero, of rows that went through M."""
        if kernel.metric is not None:
            x, basis = self.add("MatMul", x, self.numbers(kernel.metric.T)), basis @ kernel.metric.T
        products = self.add("MatMul", x, self.numbers(2 * basis.T))
        norms = self.numbers((basis.astype(np.float64) ** 2).sum(axis=1))
        squares = self.add("Sub", self.add("Add", self.sums(self.add("Mul", x, x)), norms), products)
        distances = self.add("Max", squares, self.numbers(0.0))
        return self.add("Exp", self.add("Mul", distances, self.numbers(-kernel.gamma)))

    def _clouded(self, kernel: Kernel, x: str, clouds: Clouds) -> str:
        """exp(-gamma sum_f (u_f - v_f)^2 / (1 + r_f)), u = M x seen from the middle of the centres."""
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
        """exp(-gamma sum_d (x_d - z_d)^2 / (x_d + z_d)), a basis vector at a time."""
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
        """The piecewise linear curve through the knots (x, y), flat beyond them, at a column of numbers."""
        if len(x) == 1:
            flat = self.add("Mul", column, self.numbers(0.0))
            return self.add("Add", flat, self.numbers(y[0]))
        past = self.add("Div", self.add("Sub", column, self.numbers(x[:-1])), self.numbers(np.diff(x)))
        part = self.add("Clip", past, self.numbers(0.0), self.numbers(1.0))
        rises = self.add("MatMul", part, self.numbers(np.diff(y)[:, None]))
        return self.add("Add", rises, self.numbers(y[0]))


def _dense(values: Any) -> np.ndarray:
    return values.toarray() if sp.issparse(values) else np.asarray(values)
