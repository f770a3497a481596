"""Random numbers of the host: independent by key and path, the same again, and of the caller's own kind of key."""

import jax
import numpy as np
import pytest

from dualgp._random import generator, independent_normals, subkey, subkeys

KEY = jax.random.key(0)


def draws(rng):
    return rng.standard_normal(2000)


def test_generators_of_a_key_are_independent_also_of_the_one_without_a_path():
    drawn = [draws(generator(KEY, *path)) for path in [(), (0,), (1,), (0, 0), (0, 1)]]
    drawn += [draws(generator(key)) for key in (jax.random.key(1), *subkeys(KEY, 3))]
    correlations = np.corrcoef(drawn) - np.eye(len(drawn))
    assert np.abs(correlations).max() < 0.1


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_subkeys_are_keys_like_their_parent_and_the_same_again(impl):
    key = jax.random.key(3, impl=impl)
    children = subkeys(key, 4)
    assert all(jax.random.key_impl(child) == jax.random.key_impl(key) for child in children)
    words = np.array([jax.random.key_data(child) for child in children])
    assert len(np.unique(words, axis=0)) == 4
    np.testing.assert_array_equal(words[2], jax.random.key_data(subkey(key, 2)))
    np.testing.assert_array_equal(words[:3], [jax.random.key_data(child) for child in subkeys(key, 3)])
    jax.random.normal(children[0], (2,))


def test_keys_of_the_old_kind_will_do():
    old = jax.random.PRNGKey(5)
    np.testing.assert_array_equal(*(jax.random.key_data(subkey(key, 1)) for key in (old, jax.random.key(5))))


def test_columns_of_normals_stay_the_same_whoever_draws_which_rows():
    whole = independent_normals(KEY, 50, 3)
    np.testing.assert_array_equal(independent_normals(KEY, 50, 5, slice(10, 20))[:, :3], whole[10:20])
