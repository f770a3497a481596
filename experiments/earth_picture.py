"""How experiments/earth.py draws: the Earth from space, coloured by height and lit from the north-west."""

from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.colors import LinearSegmentedColormap

DRAWN = ("dualgp", "SVGP")
PICTURES = Path(__file__).parents[1] / "docs" / "pictures"
NIGHT, LIGHT = "#0c1424", "#dfe6f0"
SEA = ["#081d40", "#0f3a6e", "#1f6298", "#4a93bd", "#9ccbdd"]  # from 6 km below to the coast
LAND = ["#4f7f4b", "#8fa861", "#cdbb7d", "#a97f55", "#8b6a55", "#f4f4f2"]  # from the coast to 6 km above
COLOURS = LinearSegmentedColormap.from_list(
    "relief", [*zip(np.linspace(0, 0.4999, 5), SEA, strict=True), *zip(np.linspace(0.5, 1, 6), LAND, strict=True)]
)


class View(NamedTuple):
    """What a camera far away sees above a place: a disc of `radius` earth radii, `pixels` wide."""

    longitude: float
    latitude: float
    radius: float
    pixels: int

    def _plane(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        side = self.radius * (np.arange(self.pixels) + 0.5 - self.pixels / 2) / (self.pixels / 2)
        right, up = np.meshgrid(side, -side)
        return right, up, np.hypot(right, up) < min(1.0, self.radius * 2)

    def places(self) -> np.ndarray:
        """Longitude and latitude of every pixel on the Earth."""
        right, up, seen = self._plane()
        right, up = right[seen], up[seen]
        depth, tilt = np.sqrt(1 - right**2 - up**2), np.radians(self.latitude)
        latitude = np.degrees(np.arcsin(np.clip(up * np.cos(tilt) + depth * np.sin(tilt), -1, 1)))
        turn = np.degrees(np.arctan2(right, depth * np.cos(tilt) - up * np.sin(tilt)))
        return np.stack([(self.longitude + turn + 180) % 360 - 180, latitude], axis=1)

    def image(self, values: np.ndarray) -> np.ndarray:
        """Values of the pixels on the Earth, as a picture with nothing elsewhere."""
        image = np.full((self.pixels, self.pixels), np.nan)
        image[self._plane()[2]] = values
        return image


GLOBE, PART = View(20.0, 30.0, 1.0, 760), View(14.0, 41.0, 0.17, 420)
VIEWS = (GLOBE, PART)


def relief(image: np.ndarray, view: View) -> np.ndarray:
    """Colours by height, darker on slopes that face away from a light in the north-west."""
    colours = COLOURS(np.clip(0.5 + image / 12, 0, 1))
    per_pixel = 2 * view.radius * 6371 / view.pixels
    down, right = np.gradient(np.where(np.isnan(image), 0, image), per_pixel)
    slope = np.tanh(30 * (down + right) / np.sqrt(2))
    shade = 1 + 0.35 * np.where(np.isnan(image), 0, slope)
    colours[..., :3] = np.clip(colours[..., :3] * shade[..., None], 0, 1)
    colours[np.isnan(image), 3] = 0
    return colours


def draw(folder: Path, lines: dict[str, dict]) -> None:
    """Both methods from space, each with the Mediterranean below it."""
    found = {method: np.load(folder / f"earth_{method}.npz") for method in DRAWN}
    titles = {
        "SVGP": f"{lines['SVGP']['inducing']:,} inducing points",
        "dualgp": f"all {lines['dualgp']['n']:,} points",
    }
    figure = pyplot.figure(figsize=(12, 7.4), facecolor=NIGHT)
    for left, (method, title) in zip((0.0, 0.5), titles.items(), strict=True):
        globe = figure.add_axes((left + 0.03, 0.02, 0.44, 0.44 * 12 / 7.4))
        part = figure.add_axes((left + 0.315, 0.02, 0.175, 0.175 * 12 / 7.4))
        for axes, view, name in ((globe, GLOBE, "view0"), (part, PART, "view1")):
            axes.imshow(relief(view.image(found[method][name][0]), view), interpolation="lanczos")
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_color(LIGHT if view is PART else "none")
            axes.patch.set_alpha(0)
        error = f"typical error at hidden places: {lines[method]['rmse m']:.0f} m"
        figure.text(left + 0.25, 0.91, title, color=LIGHT, ha="center", fontsize=19)
        figure.text(left + 0.25, 0.865, error, color="#93a4bd", ha="center", fontsize=12)
    figure.savefig(PICTURES / "earth.png", dpi=110, facecolor=NIGHT)
