"""The colours of charts can be told apart by who sees no red, no green or no blue, and seen on both grounds.

The matrices are those of Machado, Oliveira and Fernandes (2009) for linear RGB at full severity; distances are CIE76's.
"""

from itertools import combinations
from math import dist

import pytest

from dashboards.charts import COLOURS

Triple = tuple[float, float, float]
LEAST_DISTANCE = 13
LEAST_CONTRAST = 2.9
SEEN_BY: dict[str, tuple[Triple, Triple, Triple]] = {
    "everybody": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopes": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopes": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopes": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
TO_XYZ: tuple[Triple, Triple, Triple] = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
WHITE: Triple = (0.95047, 1.0, 1.08883)


def times(matrix: tuple[Triple, Triple, Triple], vector: Triple) -> Triple:
    x, y, z = (sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix)
    return x, y, z


def linear(colour: str) -> Triple:
    parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return red, green, blue


def lab(rgb: Triple) -> Triple:
    parts = (max(part / white, 0) for part, white in zip(times(TO_XYZ, rgb), WHITE, strict=True))
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in parts)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("people", SEEN_BY)
def test_no_two_colours_look_alike(people: str) -> None:
    seen = {colour: lab(times(SEEN_BY[people], linear(colour))) for colour in COLOURS}
    near = {pair: dist(seen[pair[0]], seen[pair[1]]) for pair in combinations(COLOURS, 2)}
    assert {pair: far for pair, far in near.items() if far < LEAST_DISTANCE} == {}


@pytest.mark.parametrize("ground", ["#ffffff", "#1b1d1f"])
def test_each_stands_out_from_the_panel(ground: str) -> None:
    behind = times(TO_XYZ, linear(ground))[1] + 0.05
    for colour in COLOURS:
        front = times(TO_XYZ, linear(colour))[1] + 0.05
        assert max(front, behind) / min(front, behind) >= LEAST_CONTRAST, colour
