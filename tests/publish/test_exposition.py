"""The /metrics page: swapped whole, compressed once, gone when stale."""

import gzip
import zlib

import pytest

from healthsvc.publish.exposition import MetricsPage, takes_gzip

FLEET = b"fleet 1\n" * 1000


def page() -> MetricsPage:
    made = MetricsPage(lambda: b"own 1\n")
    made.publish(FLEET, until_s=100.0)
    return made


def test_plain_and_compressed_bodies_say_the_same() -> None:
    plain, _ = page().body("", 0.0)
    compressed, headers = page().body("gzip, deflate", 0.0)
    assert plain == gzip.decompress(compressed) == FLEET + b"own 1\n"
    assert headers["Content-Encoding"] == "gzip"


def test_the_compressed_body_is_one_member_that_any_client_reads() -> None:
    decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
    made = page()
    for _ in range(2):
        decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
        assert decoder.decompress(made.body("gzip", 0.0)[0]) == FLEET + b"own 1\n"
        assert decoder.eof
        assert not decoder.unused_data


def test_the_headers_name_the_format_and_what_the_answer_varies_with() -> None:
    _, headers = page().body("identity", 0.0)
    assert headers == {"Content-Type": "text/plain; version=0.0.4; charset=utf-8", "Vary": "Accept-Encoding"}


@pytest.mark.parametrize("encoding", ["", "gzip"])
def test_a_stale_fleet_vanishes_and_the_self_metrics_stay(encoding: str) -> None:
    body, _ = page().body(encoding, 100.0)
    assert (gzip.decompress(body) if encoding else body) == b"own 1\n"


def test_a_dropped_fleet_vanishes_at_once() -> None:
    made = page()
    made.drop()
    assert made.body("", 0.0)[0] == b"own 1\n"


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        ("", False),
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("*", True),
        ("*;q=0, gzip", True),
        ("gzip;q=0, *", False),
        ("*;q=0", False),
    ],
)
def test_accept_encoding_is_understood(header: str, taken: bool) -> None:
    assert takes_gzip(header) is taken
