"""The runs for other processors: each takes its kernels and its level, and names what the machine lacks."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMPILED_FOR = """
import numpy as np
from threadpoolctl import threadpool_info
from maxmargin.core.jit import compiled

@compiled
def product(x, y):
    return x * y

np.ones(2) @ np.ones(2)
product(1.0, 2.0)
words = "".join(product.machine.inspect_asm().values()).split()
print(*{word for word in words if word in ("mulsd", "vmulsd")})
print(*(each["architecture"] for each in threadpool_info() if each["internal_api"] == "openblas"))
"""


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location("portable", ROOT / "tools" / "portable.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_level_that_the_processor_lacks_is_left_out(tool, monkeypatch, capsys):
    ran = []

    class Done:
        returncode = 1

    monkeypatch.setattr(tool, "levels_here", lambda: ["x86-64-v2"])
    monkeypatch.setattr(tool.subprocess, "run", lambda command, **more: ran.append(more["env"]) or Done())
    assert tool.main(["-q"]) == 1
    assert [each["NUMBA_CPU_NAME"] for each in ran] == ["x86-64-v2"]
    printed = capsys.readouterr().out
    assert printed.count("left out") == 2 and printed.endswith(
        "Failed on\nx86-64-v2 with the Nehalem kernels of OpenBLAS\n"
    )


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_a_run_compiles_for_its_level_and_takes_its_kernels(tool, monkeypatch, tmp_path):
    monkeypatch.delenv("NUMBA_CPU_NAME", raising=False)
    if "x86-64-v2" not in tool.levels_here():
        pytest.skip("no x86-64-v2 here")
    program = tmp_path / "program.py"
    program.write_text(COMPILED_FOR)
    environment = tool.environment("Nehalem", "x86-64-v2") | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    printed = subprocess.run(
        [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=True
    )
    # Numbers are multiplied by another instruction at the level above.
    instruction, *kernels = printed.stdout.split()
    assert instruction == "mulsd" and set(kernels) <= {"Nehalem"}
