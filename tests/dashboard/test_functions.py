"""Calls from the form of each function, with each kind of input, and each way in which a result is shown."""

from __future__ import annotations

import re
import struct
import zlib

import numpy
import pytest
from conftest import open_view, rpc
from playwright.sync_api import expect


def choose(page, daemon, function: str) -> None:
    open_view(page, daemon.url, f"functions/{function}")
    expect(page.get_by_role("heading", name=function, exact=True)).to_be_visible()


def call(page) -> None:
    page.get_by_role("button", name="Call", exact=True).click()


def result(page):
    return page.locator(".result").first


def cells(page) -> list[list[str]]:
    rows = page.get_by_role("group", name="Elements").locator("tbody tr")
    return [one.split("\t") for one in rows.all_inner_texts()]


def png(width: int, height: int, pixels: bytes) -> bytes:
    """A PNG of 8 bits for each of red, green and blue."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + pixels[3 * width * y : 3 * width * (y + 1)] for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


def test_numbers_and_a_default(page, daemon):
    choose(page, daemon, "scale")
    page.get_by_label("x: nested arrays").fill("[[1, 2], [3, 4.5]]")
    call(page)
    expect(result(page)).to_contain_text("float32 [2, 2], 16 B; from 2 to 9")
    assert cells(page) == [["2", "4"], ["6", "9"]]
    page.get_by_label("factor number").fill("-1")
    page.get_by_label("dtype").select_option("int64")
    page.get_by_label("x: nested arrays").fill("[7, 8]")
    call(page)
    expect(result(page)).to_contain_text("[2], ")
    assert cells(page) == [["-7", "-8"]]


def test_numbers_that_do_not_fit_the_dtype_are_not_sent(page, daemon):
    choose(page, daemon, "scale")
    page.get_by_label("dtype").select_option("uint8")
    page.get_by_label("x: nested arrays").fill("[300, -1]")
    call(page)
    expect(result(page)).to_contain_text("x: 300 does not fit uint8")
    page.get_by_label("x: nested arrays").fill("[300, -1")
    call(page)
    expect(result(page)).to_contain_text("expected nested arrays such as [[1, 2], [3, 4]]")


def test_a_npy_file_is_a_tensor_and_a_long_result_is_plotted_and_played(page, daemon, tmp_path, screenshot):
    wave = (numpy.sin(numpy.arange(4000) / 40) * numpy.linspace(1, 0, 4000)).astype("float64")
    numpy.save(tmp_path / "wave.npy", wave)
    choose(page, daemon, "scale")
    page.get_by_label("tensor, from").select_option(".npy file")
    page.get_by_label("x: .npy file").set_input_files(tmp_path / "wave.npy")
    call(page)
    expect(result(page)).to_contain_text("float64 [4000]")
    expect(page.get_by_role("img", name=re.compile("^Elements"))).to_be_visible()
    screenshot(page, "call")
    page.get_by_role("button", name="Sound").click()
    expect(page.locator("audio")).to_have_js_property("duration", 0.25)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download .npy").click()
    assert numpy.array_equal(numpy.load(download.value.path()), 2 * wave)


def test_the_file_of_a_sound_is_freed_when_the_sound_is_no_longer_shown(page, daemon):
    choose(page, daemon, "ramp")
    page.evaluate("""() => {
        globalThis.urls = new Set();
        const [make, free] = [URL.createObjectURL, URL.revokeObjectURL];
        URL.createObjectURL = (blob) => { const url = make(blob); urls.add(url); return url; };
        URL.revokeObjectURL = (url) => { urls.delete(url); free(url); };
    }""")
    page.get_by_label("count integer").fill("4000")
    call(page)
    for leave in "Plot", "Server":
        page.get_by_role("button", name="Sound").click()
        expect(page.locator("audio")).to_have_js_property("duration", 0.25)
        page.get_by_label("Samples a second").select_option("8000")
        expect(page.locator("audio")).to_have_js_property("duration", 0.5)
        assert page.evaluate("urls.size") == 1
        page.get_by_role("button" if leave == "Plot" else "link", name=leave, exact=True).click()
        expect(page.locator("audio")).to_have_count(0)
        assert page.evaluate("urls.size") == 0


@pytest.mark.parametrize(
    ("form", "shape"),
    [
        ("uint8 [height, width, 3]", "[8, 6, 3]"),
        ("float32 [1, 3, height, width], 0 to 1", "[1, 3, 8, 6]"),
        ("float32 [height, width], grey, 0 to 1", "[8, 6]"),
    ],
)
def test_an_image_is_a_tensor_and_its_result_is_a_picture(page, daemon, form, shape):
    pixels = bytes(range(6 * 8 * 3))
    choose(page, daemon, "scale")
    page.get_by_label("tensor, from").select_option("image")
    file = {"name": "small.png", "mimeType": "image/png", "buffer": png(6, 8, pixels)}
    page.get_by_label("x: image file").set_input_files(files=[file])
    page.get_by_label("as", exact=True).first.select_option(form)
    page.get_by_label("factor number").fill("1")
    call(page)
    expect(result(page)).to_contain_text(shape)
    if "grey" in form:
        page.get_by_role("button", name="Heat map").click()
        expect(page.get_by_role("img", name=re.compile("Heat map of 8 rows and 6 columns"))).to_be_visible()
        return
    picture = page.get_by_role("img", name="Image of 6 by 8 pixels")
    expect(picture).to_be_visible()
    drawn = picture.evaluate("c => Array.from(c.getContext('2d').getImageData(0, 0, 6, 8).data)")
    # scale() makes numbers of the bytes: 0 to 143, which the picture stretches.
    shade = 255 / max(pixels) if form.startswith("uint8") else 1
    shades = [shade * value for value in pixels]
    expected = [value for pixel in range(48) for value in (*shades[3 * pixel : 3 * pixel + 3], 255)]
    assert max(abs(a - b) for a, b in zip(drawn, expected, strict=True)) <= 1


def test_a_named_tensor_is_an_argument(page, daemon):
    rpc(daemon.url, "tensor.put", {"name": "six", "tensor": {"$tensor": {"data": [6]}}})
    choose(page, daemon, "scale")
    page.get_by_label("tensor, from").select_option("named tensor")
    page.get_by_label("x: name of a tensor").fill("six")
    page.get_by_label("factor number").fill("7")
    call(page)
    expect(result(page)).to_contain_text("[1]")
    assert cells(page) == [["42"]]


def test_text_json_and_lists_of_objects(page, daemon):
    choose(page, daemon, "echo")
    page.get_by_label("value JSON").fill('[{"name": "a", "size": 1}, {"name": "b", "size": 2}]')
    call(page)
    expect(page.get_by_role("group", name="Result").get_by_role("row").last).to_have_text(re.compile(r"b\s*2"))
    page.get_by_label("value JSON").fill('{"not": "closed"')
    call(page)
    expect(result(page)).to_contain_text("JSON")
    expect(page.get_by_role("status").filter(has_text="failed")).to_be_visible()


OPTIONAL = [
    {"type": "boolean", "default": True},
    {"type": "boolean"},
    {"enum": ["nearest", "cubic"], "type": "string", "default": "cubic"},
    {"anyOf": [{"enum": ["nearest", "cubic"]}, {"type": "null"}], "default": None},
    {"type": "string", "default": "none"},
    {"type": "integer", "default": 1},
    {"$ref": "#/components/schemas/Tensor"},
]


def field(page, required: bool, schema: dict):
    """Puts the field of a parameter into the page; returns a function that reads it."""
    page.goto("about:blank")
    page.goto(page.own_url + "/dashboard/licences.txt")
    make = """async (parameter) => {
        const { fieldOf } = await import("/dashboard/form.js");
        globalThis.field = fieldOf(parameter);
        document.body.replaceChildren(field.element);
    }"""
    page.evaluate(make, {"name": "x", "required": required, "schema": schema})
    return lambda: page.evaluate("field.read().then((value) => (value === undefined ? 'nothing' : value))")


@pytest.fixture
def empty_page(new_page, daemon):
    page = new_page(allowed=("404",))  # a browser asks for the icon of a text
    page.own_url = daemon.url
    return page


@pytest.mark.parametrize("schema", OPTIONAL, ids=str)
def test_an_optional_argument_that_is_left_alone_is_not_sent(empty_page, schema):
    assert field(empty_page, False, schema)() == "nothing"


def test_an_optional_flag_and_an_optional_choice_can_be_given_and_taken_back(empty_page):
    for schema, word in (OPTIONAL[0], "false"), (OPTIONAL[2], "nearest"), (OPTIONAL[3], "cubic"):
        read = field(empty_page, False, schema)
        empty_page.get_by_label("x").select_option(word)
        assert read() == (False if word == "false" else word)
        empty_page.get_by_label("x").select_option("not given")
        assert read() == "nothing"


def test_a_required_flag_and_a_required_choice_are_always_sent(empty_page):
    read = field(empty_page, True, {"type": "boolean"})
    assert read() is False
    empty_page.get_by_label("x flag").check()
    assert read() is True
    read = field(empty_page, True, {"enum": [1, 2, 4]})
    assert read() == 1
    empty_page.get_by_label("x choice").select_option("4")
    assert read() == 4


def test_objects_are_passed_on_by_their_handles(page, daemon):
    choose(page, daemon, "vocabulary.make")
    page.get_by_label("words JSON").fill('["the", "cat"]')
    call(page)
    expect(result(page)).to_contain_text(re.compile(r"o-\w+"))
    handle = re.search(r"o-\w+", result(page).inner_text()).group()
    choose(page, daemon, "vocabulary.numbers")
    page.get_by_label("vocabulary handle of example.vocabulary").fill(handle)
    page.get_by_label("words JSON").fill('["cat", "dog"]')
    call(page)
    expect(result(page)).to_contain_text("1,\n  -1")


def test_an_error_shows_its_code_and_data(page, daemon):
    choose(page, daemon, "fail")
    page.get_by_label("message text").fill("no more paper")
    call(page)
    expect(result(page)).to_contain_text("Error -32000 Function failed: std::runtime_error: no more paper")
    choose(page, daemon, "add")
    page.get_by_label("a number").fill("two")
    call(page)
    expect(result(page)).to_contain_text('"two" is not a number')
    page.get_by_label("a number").fill("2")
    call(page)
    expect(result(page)).to_contain_text("b is missing")


def test_a_call_is_cancelled(page, daemon):
    choose(page, daemon, "sleep")
    page.get_by_label("seconds number").fill("60")
    call(page)
    page.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("status").filter(has_text="cancelled")).to_be_visible()


def test_a_task_shows_its_progress_and_then_its_result(page, daemon):
    choose(page, daemon, "sleep")
    page.get_by_label("seconds number").fill("3")
    page.get_by_label("as", exact=True).select_option("task")
    call(page)
    expect(result(page)).to_contain_text("running sleeping")
    expect(page.get_by_role("progressbar", name=re.compile("Progress of sleep: [1-9]"))).to_be_visible()
    expect(result(page)).to_have_text(re.compile(r"^\d+(\.\d+)?$"))
    assert float(result(page).inner_text()) >= 3


def test_streams_are_written_and_read(page, daemon):
    choose(page, daemon, "running_sum")
    page.get_by_label("items of numbers JSON").fill("[1, 2, 3.5]")
    call(page)
    expect(result(page)).to_have_text(re.compile(r"Items\s*1\s*3\s*6\.5\s*Result\s*6\.5"))
