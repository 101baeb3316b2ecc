"""Quantities: what Kubernetes' own case tables say, and cases of ours for what the tables leave
out."""

from __future__ import annotations

import csv
import os
from fractions import Fraction
from pathlib import Path

import pytest

from wharfinger.domain.quantities import (
    LIMIT,
    QuantityError,
    format_milli,
    format_units,
    parse_milli,
    parse_quantity,
    parse_units,
)

DATA = (
    Path(os.environ.get("WHARFINGER_DATA") or Path(__file__).parents[3] / "shared" / "data")
    / "k8s_quantities"
)

needs_tables = pytest.mark.skipif(
    not DATA.is_dir(), reason=f"quantity tables not at {DATA} (set WHARFINGER_DATA)"
)


def rows(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(newline="") as file:
        return list(csv.DictReader(file))


@needs_tables
@pytest.mark.data
@pytest.mark.parametrize("sign", ["", "+", "-"])
def test_every_valid_quantity_of_the_tables_has_its_exact_value_and_format(sign: str) -> None:
    valid = [row for row in rows("parse.csv") if row["valid"] == "true"]
    assert len(valid) > 80
    for row in valid:
        quantity = parse_quantity(sign + row["input"])
        expected = Fraction(row["value"]) * 10**9 * (-1 if sign == "-" else 1)
        assert Fraction(quantity.nanos) == expected, row
        assert str(quantity.format) == row["format"], row


@needs_tables
@pytest.mark.data
def test_every_invalid_text_of_the_tables_is_refused() -> None:
    invalid = [row["input"] for row in rows("parse.csv") if row["valid"] == "false"]
    assert len(invalid) >= 10
    for text in invalid:
        with pytest.raises(QuantityError):
            parse_quantity(text)


@needs_tables
@pytest.mark.data
def test_canonical_texts_are_those_of_the_tables() -> None:
    found = {row["input"]: parse_quantity(row["input"]).canonical for row in rows("canonical.csv")}
    assert found == {row["input"]: row["canonical"] for row in rows("canonical.csv")}


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("1", 1000),
        ("500m", 500),
        ("0.5", 500),
        (".5", 500),
        ("1.", 1000),
        ("1e3", 1_000_000),
        ("2k", 2_000_000),
        ("100u", 1),
        ("1n", 1),
        ("1001u", 2),
        ("-1n", -1),
        ("-1001u", -2),
        ("0", 0),
        ("+3", 3000),
        ("00.10", 100),
    ],
)
def test_milli_rounds_away_from_zero(text: str, milli: int) -> None:
    assert parse_milli(text) == milli


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("1Ki", 1024),
        ("1.5Gi", 3 * 2**29),
        ("128M", 128_000_000),
        ("1m", 1),
        ("1001m", 2),
        ("-1001m", -2),
        ("0.1Ki", 103),
        ("7Ei", 7 * 2**60),
        ("8Ei", LIMIT),
        ("99999Ei", LIMIT),
        ("1E", 10**18),
        ("1E1", 10),
        ("1E+1", 10),
        ("12e-1", 2),
    ],
)
def test_units_round_away_from_zero_and_binary_suffixes_saturate(text: str, units: int) -> None:
    assert parse_units(text) == units


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        ".",
        "+",
        "-",
        "--1",
        "1 Gi",
        " 1",
        "1\n",
        "1GB",
        "512MB",
        "1gi",
        "1K",
        "m",
        "Ki",
        "1.2.3",
        "1e",
        "1e+",
        "1e1.5",
        "1_000",
        "0x10",
        "\u0661",
        "NaN",
        "inf",
        "1e100",
        "1e-100",
        "1" * 129,
        "1e99999999999999999999",
    ],
)
def test_bad_text_is_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(QuantityError) as caught:
        parse_units(text)
    sentence = str(caught.value)
    assert sentence.startswith("expected a quantity")
    assert "\n" not in sentence
    assert len(sentence) < 120


def test_amounts_beyond_63_bits_are_refused_rather_than_wrapped() -> None:
    assert parse_units(str(LIMIT)) == LIMIT
    with pytest.raises(QuantityError, match="below 2\\^63"):
        parse_units(str(LIMIT + 1))
    with pytest.raises(QuantityError, match="below 2\\^63"):
        parse_milli("10E")


def test_amounts_are_printed_as_kubernetes_would() -> None:
    assert [format_milli(n) for n in (0, 1, 500, 1000, 1500, 2_000_000, -250)] == [
        "0",
        "1m",
        "500m",
        "1",
        "1500m",
        "2k",
        "-250m",
    ]
    assert [format_units(n) for n in (0, 7, 1000, 1024, 5_000_000)] == [
        "0",
        "7",
        "1k",
        "1024",
        "5M",
    ]
    assert [format_units(n, "BinarySI") for n in (0, 1000, 1024, 1536, 2**30, 3 * 2**20)] == [
        "0",
        "1k",
        "1Ki",
        "1536",
        "1Gi",
        "3Mi",
    ]
