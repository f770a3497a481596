"""Files with one bit flipped, cut, or edited with valid checksums: what each becomes when it is loaded."""

from __future__ import annotations

import struct
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import dualgp as dg
from dualgp._npz import HEADER, NotReadable, read, write

JUNK = (None, True, -5, 0, 10**30, 1e308, float("nan"), "predict", [], {}, [1, "a"], {"array": "a0"}, {"array": "zz"})


def places_that_matter(path: Path) -> np.ndarray:
    """The offsets of all bytes that are not numbers: local headers, .npy headers, the JSON header, the directory."""
    size, spans = path.stat().st_size, []
    with zipfile.ZipFile(path) as file:
        for info in file.infolist():
            with open(path, "rb") as raw:
                raw.seek(info.header_offset + 26)
                names = sum(struct.unpack("<HH", raw.read(4)))
            data = info.header_offset + 30 + names
            is_header = info.filename == f"{HEADER}.npy"
            spans.append(
                (info.header_offset, data + (info.compress_size if is_header else min(128, info.compress_size)))
            )
        spans.append((file.start_dir, size))
    return np.concatenate([np.arange(*span) for span in spans])


def flips(path: Path, number: int, seed: int) -> Iterator[bytes]:
    """The file with one bit flipped, `number` times."""
    good, rng = path.read_bytes(), np.random.default_rng(seed)
    places = places_that_matter(path)
    for place in rng.choice(places, number, replace=number > len(places)):
        yield good[:place] + bytes([good[place] ^ (1 << int(rng.integers(8)))]) + good[place + 1 :]


def mutations(path: Path, number: int, seed: int) -> Iterator[bytes]:
    """The file cut, lengthened, with bytes overwritten, doubled, or pieces exchanged."""
    good, rng = path.read_bytes(), np.random.default_rng(seed)
    for _ in range(number):
        start, stop = np.sort(rng.integers(0, len(good), 2))
        yield [
            good[:start],
            good + rng.bytes(int(rng.integers(1, 99))),
            good[:start] + rng.bytes(8) + good[start + 8 :],
            good[:stop] + good[start:],
            good[:start] + good[stop:],
            good[:start] + bytes(stop - start) + good[stop:],
            good[:start] + good[start:stop][::-1] + good[stop:],
        ][int(rng.integers(7))]


def edits(path: Path, number: int, seed: int) -> Iterator[tuple[dict[str, Any], dict[str, np.ndarray]]]:
    """Header and arrays with one thing changed, to be written with valid checksums."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        header, arrays = read(path)
        if rng.random() < 0.6:
            owner, key = _somewhere(header, rng)
            owner[key] = JUNK[int(rng.integers(len(JUNK)))]
        else:
            name = str(rng.choice(list(arrays)))
            arrays[name] = _changed(arrays[name], rng)
        yield header, arrays


def _somewhere(tree: Any, rng: np.random.Generator) -> tuple[Any, Any]:
    """A container in the tree and one of its keys."""
    found: list[tuple[Any, Any]] = []
    todo = [tree]
    while todo:
        node = todo.pop()
        pairs = list(node.items() if isinstance(node, dict) else enumerate(node))
        found += [(node, key) for key, _ in pairs]
        todo += [value for _, value in pairs if isinstance(value, (dict, list))]
    return found[int(rng.integers(len(found)))]


def _changed(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    is_number = array.dtype.kind in "fiu"
    return [
        array[..., :1] if array.ndim else array[None],
        array.ravel()[: max(1, array.size - 1)],
        array.T.copy(),
        array[None],
        array.astype("U") if array.size < 99 else array[:0],
        np.full_like(array, np.nan) if array.dtype.kind == "f" else array[:0] if array.ndim else array,
        -array if is_number else array,
        np.zeros(0),
    ][int(rng.integers(8))]


def outcomes(
    variants: Iterator[Any], target: Path, predict: Callable[[Any], np.ndarray], good: np.ndarray, *, may_differ: bool
) -> Counter:
    """How many variants end how. `may_differ`: the change was meant, so that finite predictions are fine."""
    counts: Counter = Counter()
    for variant in variants:
        if isinstance(variant, bytes):
            target.write_bytes(variant)
        else:
            write(target, *variant)
        counts[_outcome(target, predict, good, may_differ)] += 1
    return counts


def _outcome(target: Path, predict: Callable[[Any], np.ndarray], good: np.ndarray, may_differ: bool) -> str:
    try:
        loaded = dg.load(target)
    except NotReadable as error:
        return "sentence" if len(str(error).splitlines()) == 1 and str(target) in str(error) else f"odd: {error}"
    except Exception as error:
        return f"uncaught: {type(error).__name__}: {str(error)[:80]}"
    try:
        values = predict(loaded)
    except Exception as error:
        if may_differ and isinstance(error, ValueError) and str(error).endswith("."):
            return "changed"  # a sentence of ours, such as one about a column of another name
        return f"unusable: {type(error).__name__}: {str(error)[:80]}"
    if np.array_equal(values, good):
        return "harmless"
    return "changed" if may_differ and np.isfinite(values).all() else "silent"
