"""From scores to decisions: probabilities that can be believed, and sets of labels with a promise."""
