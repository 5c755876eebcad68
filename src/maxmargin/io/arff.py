"""ARFF as Weka, Mulan and MEKA write it, dense and sparse, with the label XML of Mulan.

A nominal feature of two values becomes one 0/1 column (1 for the word that means yes, otherwise
for the second value); one of more values becomes one 0/1 column per value. In a sparse row an
attribute that is left out has the value 0 or, if nominal, its first declared value; that is how
Weka defines it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from maxmargin.io.arff_syntax import Header, read_header, unescape
from maxmargin.io.arff_table import Table
from maxmargin.io.columns import LabelColumns
from maxmargin.io.dataset import Dataset
from maxmargin.io.errors import DataFormatError
from maxmargin.io.files import PathLike, Progress, text_lines
from maxmargin.io.xml import LabelTree, read_label_xml

_MEKA = re.compile(r"-[cC]\s+(-?[0-9]+)")


def read_mulan(
    arff: PathLike,
    xml: PathLike,
    *,
    drop: Sequence[str] = (),
    encoding: str = "utf-8",
    dtype: Any = np.float64,
    progress: Progress | None = None,
) -> Dataset:
    """Read a Mulan data set: an ARFF file and the XML file that names its labels.

    Parameters
    ----------
    arff, xml : path-like
        The two files, plain or packed as .xz or .gz. Labels may stand in any column; Y has them in
        the order of the ARFF file. `extras["label_parents"]` holds, for nested labels, the column
        of each label's parent or -1.
    drop : sequence of str, default=()
        Attributes to leave out, such as identifiers.
    encoding : str, default="utf-8"
        Encoding of the ARFF file.
    dtype : {float64, float32}, default=float64
        Type of the features.
    progress : callable, default=None
        Called now and then with (bytes read, bytes in all) of the ARFF file as stored.
    """
    tree = read_label_xml(xml)
    data = _read(arff, tree, drop, encoding, dtype, progress)
    position = {name: k for k, name in enumerate(data.label_names)}
    column = [position[data.extras["labels_in_xml_order"][k]] for k in range(len(tree.names))]
    parents = np.full(len(column), -1)
    for k, parent in enumerate(tree.parents):
        if parent >= 0:
            parents[column[k]] = column[parent]
    return Dataset(
        data.X,
        data.Y,
        data.feature_names,
        data.label_names,
        source=data.source,
        extras={"label_parents": parents},
    )


def read_arff(
    path: PathLike,
    *,
    target: str | int | None = None,
    labels: Sequence[str] | int | str | None = None,
    label_prefix: str | None = None,
    drop: Sequence[str] = (),
    encoding: str = "utf-8",
    dtype: Any = np.float64,
    progress: Progress | None = None,
) -> Dataset:
    """Read an ARFF file whose label columns are told by exactly one of the first three arguments.

    Parameters
    ----------
    path : path-like
        The file, plain or packed as .xz or .gz.
    target : str or int, default=None
        One attribute that holds the class of each sample: its name or position.
    labels : list of str, int or "meka", default=None
        One 0/1 attribute per label: their names, how many of the last attributes (negative: of the
        first), or "meka" for the `-C` option in the relation's name.
    label_prefix : str, default=None
        One 0/1 attribute per label: those whose name starts so.
    drop, encoding, dtype, progress
        As in `read_mulan`.

    Returns
    -------
    Dataset
        X and an indicator Y are dense, or CSR when the rows of the file are sparse.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "tiny.arff"
    >>> _ = path.write_text('''@relation tiny
    ... @attribute 'body size' numeric
    ... @attribute colour {red, green, blue}
    ... @attribute sweet {0, 1}
    ... @data
    ... 1.5, green, 1
    ... ?, red, 0
    ... ''')
    >>> data = read_arff(path, labels=["sweet"])
    >>> data.feature_names
    ('body size', 'colour=red', 'colour=green', 'colour=blue')
    >>> data.X.tolist(), data.Y.tolist()
    ([[1.5, 0.0, 1.0, 0.0], [nan, 1.0, 0.0, 0.0]], [[1], [0]])
    """
    if labels == "meka":
        if target is not None or label_prefix is not None:
            raise ValueError("Say where the labels are: give exactly one of target, labels and label_prefix.")
        return _read(path, "meka", drop, encoding, dtype, progress)
    return _read(path, LabelColumns(target, labels, label_prefix), drop, encoding, dtype, progress)


def _read(
    path: PathLike,
    where: LabelColumns | LabelTree | str,
    drop: Sequence[str],
    encoding: str,
    dtype: Any,
    progress: Progress | None,
) -> Dataset:
    lines = text_lines(path, encoding, progress)
    header = read_header(path, lines)
    names = [attribute.name for attribute in header.attributes]
    absent = [name for name in drop if name not in names]
    if absent:
        raise DataFormatError(f"no attribute is called {absent[0]!r} (to drop)", path, header.data_line)
    in_xml_order: list[str] = []
    if isinstance(where, LabelTree):
        found = _match(where.names, names, path, header.data_line)
        in_xml_order = [names[j] for j in found]
        label_columns = sorted(found)
    else:
        where = _meka_columns(header, path) if isinstance(where, str) else where
        label_columns = where.find(names, path, header.data_line)
    table = Table(
        path, header, label_columns, isinstance(where, LabelColumns) and where.target is not None, drop
    )
    table.read(lines)
    return table.dataset(dtype, {"labels_in_xml_order": in_xml_order} if in_xml_order else {})


def _meka_columns(header: Header, path: PathLike) -> LabelColumns:
    option = _MEKA.search(header.relation)
    if option is None:
        raise DataFormatError("the relation's name has no MEKA option -C n", path, 1)
    return LabelColumns(labels=-int(option.group(1)))  # MEKA counts from the front, negative from the end


def _match(wanted: Sequence[str], names: list[str], path: PathLike, line: int) -> list[int]:
    """Positions of the labels of the XML; a backslash before a quote may stand in either file."""
    exact = {name: j for j, name in enumerate(names)}
    loose = {unescape(name): j for j, name in enumerate(names)}
    found = []
    for name in wanted:
        position = exact.get(name, loose.get(unescape(name)))
        if position is None:
            raise DataFormatError(f"label {name!r} of the XML file is not an attribute", path, line)
        found.append(position)
    if len(set(found)) < len(found):
        raise DataFormatError("two labels of the XML file name the same attribute", path, line)
    return found
