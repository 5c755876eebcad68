"""Competitors: one file per peer, our estimators, and a null competitor that does nothing.

A peer is imported when it is first called, so that a missing one costs nobody else the race. Adapters of
one kind of race have the same arguments and answers, so that everybody is judged by the same objective:

multilabel    fit(problem, tol) -> weights (labels x features) and intercepts
multiclass    fit(problem, tol) -> weights (classes x features)
kernel        fit(problem) -> model; coefficients(problem, model) -> signed coefficients, intercepts, offset
ranking       learn(X, y, n_classes) -> seconds, mistakes: X is CSR of word presence, y holds class numbers,
              `mistakes` says per round whether the label predicted before learning was wrong. Preparation
              that a user would do once (dictionaries, parsed examples) is not timed unless told so.
cuts          cut(scores, index, weight) -> sets, one cut of the same graph for each row of scores; ours takes
              what `ours.graph` makes of index and weight
"""
