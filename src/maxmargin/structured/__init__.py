"""Machines with one simplex per sample: multi-class, chains, latent candidates (Mohapatra et al. 2016)."""

from __future__ import annotations

# Where the equations of "Partial linearization based optimization for multi-class SVM" are: for classes, for
# answers that an oracle finds (chains, bags of candidates), and the programs behind the oracles.
EQUATIONS: dict[str, str] = {
    "(2)": "multiclass_problem.LinearMultiClass.evaluate",
    "(3)": "multiclass.MultiClassSVC._read_costs",
    "(4)": "multiclass_problem.Iterate.dual",
    "(5)": "multiclass_loops.shift_and_reduce",
    "(8)": "paper_steps.step_rule",
    "(9)": "multiclass_loops.block_move",
    "(9), chains": "chain_paper_loops.soft_target",
    "(9), bags": "latent_loops.soften",
    "(10)": "paper_steps.BatchSteps._step_length",
    "(10), chains and bags": "oracle_loops.bcpl_epoch",
    "(11)": "chain_problem.ChainProblem.primal",
    "(12)": "chain_problem.ChainProblem.dual",
    "(12), bags": "latent_rounds.LatentProblem.dual",
    "Algorithm 1": "paper_steps.BatchSteps",
    "Algorithm 2": "paper_steps.BlockSteps",
    "Algorithm 2, chains and bags": "oracle_loops.bcpl_epoch",
    "Algorithm 2 with tau = 0, chains": "chain_paper_loops.bcfw_epoch",
    "Algorithm 2 with gamma = 1, chains": "chain_paper_loops.oeg_epoch",
    "Viterbi": "chain_loops.viterbi",
    "forward-backward": "chain_loops.forward_backward",
    "CCCP": "latent_rounds.LatentRounds",
}
