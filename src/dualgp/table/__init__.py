"""The table application: from a file to a model, predictions and a report.

cli/             the command `dualgp`
model.py         a fitted regressor with the table it was fitted to; fit_together.py: fitted by many processes
row_files.py     files of numbers that are read in shards; smiles.py: columns of molecules
report.py        one HTML page; advice.py: sentences about a fit
"""
