"""What a wrapper takes is what its estimator takes; a kernel matrix is cut in both directions."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn import get_config
from sklearn.base import MetaEstimatorMixin
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import has_fit_parameter, validate_data

from maxmargin.core.sparse_format import check_format
from maxmargin.edge.estimator import warn

PASSED_ON = ("sparse", "pairwise", "positive_only")


class Wrapper(MetaEstimatorMixin):
    """Passes arguments of `fit` on to `estimator`, as scikit-learn's wrappers do."""

    # The parameter that may be a splitter, and what weights of samples count in besides the estimator.
    _splitter: ClassVar[str | None] = "cv"
    _weighed: ClassVar[str | None] = None

    def get_metadata_routing(self) -> MetadataRouter:
        """Say which arguments of `fit` the estimator and the splitter request.

        Returns
        -------
        MetadataRouter
            See scikit-learn's user guide on metadata routing.
        """
        router = MetadataRouter(owner=type(self).__name__).add_self_request(self)
        of_fit = MethodMapping().add(caller="fit", callee="fit")
        router.add(estimator=self.estimator, method_mapping=of_fit)
        if self._splitter is not None:
            of_split = MethodMapping().add(caller="fit", callee="split")
            router.add(splitter=getattr(self, self._splitter), method_mapping=of_split)
        return router

    def _routed(self, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The arguments of `fit` for the estimator, and those for the splitter.

        With metadata routing they are those requested. Without it all go to the estimator, weights to the
        last step of a Pipeline.
        """
        given = {name: value for name, value in given.items() if value is not None}
        if get_config()["enable_metadata_routing"]:
            routed = process_routing(self, "fit", **given)
            return routed["estimator"]["fit"], routed["splitter"]["split"] if self._splitter else {}
        weight = given.pop("sample_weight", None)
        if weight is None:
            return given, {}
        name = weight_name(self.estimator)
        if name is not None:
            return {**given, name: weight}, {}
        what = f"{type(last_step(self.estimator)).__name__} takes no sample_weight in fit"
        if self._weighed is None:
            raise ValueError(f"{what}; leave the weights out, or choose an estimator that takes them.")
        warn(f"{what}; the weights count in the {self._weighed} alone.")
        return given, {}


def last_step(model: Any) -> Any:
    """The estimator at the end of a pipeline, or the model itself."""
    return model.steps[-1][1] if hasattr(model, "steps") else model


def weight_name(estimator: Any) -> str | None:
    """The argument of `fit` for weights of samples, that of the last step in a Pipeline; None without one."""
    if hasattr(estimator, "steps"):
        step, last = estimator.steps[-1]
        name = weight_name(last)
        return None if name is None else f"{step}__{name}"
    return "sample_weight" if has_fit_parameter(estimator, "sample_weight") else None


def pass_on_input(tags: Any, estimator: Any) -> Any:
    """The tags of a wrapper, with what its estimator says of X."""
    inner = get_tags(estimator).input_tags
    for name in PASSED_ON:
        setattr(tags.input_tags, name, getattr(inner, name))
    return tags


def takes_kernel(estimator: Any) -> bool:
    """Whether X is a square matrix of values for pairs of samples."""
    return bool(get_tags(estimator).input_tags.pairwise)


def read_input(wrapper: Any, X: Any, *, reset: bool = False) -> Any:
    """X as it is, which the estimator will check; what must hold before X is cut is checked here."""
    X = check_format(X, "X")
    tags = get_tags(wrapper.estimator).input_tags
    if not tags.pairwise:
        return X
    finite = not tags.allow_nan
    K = validate_data(
        wrapper, X, reset=reset, accept_sparse="csr" if tags.sparse else False, ensure_all_finite=finite
    )
    if reset and K.shape[0] != K.shape[1]:
        raise ValueError(
            f"X must be the square matrix of kernel values of the training samples. Got shape {K.shape} "
            "instead."
        )
    return K


def tell_width(wrapper: Any, model: Any) -> None:
    """Width and names of X as the fitted estimator tells them; those of a kernel matrix are read already."""
    if takes_kernel(wrapper.estimator):
        return
    for name in ("n_features_in_", "feature_names_in_"):
        wrapper.__dict__.pop(name, None)
        if hasattr(model, name):
            setattr(wrapper, name, getattr(model, name))


def cut_rows(estimator: Any, X: Any, rows: np.ndarray, fitted: np.ndarray | None = None) -> Any:
    """Some rows of X; of a kernel matrix their values with the samples `fitted`, or with one another."""
    part = _safe_indexing(X, rows)
    return cut_columns(part, rows if fitted is None else fitted) if takes_kernel(estimator) else part


def cut_columns(K: Any, fitted: np.ndarray) -> Any:
    """The kernel values with the samples `fitted`."""
    return _safe_indexing(K, fitted, axis=1)
