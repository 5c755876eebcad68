"""Machines with one simplex per sample: multi-class, chains, latent candidates (Mohapatra et al. 2016)."""

# Where the equations of "Partial linearization based optimization for multi-class SVM" are, for
# answers that an oracle finds (structured and latent SVM), and the programs behind the oracles.
EQUATIONS: dict[str, str] = {
    "(11)": "chain_problem.ChainProblem.primal",
    "(12)": "chain_problem.ChainProblem.dual",
    "(9), chains": "chain_marginal_loops.soft_target",
    "(9), bags": "latent_loops.soften",
    "(10)": "oracle_loops.bcpl_epoch",
    "(12), bags": "latent_rounds.LatentProblem.dual",
    "Algorithm 2": "oracle_loops.bcpl_epoch",
    "Algorithm 2 with tau = 0 (BCFW)": "chain_marginal_loops.bcfw_epoch",
    "Algorithm 2 with gamma = 1 (OEG)": "chain_marginal_loops.oeg_epoch",
    "Viterbi": "chain_loops.viterbi",
    "forward-backward": "chain_loops.forward_backward",
    "CCCP": "latent_rounds.LatentRounds",
}
