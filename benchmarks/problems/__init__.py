"""The races, one file per model: its problems, who takes part, and what the rows of its tables hold.

Each file has a table RACES, name -> function of a `benchmarks.race.Setting`; `python -m benchmarks` runs
them. With `small` a race is run on little data that is drawn at random, to see that it works.
"""
