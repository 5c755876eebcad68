"""`to_onnx` converts a fitted model to ONNX, and `register_converters` teaches skl2onnx to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from maxmargin._names import ESTIMATORS, VERSION
from maxmargin.baselines import ThresholdTuner
from maxmargin.decisions.calibrated import Calibrated
from maxmargin.decisions.sets import LabelSets
from maxmargin.decisions.tree import TreeLabels
from maxmargin.edge.wrappers import last_step
from maxmargin.export.columns import is_table
from maxmargin.export.graph import IR_VERSION, OPSET, OUTPUTS, Graph, onnx
from maxmargin.export.models import Answers, answers, space_of
from maxmargin.structured.chain import ChainSVC
from maxmargin.structured.latent import LatentSVC

# Versions of the operator domains for strings and categories.
DOMAINS = {"ai.onnx.ml": 3, "com.microsoft": 1}
VECTORISERS = ("CountVectorizer", "TfidfVectorizer")


def to_onnx(
    model: Any,
    outputs: Sequence[str] | None = None,
    dtype: Any = np.float64,
    *,
    columns: Sequence[str] = (),
) -> Any:
    """Convert a fitted model to an ONNX model with the same predictions.

    Its input is "X" (n_samples x n_features), or a column of strings if a pipeline starts with a vectoriser.
    For a `LatentSVC` the input is one bag of candidates, for a `ChainSVC` one sequence. After
    `maxmargin.prepare` every column of the table is an input with its own name (n_samples x 1), of numbers
    or strings; NaN and the empty string are missing values.

    Parameters
    ----------
    model : fitted estimator of this package
        Also `Calibrated`, `LabelSets`, `TreeLabels`, `baselines.ThresholdTuner` around one, and a Pipeline
        that ends in one of these, after scalers or any steps that skl2onnx supports.
    outputs : sequence of {"labels", "scores", "probabilities"}, default=None
        The outputs of `predict`, `decision_function` and `predict_proba`. None means all that the model
        has; only `Calibrated` has probabilities.
    dtype : {numpy.float64, numpy.float32}, default=numpy.float64
        Precision of X and of all arithmetic. In single precision scores differ in the seventh digit,
        and predictions can differ if a score is that close to its threshold.
    columns : sequence of str, default=()
        Names of the columns of a table, if `maxmargin.prepare` was fitted without names.

    Returns
    -------
    onnx.ModelProto
        ``model.SerializeToString()`` is the content of a file. "labels" are the classes, strings or
        numbers; for several labels per sample they are 0/1 (-1/+1) columns. Their names are in the
        metadata of the model under "labels", as JSON.

    Notes
    -----
    Only primitive operators of opset 17 are used. Strings need onnxruntime, which splits them into words,
    and the locale C.UTF-8. A `SubmodularSVC` with interactions and callable kernels are refused.

    Examples
    --------
    >>> import numpy as np
    >>> from maxmargin import MultiLabelSVC, to_onnx
    >>> X, Y = np.eye(4), [[0, 1], [1, 0], [1, 1], [0, 0]]
    >>> proto = to_onnx(MultiLabelSVC(random_state=0).fit(X, Y))          # doctest: +SKIP
    >>> [output.name for output in proto.graph.output]                    # doctest: +SKIP
    ['labels', 'scores']
    """
    onnx()
    check_is_fitted(model)
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise ValueError(f"dtype must be numpy.float64 or numpy.float32. Got {dtype!r} instead.")
    if outputs is not None and (isinstance(outputs, str) or not set(outputs) <= set(OUTPUTS) or not outputs):
        raise ValueError(f"outputs must be names among {', '.join(OUTPUTS)}. Got {outputs!r} instead.")
    if isinstance(model, Pipeline) and not _is_ours(model):
        return _converted(model, outputs, dtype)
    helper = onnx().helper
    # The prefix separates intermediate results from columns of a table.
    graph = Graph(dtype, "/", columns=columns or getattr(model, "feature_names_in_", ()))
    found = answers(model, graph, "X")
    names = _wanted(found, outputs, model)
    for name in names:
        graph.name(getattr(found, name), name)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    n = None if isinstance(last_step(model), (ChainSVC, LatentSVC)) else "n_samples"
    inputs = list(graph.inputs.values())
    inputs = inputs or [helper.make_tensor_value_info("X", kind, [n, int(model.n_features_in_)])]
    results = [_result(model, name, kind) for name in names]
    proto = helper.make_model(
        helper.make_graph(graph.nodes, type(last_step(model)).__name__, inputs, results, graph.tensors),
        opset_imports=[
            helper.make_opsetid("", OPSET),
            *(helper.make_opsetid(domain, DOMAINS[domain]) for domain in sorted(graph.domains)),
        ],
        ir_version=IR_VERSION,
        producer_name="maxmargin",
        producer_version=VERSION,
    )
    _note(proto, model)
    onnx().checker.check_model(proto)
    return proto


def _wanted(found: Answers, outputs: Sequence[str] | None, model: Any) -> list[str]:
    there = [name for name in OUTPUTS if getattr(found, name) is not None]
    for name in outputs or ():
        if name not in there:
            remedy = f"it has {', '.join(there)}"
            if name == "probabilities":
                remedy = "wrap it in maxmargin.Calibrated, or fit it with --probabilities"
            raise ValueError(f"A {type(last_step(model)).__name__} has no {name}; {remedy}.")
    return there if outputs is None else list(outputs)


def _result(model: Any, name: str, kind: int) -> Any:
    helper, types = onnx().helper, onnx().TensorProto
    inner = last_step(model)
    if isinstance(inner, ChainSVC) or (isinstance(inner, Calibrated) and not hasattr(inner, "_labels")):
        return helper.make_tensor_value_info("labels", _element(inner.classes_), [None])
    space = space_of(inner)
    sets = isinstance(inner, LabelSets)
    if name == "labels" and space.single_label and not sets:
        return helper.make_tensor_value_info(name, _element(space.classes), [None])
    flat = name == "scores" and space.kind == "binary" and not sets
    shape = [None] if flat else [None, len(space.classes)]
    return helper.make_tensor_value_info(name, types.INT64 if name == "labels" else kind, shape)


def _element(classes: np.ndarray) -> int:
    types = onnx().TensorProto
    return {"b": types.INT64, "i": types.INT64, "u": types.INT64, "f": types.DOUBLE}.get(
        classes.dtype.kind, types.STRING
    )


def _note(proto: Any, model: Any) -> None:
    """Store the names of labels and features as metadata."""
    about = {"labels": [str(name) for name in last_step(model).classes_.tolist()]}
    names = getattr(model, "feature_names_in_", None)
    if names is not None:
        about["features"] = [str(name) for name in names]
    onnx().helper.set_model_props(proto, {key: json.dumps(value) for key, value in about.items()})


def _is_ours(model: Pipeline) -> bool:
    """Whether this package exports all steps before the last."""
    scalers = {"StandardScaler", "MaxAbsScaler", "MinMaxScaler", "RobustScaler", "Normalizer"}
    known = scalers | {"NamedColumns", "SimpleImputer"}
    return all(
        step in (None, "passthrough") or type(step).__name__ in known or is_table(step)
        for _, step in model.steps[:-1]
    )


def _converted(model: Pipeline, outputs: Sequence[str] | None, dtype: Any) -> Any:
    """Convert a pipeline by skl2onnx, which supports the steps before the last."""
    register_converters()
    from skl2onnx import convert_sklearn
    from skl2onnx.common.data_types import DoubleTensorType, FloatTensorType, StringTensorType

    first = model.steps[0][1]
    texts = type(first).__name__ in VECTORISERS
    # The output of vectorisers has single precision.
    number = FloatTensorType if texts or np.dtype(dtype) == np.float32 else DoubleTensorType
    given = StringTensorType([None, 1]) if texts else number([None, model.n_features_in_])
    proto = convert_sklearn(model, initial_types=[("X", given)], target_opset={"": OPSET, "ai.onnx.ml": 3})
    there = [output.name for output in proto.graph.output]
    for name in outputs or ():
        if name not in there:
            raise ValueError(f"The pipeline has no {name}; it has {', '.join(there)}.")
    kept = [output for output in proto.graph.output if outputs is None or output.name in outputs]
    del proto.graph.output[:]
    proto.graph.output.extend(kept)
    _note(proto, model)
    return proto


def register_converters() -> None:
    """Register the estimators of this package with skl2onnx, for ``skl2onnx.to_onnx(pipeline)``.

    `to_onnx` calls this itself.
    """
    try:
        from skl2onnx import update_registered_converter
    except ImportError as error:
        raise ImportError(
            "Pipelines with such steps need the package skl2onnx; pip install skl2onnx."
        ) from error
    for cls in (*_estimators(), Calibrated, LabelSets, TreeLabels, ThresholdTuner):
        update_registered_converter(
            cls, f"MaxMargin{cls.__name__}", _shapes, _convert, parser=_parse, overwrite=True
        )


def _estimators() -> list[type]:
    import importlib

    return [
        getattr(importlib.import_module(module), name)
        for name, module in ESTIMATORS.items()
        if name not in ("StreamRanker", "ChainSVC", "LatentSVC")
    ]


def _parse(scope: Any, model: Any, inputs: list[Any], custom_parsers: Any = None) -> list[Any]:
    """Declare the outputs, their names and types."""
    from skl2onnx.common.data_types import (
        DoubleTensorType,
        FloatTensorType,
        Int64TensorType,
        StringTensorType,
    )

    operator = scope.declare_local_operator(f"MaxMargin{type(model).__name__}", model)
    operator.inputs = inputs
    types = onnx().TensorProto
    kinds = {
        types.FLOAT: FloatTensorType,
        types.DOUBLE: DoubleTensorType,
        types.INT64: Int64TensorType,
        types.STRING: StringTensorType,
    }
    found = answers(model, Graph(np.float64), "X")
    for name in _wanted(found, None, model):
        result = _result(model, name, types.DOUBLE).type.tensor_type
        operator.outputs.append(scope.declare_local_variable(name, kinds[result.elem_type]()))
    return operator.outputs


def _shapes(operator: Any) -> None:
    """The parser has declared the shapes."""


def _convert(scope: Any, operator: Any, container: Any) -> None:
    """Add the graph of a model to that of skl2onnx, in double precision."""
    graph = Graph(np.float64, scope.get_unique_operator_name("maxmargin") + "_")
    found = answers(operator.raw_operator, graph, graph.cast(operator.inputs[0].full_name, np.float64))
    for output in operator.outputs:
        graph.name(getattr(found, output.raw_name), output.full_name)
    for node in graph.nodes:
        container.nodes.append(node)
    for tensor in graph.tensors:
        container.initializers.append(tensor)
    container.node_domain_version_pair_sets.add(("", OPSET))
