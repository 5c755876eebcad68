"""
Attributes of animals that were never seen in training
======================================================

A classifier of attributes ("black", "has hooves", "swims") is trained on images of 40 animals and
asked about images of ten others. What is known of these ten is a list of attributes per animal. The
prior `priors.from_categories` tells the classifier which attributes go together among them; it is
all that changes between the two models below.

Needs the Animals with Attributes data: set MAXMARGIN_DATA, or see `maxmargin.datasets.info("awa1")`.
"""

import numpy as np
from sklearn.metrics import hamming_loss

from maxmargin import MultiLabelSVC, datasets, priors

data = datasets.load("awa1")
unseen = data.extras["test_classes"]
signatures = data.extras["signatures"][unseen]
names = np.array(data.extras["class_names"])[unseen]

chosen = np.random.RandomState(0).choice(data.train, 500, replace=False)
X_train, Y_train = data.X[chosen], data.Y[chosen]
X_test, Y_test = data.X[data.test], data.Y[data.test]
true_names = np.array(data.extras["class_names"])[data.per_row["class_index"][data.test]]

for title, prior in (("independent labels", None), ("prior of the ten", priors.from_categories(signatures))):
    model = MultiLabelSVC(C=0.2, kernel="rbf", prior=prior, fit_intercept=False, random_state=0)
    model.fit(X_train, Y_train)
    wrong = hamming_loss(Y_test, model.predict(X_test))
    recognised = np.mean(names[model.predict_category(X_test, signatures)] == true_names)
    print(
        f"{title:20s} {100 * wrong:5.1f} % of the attributes wrong, {100 * recognised:4.1f} % of the animals "
        f"recognised (chance 10 %), relative gap {model.duality_gap_:.1e}"
    )
