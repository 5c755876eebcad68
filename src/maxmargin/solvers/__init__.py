"""One file per algorithm: the epochs and the state they move."""
