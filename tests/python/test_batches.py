"""Calls of batched functions."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy
import pytest
from conftest import Process

from shared_tensor import Client, SharedTensorProvider
from shared_tensor.async_client import AsyncClient
from shared_tensor.errors import FunctionFailed, InvalidParams


def gathered(provider: Process, arguments: list[dict[str, Any]]) -> list[Any]:
    async def call() -> list[Any]:
        async with AsyncClient(provider.url) as client:
            return await asyncio.gather(*(client.call("joined", **each) for each in arguments), return_exceptions=True)

    return asyncio.run(call())


def test_calls_at_the_same_time_run_as_one_and_each_gets_its_rows(provider: Process) -> None:
    # The batch starts when it is full: four rows. If one call were left out, this would take 10 s.
    rows = [numpy.full((1, 2), 1.0), numpy.full((2, 2), 2.0), numpy.full((1, 2), 3.0)]
    results = gathered(provider, [{"x": x, "offset": 0.5} for x in rows])
    for x, result in zip(rows, results, strict=True):
        numpy.testing.assert_array_equal(result["sums"], x + 0.5)
        assert result["rows"] == [4] * len(x)


def test_an_error_of_one_call_stays_its_own(provider: Process) -> None:
    results = gathered(provider, [{"x": numpy.full((2, 1), number)} for number in (1.0, -1.0)])
    assert results[0]["rows"] == [2, 2]  # it ran again, alone
    assert isinstance(results[1], FunctionFailed)
    assert "below zero" in str(results[1])


def test_a_full_call_runs_at_once_and_a_tensor_without_rows_is_rejected(client: Client) -> None:
    assert client.call("joined", x=numpy.zeros((5, 1)))["rows"] == [5] * 5
    with pytest.raises(InvalidParams, match="at least one dimension"):
        client.call("joined", x=numpy.array(1.0))


@pytest.mark.parametrize("batched", [0, (0, 1.0), (4, -1.0)])
def test_rows_and_times_that_make_no_sense_are_rejected(batched: Any) -> None:
    provider = SharedTensorProvider(execution_mode="server")
    with pytest.raises(ValueError, match="at least one row"):
        provider.share(batched=batched)(lambda x: x)


def test_nested_lists_are_a_tensor_where_a_parameter_is_one(client: Client) -> None:
    result = client.call("joined", x=[[1.0], [2], [3], [4]])
    numpy.testing.assert_array_equal(result["sums"], [[1.0], [2.0], [3.0], [4.0]])
    assert numpy.asarray(result["sums"]).dtype == numpy.float32
    with pytest.raises(InvalidParams, match=r"parameter x\[1\]: expected array of 1, got array of 2"):
        client.call("joined", x=[[1.0], [2.0, 3.0]])
