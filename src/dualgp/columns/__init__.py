"""How the columns of a table become inputs.

tables.py    reading files and frames: one kind of table inside
types.py     the types of columns, a class each: numbers, ranks, categories, levels, times. A new one goes there
levels.py    what the levels of a text column do to the target
encoding.py  which type a column has, and the inputs of all of them
"""
