"""scikit-learn's own checks on `LabelRanker`."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from maxmargin import LabelRanker


@parametrize_with_checks(
    [
        LabelRanker(),
        LabelRanker(average=True, max_iter=2, tol=1.0),
        LabelRanker("fixed"),
        LabelRanker(weighting="idf"),
        LabelRanker(regulariser="entropy"),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)
