"""A kernel of your own: a class with its formula and the lengths of its frequencies. Everything else follows."""

import tempfile

import jax
import jax.numpy as jnp
import numpy as np

import dualgp as dg
from dualgp.kernels.stationary import Stationary


class RationalQuadratic(Stationary):
    """1 / (1 + r^2 / 2): a mixture of RBF kernels of all lengthscales (alpha = 1).

    It is exp(-g r^2 / 2) averaged over a standard exponential g: frequencies are those of an RBF times the root of g.
    """

    def profile(self, squared):
        return 1.0 / (1.0 + 0.5 * squared)

    def frequency_length(self, tail, d):
        """By sampling: the length has no closed form, and features only need it once."""
        rng = np.random.default_rng(0)
        lengths = np.sort(np.sqrt(rng.chisquare(d, 200_000) * rng.exponential(size=200_000)))
        return np.quantile(lengths, 1.0 - tail)


def main() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (1000, 2))
    y = np.sin(2 * x[:, 0]) + 0.1 * x[:, 1] + 0.1 * rng.normal(size=1000)

    kernel = RationalQuadratic(lengthscale=np.ones(2))
    phi = kernel.features(jax.random.key(0), 4096, 2)
    block = np.asarray(kernel(jnp.asarray(x[:5]), jnp.asarray(x[5:9])))
    print(f"Features match the kernel to {np.abs(np.asarray(phi(x[:5]) @ phi(x[5:9]).T) - block).max():.3f}")

    model = dg.GaussianProcess(kernel, noise=0.1).learn(x, y, key=jax.random.key(1))
    post = model.condition(x, y, key=jax.random.key(2))
    print(post.report())
    from_samples = np.std(post.samples(x[:5]), axis=0)
    print("Standard deviations, exact:       ", post.std(x[:5]).round(4))
    print("Standard deviations, 64 functions:", from_samples.round(4))
    with tempfile.NamedTemporaryFile(suffix=".dgp") as file:
        dg.save(post, file.name)
        same = dg.load(file.name, classes=[RationalQuadratic]).mean(x[:5])
    print("The same after loading:", bool(np.all(same == post.mean(x[:5]))))


if __name__ == "__main__":
    main()
