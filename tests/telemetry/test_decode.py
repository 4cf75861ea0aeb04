"""Answers become arrays: the same numbers as by reading one sample at a time, whatever the shape of the text."""

import json
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from healthsvc.telemetry.decode import MalformedAnswerError, decode_points, decode_samples, decode_warnings, error_text
from tests import naive

VALUES = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(10**18), 10**18).map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "0", "1e-7", "9.223372036854775794e+18"]),
)
TIMES = st.one_of(st.integers(0, 2 * 10**9), st.integers(0, 2 * 10**12).map(lambda ms: ms / 1000))
LABELS = st.dictionaries(st.sampled_from(["UUID", "pod", "gpu"]), st.text(max_size=8), max_size=3)
SERIES = st.lists(st.tuples(LABELS, st.lists(st.tuples(TIMES, VALUES), max_size=6)), max_size=5)


@settings(deadline=None)  # the first one loads Arrow
@given(SERIES, st.sampled_from([None, 0, 2]))
@example([({"pod": 'a],["'}, []), ({}, [(1, "NaN")]), ({}, [])], 2)
def test_samples_are_those_of_the_slow_twin(
    series: list[tuple[dict[str, str], list[tuple[float, str]]]], indent: int | None
) -> None:
    result = [{"metric": labels, "values": [list(pair) for pair in pairs]} for labels, pairs in series]
    body = json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}}, indent=indent).encode()
    found, wanted = decode_samples(body), naive.samples_of_answer(body)
    assert [dict(labels) for labels in found.labels] == [labels for labels, _ in wanted]
    assert found.counts.tolist() == [len(pairs) for _, pairs in wanted]
    flat = [pair for _, pairs in wanted for pair in pairs]
    assert found.times_s.tolist() == [time_s for time_s, _ in flat]
    for value, (_, expected) in zip(found.values.tolist(), flat, strict=True):
        assert value == expected or (math.isnan(value) and math.isnan(expected))


@settings(deadline=None)
@given(st.binary(max_size=200))
@example(b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[1,"2",[3]]]}]}}')
@example(b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"values":[[[1,"2"]]]}]}}')
@example(b'{"status":"error","error":"\\ud800"}')
def test_no_bytes_are_more_than_malformed(body: bytes) -> None:
    for decode in (decode_samples, decode_points, decode_warnings):
        try:
            decode(body)
        except MalformedAnswerError:
            continue
    assert len(error_text(body)) <= 300


def test_warnings_are_found_beside_any_kind_of_data() -> None:
    for data in ([], ["a"], {"resultType": "vector", "result": []}, None, "x"):
        body = json.dumps({"status": "success", "data": data, "warnings": ["w"], "infos": ["i"], "isPartial": True})
        assert decode_warnings(body.encode()) == ("w", "the server says that its answer is partial")


def test_an_error_is_told_even_if_data_stand_beside_it() -> None:
    assert error_text(b'{"status":"error","error":"too much","data":{"resultType":"matrix"}}') == "too much"


def test_a_matrix_without_samples_has_none() -> None:
    found = decode_samples(b'{"status":"success","data":{"resultType":"matrix","result":[]}}')
    assert found.labels == ()
    np.testing.assert_array_equal(found.times_s, np.zeros(0))
    with pytest.raises(MalformedAnswerError):
        decode_samples(b'{"status":"success","data":{"resultType":"vector","result":[]}}')
