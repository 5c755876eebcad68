"""Run races: `python -m benchmarks NAME [RACE ...]`, or all of them without a name.

python -m benchmarks --list                          # what there is
python -m benchmarks multilabel                      # all races of a model
python -m benchmarks chain training -p tol=1e-3      # one race, with a parameter of its own
python -m benchmarks multiclass letter --small       # on little made data, to see that it runs
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import json
import pkgutil
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import problems
from benchmarks.race import RESULTS, Setting

MODELS = [module.name for module in pkgutil.iter_modules(problems.__path__)]


def races(model: str) -> dict[str, Callable[..., None]]:
    """The races of a model."""
    return importlib.import_module(f"benchmarks.problems.{model}").RACES


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", nargs="?", choices=MODELS, metavar="NAME", help=", ".join(MODELS))
    parser.add_argument("races", nargs="*", metavar="RACE", help="races of the model; all by default")
    parser.add_argument("--list", action="store_true", help="say which races there are, and stop")
    parser.add_argument("--small", action="store_true", help="toy sizes on made data; keeps no results")
    parser.add_argument("--repeats", type=int, help="runs of each competitor; default: as the race says")
    parser.add_argument("--out", type=Path, help="folder of the results; default: benchmarks/results")
    parser.add_argument("-p", dest="given", action="append", default=[], metavar="NAME=JSON",
                        help="a parameter of the race; may be repeated")  # fmt: skip
    asked = parser.parse_args(words)
    chosen = [asked.model] if asked.model else MODELS
    if asked.list:
        for model in chosen:
            print(f"{model}: {', '.join(races(model))}")
        return 0
    given = {name: json.loads(value) for name, _, value in (word.partition("=") for word in asked.given)}
    setting = Setting(asked.small, asked.repeats, asked.out or (None if asked.small else RESULTS))
    warnings.simplefilter("ignore")
    for model in chosen:
        known = races(model)
        unknown = [name for name in asked.races if name not in known]
        if unknown:
            parser.error(f"{model} has no race {unknown[0]!r}; choose from {', '.join(known)}")
        for name in asked.races or known:
            print(f"== {model} {name}", flush=True)
            known[name](setting, **_taken(known[name], given))
    return 0


def _taken(race: Callable[..., None], given: dict[str, Any]) -> dict[str, Any]:
    """Those of the given parameters that a race has."""
    return {name: value for name, value in given.items() if name in inspect.signature(race).parameters}


if __name__ == "__main__":
    sys.exit(main())
