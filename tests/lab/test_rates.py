import pytest

from volary.errors import SettingError
from volary.lab.network.rates import TokenBucket, parse, shown


@pytest.mark.parametrize(
    ("text", "bits_per_s"),
    [("100mbit", 10**8), ("2.5gbit", 25 * 10**8), ("64 kbit", 64_000), ("1Gbit/s", 10**9), (5e6, 5_000_000)],
)
def test_a_rate_is_read_in_its_unit(text, bits_per_s):
    assert parse(text) == bits_per_s


@pytest.mark.parametrize("nothing", [None, "unlimited"])
def test_no_limit_is_none(nothing):
    assert parse(nothing) is None
    assert shown(parse(nothing)) == "unlimited"


@pytest.mark.parametrize(
    "wrong", ["fast", "100", "100mbps", "100 MB", "0mbit", "-1gbit", "200gbit", "", 0, float("nan")]
)
def test_what_is_no_rate_is_refused_with_what_is_accepted(wrong):
    with pytest.raises(SettingError, match=r"accepted: 1kbit to 100gbit, as in 100mbit"):
        parse(wrong)


@pytest.mark.parametrize("text", ["1kbit", "50mbit", "2.5gbit", "100gbit"])
def test_a_rate_is_shown_as_it_was_written(text):
    assert shown(parse(text)) == text


def test_a_bucket_takes_a_whole_offloaded_packet_and_a_millisecond_of_the_rate():
    assert TokenBucket.of(10**6).burst_bytes > 65536
    assert TokenBucket.of(10**10).burst_bytes == 1_250_000
    assert TokenBucket.of(10**9).queue_bytes == 2_500_000
