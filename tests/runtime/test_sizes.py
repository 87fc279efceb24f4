from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knn_seq.errors import InvalidSetting
from knn_seq.runtime.sizes import format_bytes, parse_bytes, parse_count


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("64GB", 64 * 10**9),
        ("64G", 64 * 10**9),
        ("512 MiB", 512 << 20),
        ("512mib", 512 << 20),
        ("1e9", 10**9),
        ("1.5 kB", 1500),
        ("0.5KiB", 512),
        ("2Ti", 2 << 40),
        ("1,000", 1000),
        ("7 b", 7),
        (" 12 ", 12),
        (12345, 12345),
    ],
)
def test_sizes(text, number):
    assert parse_bytes(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [("1e9", 10**9), ("20M", 20_000_000), ("1,000,000", 10**6), ("1.5k", 1500), ("2B", 2 * 10**9), (7, 7)],
)
def test_counts(text, number):
    assert parse_count(text) == number


BAD = ["", "much", "GB", "-1", "0", "-0.0", "1e99", "1e999999999", "nan", "inf", "5 apples", "1..5", "0x10", "1e", "½"]


@pytest.mark.parametrize("parse", [parse_bytes, parse_count])
@pytest.mark.parametrize("text", BAD)
def test_anything_else_is_one_sentence(parse, text):
    with pytest.raises(InvalidSetting, match=r"is no .*: write a") as error:
        parse(text)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["1.5", "1e-3", "3 KiB"])
def test_a_count_is_whole(text):
    with pytest.raises(InvalidSetting, match="is no count"):
        parse_count(text)


@given(st.integers(1, 10**15))
def test_what_is_printed_can_be_read(number):
    assert parse_bytes(format_bytes(number)) == pytest.approx(number, rel=0.006)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1 KB"),
        (1_500_000_000, "1.5 GB"),
        (999_999, "1 MB"),
        (64e9, "64 GB"),
        (2_048_000_000_000, "2.05 TB"),
        (5e15, "5,000 TB"),
    ],
)
def test_printed(number, text):
    assert format_bytes(number) == text
