"""Numbers in shared_tensor.js: each arrives unchanged, or there is an error that says which one does not."""

from __future__ import annotations

import pytest
from conftest import rpc


@pytest.fixture
def tried(run):
    """Returns, for each expression, its value as a string, or the exception that it throws."""
    each = "const tries = []; const attempt = async (made) => {{ try {{ tries.push(String(await made())) }} catch (e)"
    each += " {{ tries.push(e.name + ': ' + e.message) }} }}; {} {}; return tries"

    def tried(expressions: list[str], before: str = "") -> list[str]:
        return run(each.format(before, "".join(f"await attempt(() => {one});" for one in expressions)))

    return tried


def test_a_browser_without_raw_json_sends_integers_of_53_bits_and_no_others(tried):
    def sent(numbers: list[int]) -> list[str]:
        return tried([f"client.call('echo', [{number}n])" for number in numbers], "delete JSON.rawJSON;")

    assert sent([0, -1, 2**53 - 1, 1 - 2**53]) == ["0", "-1", "9007199254740991", "-9007199254740991"]
    large = [2**60, 2**60 + 1, -(2**63)]
    assert sent(large) == [
        f"RangeError: {number} has more than 53 bits, which this browser cannot write as JSON" for number in large
    ]
