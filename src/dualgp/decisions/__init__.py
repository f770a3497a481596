"""Decisions: where functions are highest (maxima.py), and which experiments to do next (thompson.py)."""
