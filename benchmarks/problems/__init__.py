"""The races, one file per model: problems, competitors and the columns of the tables.

Each file has a table RACES, name -> function of a `benchmarks.race.Setting`; `python -m benchmarks` runs
them. With `small` a race runs on little generated data, as a test.
"""
