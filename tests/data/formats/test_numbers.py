"""Numbers of other layouts and precisions as float32: the same values, or a sentence with the place."""

import numpy as np
import pytest

from volary.data.formats.numbers import as_float32, native, refuse_not_finite
from volary.errors import DataError


def called(place: int) -> str:
    return f"value {place}"


@pytest.mark.parametrize("kind", [">f4", ">f8", "<f8", "f2", "longdouble", ">i8", "u1", "bool"])
def test_values_of_any_layout_are_the_same_in_float32(kind):
    values = np.array([[0, 1], [1, 0]], dtype=kind)
    found = as_float32(values, called)
    assert found.dtype == np.float32
    assert found.tolist() == [[0, 1], [1, 0]]
    assert native(values).dtype.isnative
    assert (native(values) == values).all()


@pytest.mark.parametrize("kind", ["f8", ">f8", "longdouble", "i8", "u4", ">u8"])
def test_a_whole_number_that_float32_rounds_is_named_wherever_it_is(kind):
    values = np.zeros((300_000, 2), dtype=kind)
    values[250_000] = 2**24, 2**24 + 1
    with pytest.raises(DataError, match=r"value 500001 is 16777217(\.0)?, which float32 makes 16777216.0; accepted"):
        as_float32(values, called)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (np.array([1, 2**63 - 1]), "value 1 is 9223372036854775807, which"),
        (np.array([2**64 - 1], dtype=np.uint64), "value 0 is 18446744073709551615, which"),
        (np.array([0.0, -1e39]), "value 1 is -1e\\+39, which float32 makes -inf"),
    ],
)
def test_a_number_beyond_float32_is_named(values, sentence):
    with pytest.raises(DataError, match=sentence):
        as_float32(values, called)


def test_rounding_of_measurements_is_no_reason_to_refuse_them():
    values = np.array([0.1, 1e20, 123456789.5, -3e38])
    np.testing.assert_array_equal(as_float32(values, called), values.astype(np.float32))


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_the_first_value_that_is_not_finite_is_named(wrong):
    values = np.zeros((300_000, 2), dtype=np.float32)
    values[250_000:, 1] = wrong
    with pytest.raises(DataError, match=r"value 500001 is (missing, or NaN|-?inf); accepted: a number, finite"):
        refuse_not_finite(values, called)
    refuse_not_finite(values[:250_000], called)
    refuse_not_finite(values[:0], called)
