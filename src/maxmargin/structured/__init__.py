"""Machines with one simplex per sample: multi-class, chains, latent candidates (Mohapatra et al. 2016)."""

from __future__ import annotations

# Where the numbers of the paper are in the code.
EQUATIONS: dict[str, str] = {
    "(2)": "multiclass_problem.LinearMultiClass.evaluate",
    "(3)": "multiclass.MultiClassSVC._read_costs",
    "(4)": "multiclass_problem.Iterate.dual",
    "(5)": "multiclass_loops.shift_and_reduce",
    "(8)": "blocks.step_rule",
    "(9)": "multiclass_loops.block_move",
    "(10)": "batch.BatchSteps._step_length",
    "Algorithm 1": "batch.BatchSteps",
    "Algorithm 2": "blocks.BlockSteps",
}
