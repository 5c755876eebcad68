"""Files: readers, writers, shipped data, models."""
