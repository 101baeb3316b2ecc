"""Laws of quantities that hold for any text and any amount."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from wharfinger.domain.quantities import (
    LIMIT,
    QuantityError,
    format_milli,
    format_units,
    parse_milli,
    parse_quantity,
    parse_units,
)

WORTH = {
    suffix: Fraction(10) ** power
    for suffix, power in zip("num kMGT", range(-9, 13, 3), strict=True)
} | {"Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30)}
WORTH[""] = WORTH.pop(" ")

whole = st.integers(0, 9000)
part = st.text("0123456789", max_size=12)


@given(whole, part, st.sampled_from(sorted(WORTH)), st.sampled_from(["", "+", "-"]))
def test_an_amount_is_never_counted_smaller_than_it_is_nor_larger_by_a_whole_step(
    number: int, fraction: str, suffix: str, sign: str
) -> None:
    exact = Fraction(f"{number}.{fraction}0") * WORTH[suffix]
    text = f"{sign}{number}.{fraction}{suffix}"
    for parsed, step in ((parse_milli(text), 1000), (parse_units(text), 1)):
        magnitude = abs(parsed)
        assert exact * step <= magnitude < exact * step + 1
        assert parsed == 0 or (parsed < 0) == (sign == "-")


@given(st.integers(-LIMIT, LIMIT))
def test_a_printed_amount_reads_back_as_itself(amount: int) -> None:
    assert parse_quantity(format_milli(amount)).milli == amount
    assert parse_units(format_units(amount)) == amount
    assert parse_units(format_units(amount, "BinarySI")) == amount


@given(st.integers(0, 2**40), st.sampled_from(sorted(WORTH)))
def test_the_canonical_text_is_a_fixed_point(number: int, suffix: str) -> None:
    canonical = parse_quantity(f"{number}{suffix}").canonical
    assert parse_quantity(canonical).canonical == canonical


def refusal(text: str) -> str:
    """The sentence that refuses `text`; empty where it is a quantity."""
    try:
        parse_quantity(text)
    except QuantityError as error:
        return str(error)
    return ""


@given(st.text(max_size=200) | st.text("0123456789.eE+-KMGTPimnuk", max_size=30))
def test_any_text_is_a_quantity_or_refused_in_one_line(text: str) -> None:
    said = refusal(text)
    assert not said or said.startswith("expected a quantity")
    assert "\n" not in said
