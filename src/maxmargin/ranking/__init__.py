"""Online label ranking (Shalev-Shwartz, Singer 2007)."""

# Number in the paper -> where it is computed.
EQUATIONS: dict[str, str] = {
    "(1)": "loops.hinge_losses",
    "(2)": "problem.RankingProblem.mistake_bound",
    "(3)": "problem.RankingProblem.primal",
    "(4)": "problem.RankingState.conjugate",
    "(5)": "problem.RankingProblem.dual",
    "(6)": "loops.add_steps",
    "Lemma 1": "problem.RankingProblem.mistake_bound",
    "(7)": "step_loops.worst_pair",
    "(8)": "loops.find_step",
    "(9)": "step_loops.pair_step",
    "(10)": "loops.find_step",
    "(11)": "step_loops.water_fill",
    "(12)": "interior_loops.interior_path",
    "(16)": "interior_loops.residuals",
    "(17)": "interior_loops.newton_direction",
    "(18)": "interior_loops.newton_direction",
    "(19)": "interior_loops.newton_direction",
    "(20)": "interior_loops.newton_direction",
    "(24)": "loops.track_threshold",
    "(28)": "problem.RankingProblem.dual",
}
