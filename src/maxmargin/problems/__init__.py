"""One file per model: objective, dual, gap and the pieces a solver asks for."""
