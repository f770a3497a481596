"""The scikit-learn estimator.

estimator.py     GPRegressor: fit and update; fitting.py: how it finds its posterior; prediction.py: what it answers
counting.py      weights and copies of rows; outputs.py: several outputs
frames.py        data frames as inputs; fingerprints.py: molecules as inputs; scaffolds.py: splits of molecules
preparation.py   scales, transform and trend before learning: units.py, warps.py, and choices.py, which chooses them
conditioning.py  valid input, copies, one deadline, how a model is learned and conditioned
effects.py       importances of columns and partial dependence
callbacks.py     scikit-learn's callbacks
"""
