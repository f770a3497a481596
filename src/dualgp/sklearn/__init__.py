"""The scikit-learn front door.

estimator.py     GPRegressor: fit and update; fitting.py: how it finds its posterior; prediction.py: what it answers
counting.py      weights and copies of rows; outputs.py: units and predictions of several outputs
frames.py        data frames as inputs; fingerprints.py: molecules as inputs; scaffolds.py: splits of molecules
preparation.py   what happens to the data first: units.py, warps.py (the target's scale), choices.py (which of them)
conditioning.py  valid input, copies, one deadline, how a model is learned and conditioned
effects.py       what matters and how
callbacks.py     scikit-learn's callbacks
"""
