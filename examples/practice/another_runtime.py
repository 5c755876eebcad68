"""
A model in another runtime
==========================

``to_onnx`` writes a fitted model as ONNX, from primitive operators, for services in
other languages, phones and browsers. In double precision its predictions equal those
of numpy. Probabilities and thresholds are exported too.

It needs ``pip install onnx onnxruntime``.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
import onnxruntime
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from maxmargin import Calibrated, MultiLabelSVC, datasets, to_onnx

train, test = datasets.load("yeast", "train"), datasets.load("yeast", "test")
svc = make_pipeline(StandardScaler(), MultiLabelSVC(kernel="rbf", random_state=0))
model = Calibrated(svc, cv=3).fit(train.X, train.Y)
rows = np.ascontiguousarray(test.X[np.arange(5000) % len(test.Y)], dtype=np.float64)

seconds, sizes, differences = {"numpy": 0.0}, {}, {}
start = time.perf_counter()
P = model.predict_proba(rows)
seconds["numpy"] = time.perf_counter() - start
for name, dtype in (("ONNX, double", np.float64), ("ONNX, single", np.float32)):
    file = to_onnx(model, dtype=dtype).SerializeToString()
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    start = time.perf_counter()
    (found,) = session.run(["probabilities"], {"X": rows.astype(dtype)})
    seconds[name] = time.perf_counter() - start
    differences[name] = float(np.abs(found - P).max())
    print(f"{name}: {len(file)} bytes, probabilities differ by {differences[name]:.1e}")
labels = session.run(["labels"], {"X": rows.astype(np.float32)})[0]
print("entries of the answers that differ, single:", (labels != (P > 0.5)).sum())

# %%
# Seconds of one run, on the machine that built this page.

fig, axis = plt.subplots()
axis.barh(list(seconds), list(seconds.values()))
axis.invert_yaxis()
axis.set(xlabel="seconds for 5000 rows")
plt.show()
