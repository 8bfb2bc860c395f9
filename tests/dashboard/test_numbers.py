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


def test_a_number_that_does_not_fit_the_dtype_is_an_error(tried):
    wrong = [
        ("uint8", "300"),
        ("uint8", "-1"),
        ("int8", "1.5"),
        ("int16", "NaN"),
        ("uint32", "4294967296n"),
        ("int64", "9223372036854775808n"),
        ("uint64", "-1n"),
        ("bool", "2"),
        ("bool", "256"),
        ("float32", "1e+39"),
    ]
    errors = [f"RangeError: {number.rstrip('n')} does not fit {dtype}" for dtype, number in wrong]
    assert tried([f"Tensor.fromNested([[{number}]], '{dtype}').data" for dtype, number in wrong]) == errors
    assert tried([f"new Tensor([{number}], [1], '{dtype}').data" for dtype, number in wrong]) == errors


def test_a_number_that_is_no_exact_integer_of_64_bits_is_an_error(tried):
    numbers = [2**53, 1.5, "NaN"]
    assert tried([f"Tensor.fromNested([{number}], 'int64').data" for number in numbers]) == [
        f"RangeError: {number} is not an exact int64: expected an integer, from 2^53 on a BigInt" for number in numbers
    ]


def test_numbers_that_fit_the_dtype_are_kept(tried):
    kept = {
        "[0, 255], 'uint8'": "0,255",
        "[-5n, 5n], 'int32'": "-5,5",
        "[-9007199254740991, 1], 'int64'": "-9007199254740991,1",
        "[0n, 18446744073709551615n], 'uint64'": "0,18446744073709551615",
        "[0, 1], 'bool'": "0,1",
        "[true, false], 'bool'": "1,0",
        "[-1.5, Infinity], 'float32'": "-1.5,Infinity",
        "[NaN, 1e300], 'float64'": "NaN,1e+300",
    }
    assert tried([f"Tensor.fromNested({given}).data" for given in kept]) == list(kept.values())


def test_nested_numbers_do_not_become_bits_or_parts(tried):
    dtypes = ["float16", "bfloat16", "complex64", "float8_e5m2", "float4_e2m1fn_x2"]
    assert tried([f"Tensor.fromNested([2, 2], '{dtype}').data" for dtype in dtypes]) == [
        f"TypeError: nested numbers cannot become {dtype}: give new Tensor the array of its bits or parts"
        for dtype in dtypes
    ]


@pytest.mark.parametrize(
    ("dtype", "numbers"),
    [("float8_e4m3fn", [1.5, 2]), ("uint64", [2**64 - 1]), ("int64", [1, 2**53 + 1])],
)
def test_a_tensor_whose_numbers_are_not_exact_in_data_is_an_error(tried, daemon, dtype, numbers):
    rpc(daemon.url, "tensor.put", {"name": "exact", "tensor": {"$tensor": {"dtype": dtype, "data": numbers}}})
    bytes_, base64, data = tried(
        [
            f"(client.transport = '{transport}', client.getTensor('exact').then((tensor) => tensor.data))"
            for transport in ("body", "base64", "data")
        ]
    )
    assert bytes_ == base64 == ("60,64" if dtype == "float8_e4m3fn" else ",".join(map(str, numbers)))
    assert data == (
        "SharedTensorError: a message of the daemon cannot be read: "
        f'the numbers of a {dtype} tensor are not exact in "data": use the transport "body" or "base64"'
    )


def test_integers_of_53_bits_come_as_data(run, daemon):
    tensor = {"dtype": "int64", "data": [-1, 2**53 - 1]}
    rpc(daemon.url, "tensor.put", {"name": "exact", "tensor": {"$tensor": tensor}})
    got = run("client.transport = 'data'; const x = await client.getTensor('exact'); return [x.dtype, String(x.data)]")
    assert got == ["int64", "-1,9007199254740991"]


def test_elements_of_8_bits_are_decoded(tried):
    decoded = {
        "[0x00, 0x01, 0x38, 0x7e, 0xc4, 0x7f, 0xff], [7], 'float8_e4m3fn'": "0,0.001953125,1,448,-3,NaN,NaN",
        "[0x00, 0x01, 0x40, 0x7f, 0xff, 0x80], [6], 'float8_e4m3fnuz'": "0,0.0009765625,1,240,-240,NaN",
        "[0x00, 0x01, 0x3c, 0x7b, 0xfc, 0x7f], [6], 'float8_e5m2'": "0,0.0000152587890625,1,57344,-Infinity,NaN",
        "[0x00, 0x01, 0x40, 0x7f, 0xff, 0x80], [6], 'float8_e5m2fnuz'": "0,0.00000762939453125,1,57344,-57344,NaN",
        "[0, 127, 128, 254, 255], [5], 'float8_e8m0fnu'": f"{2**-127},1,2,{float(2**127)},NaN",
    }
    assert tried([f"new Tensor({given}).numbers()" for given in decoded]) == list(decoded.values())


def test_two_numbers_in_one_byte_are_not_decoded(tried):
    assert tried(["new Tensor([1], [1], 'float4_e2m1fn_x2').numbers()"]) == [
        "TypeError: an element of float4_e2m1fn_x2 is two numbers: read their bits in `data`"
    ]
