"""Run every race, one module after the other: `python -m benchmarks [--small]`."""

import pkgutil
import subprocess
import sys

import benchmarks

HELPERS = {"__main__", "measure", "problems", "competitors", "ranking_peers"}

for module in pkgutil.iter_modules(benchmarks.__path__):
    if module.name not in HELPERS:
        print(f"== {module.name}", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.{module.name}", *sys.argv[1:]], check=True)
