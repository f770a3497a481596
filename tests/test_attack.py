"""A small part of `make attack`, with fixed seeds: odd input, odd tables, promises against float64."""

import pytest

from attack import inputs, promises


def test_a_share_of_the_odd_calls_is_answered_or_refused_in_a_sentence():
    found = inputs.attack(share=0.03, seed=1)
    assert not any(found[kind] for kind in inputs.BAD), found
    assert found["sentence"] > 60 and found["finite"] > 30 and found["correct"] > 5


def test_a_share_of_the_odd_tables_is_answered_or_refused_in_a_sentence(tmp_path):
    pytest.importorskip("pyarrow", reason="tables need pyarrow")
    from attack import tables

    found = tables.attack(tmp_path, share=0.02, seed=1)
    assert not any(found[kind] for kind in inputs.BAD), found
    assert found["sentence"] > 8


def test_what_results_say_of_themselves_holds_against_a_dense_solution():
    found = promises.attack(number=16)
    assert found["checked"] >= 16 and not found["violated"], found
