"""What a step of the default solver costs on P devices, and what n = 1e7, 1e8 and 1e9 would take.

python benchmarks/cost_model.py            # the tables of docs/benchmarks/devices.md
python benchmarks/cost_model.py --check    # against the lines of results/devices.jsonl

seconds(step) = B n w / (P rate)  +  B^3 / (3 rate64)  +  2 (P - 1) / P * bytes / network  +  latency
w     = 2 d + 2 m + 20 operations for a kernel entry: distance, product with m columns, root and exponential
bytes = 4 B m: the rows of A x - b; and 8 B d, the block's points twice, where inputs are too large to be everywhere
"""

import argparse
from typing import NamedTuple

from dualgp.operators.policy import REPLICATED_BYTES
from dualgp.solvers.block_descent import LARGEST_BLOCK
from record import load

D, M, PASSES = 10, 65, 5
BLOCK = LARGEST_BLOCK
LATENCY = 50e-6  # of an all-reduce, at each of log2(P) levels


class Device(NamedTuple):
    """Operations a second that kernel tiles reach, those of a float64 factorisation, and gigabytes of memory.

    The core is measured here; for others half of the published peak in float32, and a third of that in float64.
    """

    rate: float
    rate64: float
    memory: float


CORE = Device(7.6e10, 2.0e10, 8)
DEVICES = {
    "a core here": CORE,
    "A100": Device(9.7e12, 3.2e12, 80),
    "H100": Device(33e12, 11e12, 80),
    "B200": Device(37e12, 12e12, 180),
}
NETWORKS = {"10 Gb/s": 1.25e9, "100 Gb/s": 12.5e9, "NVLink": 2e11}


def step_bytes(n: float, block: int, m: int, d: int) -> int:
    """What the all-reduces of a step add up, on each device."""
    return 4 * block * (m if 4 * n * d <= REPLICATED_BYTES else m + 2 * d)


def step_seconds(n: float, block: int, m: int, d: int, devices: int, device: Device, network: float) -> dict:
    """The parts of a step."""
    levels = (devices - 1).bit_length()
    return {
        "product": block * n * (2 * d + 2 * m + 20) / (devices * device.rate),
        "factor": block**3 / 3 / device.rate64,
        "all-reduce": 2 * (devices - 1) / devices * step_bytes(n, block, m, d) / network + LATENCY * levels,
    }


def device_gigabytes(n: float, m: int, d: int, devices: int) -> tuple[float, float]:
    """Of a device: its share (x, and b, iterate, last good one and a copy), and what every device has of all rows.

    The latter are the inputs and the blocks of an epoch. Its host needs n (4 d + 22) bytes more while it cuts these.
    """
    return n / devices * 4 * (d + 4 * m) / 1e9, n * (4 * d + 6) / 1e9


def table(name: str, network: str) -> None:
    device = DEVICES[name]
    print(f"| n | {name}s | product | factor | all-reduce ({network}) | {PASSES} passes | GB: share + all rows |")
    print("|---|---|---|---|---|---|---|")
    for n, counts in ((1e7, (1, 8, 64)), (1e8, (8, 64, 512)), (1e9, (64, 512, 4096))):
        for devices in counts:
            parts = step_seconds(n, BLOCK, M, D, devices, device, NETWORKS[network])
            total = PASSES * n / BLOCK * sum(parts.values())
            share, whole = device_gigabytes(n, M, D, devices)
            fits = "" if share + whole < device.memory else " (too much)"
            shown = " | ".join(duration(value) for value in (*parts.values(), total))
            print(f"| {n:.0e} | {devices:,} | {shown} | {share:.2g} + {whole:.2g}{fits} |".replace("e+0", "e"))


def duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.2g} {unit}" if seconds < 100 * size else f"{seconds / size:,.0f} {unit}"
    return f"{1e3 * seconds:.2g} ms"


def check() -> None:
    """Processor time of a step on 2 and 4 devices from that on one: its product divided, its factor not."""
    lines = load("devices")
    for n, columns in sorted({(line["n"], line["columns"]) for line in lines}):
        ways = {line["way"]: line for line in lines if (line["n"], line["columns"]) == (n, columns)}
        if "plain" not in ways:
            continue
        whole, factor = ways["plain"]["cpu ms a step"], ways["plain"]["cpu ms of a factor"]
        operations = ways["plain"]["block"] * n * (2 * 9 + 2 * columns + 20)
        print(f"n = {n:,}, {columns} columns: {1e-6 * operations / (whole - factor):.3g} Gflop/s in the product")
        for way, devices in (("sharded", 1), ("2", 2), ("4", 4)):
            if way in ways:
                model, found = (whole - factor) / devices + factor, ways[way]["cpu ms a step"]
                told = ways[way]["bytes of collectives"].get("all-reduce", 0)
                expected = 0 if devices == 1 else step_bytes(n, ways[way]["block"], columns, 9)
                print(f"  {way}: model {model:.0f} ms, measured {found:.0f} ms; bytes {expected:,}, found {told:,}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--check", action="store_true")
    if arguments.parse_args().check:
        return check()
    for name, network in (("A100", "100 Gb/s"), ("H100", "100 Gb/s")):
        table(name, network)
        print()


if __name__ == "__main__":
    main()
