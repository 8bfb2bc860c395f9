// Results of calls: tensors as table, plot, picture, histogram or sound; other values as text or table.

import { SharedTensorError, Tensor, formatNpy } from "../shared_tensor.js";
import { barChart, lineChart } from "./charts.js";
import { action, bytes, download, freshId, h, short } from "./dom.js";
import { heatMap, histogram, image, imageForm, statistics, wav } from "./picture.js";

const RESULT = "Result"; // the name of a value that needs no heading
const TWO_IN_A_BYTE = "float4_e2m1fn_x2";
const MOST_ROWS = 100;
const MOST_COLUMNS = 32;
const RATES = [8000, 16000, 22050, 24000, 44100, 48000];

/** Shows a value, or a SharedTensorError, in `place`. */
export function showResult(place, value) {
  if (value instanceof SharedTensorError) return place.replaceChildren(errorOf(value));
  place.replaceChildren(...partsOf(value, RESULT));
}

function errorOf(error) {
  const data = error.data === undefined ? "" : JSON.stringify(error.data, null, 2);
  return h("div", { class: "error" },
    h("p", {}, h("strong", { class: "bad" }, error.code === null ? "No answer" : `Error ${error.code}`), ` ${error.message}`),
    h("pre", { tabindex: "0" }, data));
}

function partsOf(value, name) {
  if (value instanceof Tensor) return [tensorView(value, name)];
  const numbers = asTensor(value);
  if (numbers) return [tensorView(numbers, name), h("pre", { tabindex: "0" }, textOf(value))];
  const inside = tensorsIn(value);
  const table = recordsTable(value);
  return [table ?? h("pre", { tabindex: "0" }, textOf(value)), ...inside.map(([path, one]) => tensorView(one, path))];
}

/** Nested arrays of numbers, as vectors and matrices come from functions without tensors. */
function asTensor(value) {
  if (!Array.isArray(value) || value.length < 2) return null;
  try {
    return Tensor.fromNested(value, "float64");
  } catch {
    return null;
  }
}

function textOf(value) {
  const text = JSON.stringify(value, (_, one) => (one instanceof Tensor ? `tensor ${one.dtype} [${one.shape}]` : one), 2);
  return text === undefined ? "no result" : text;
}

function tensorsIn(value, path = "") {
  if (value instanceof Tensor) return [[path, value]];
  if (value === null || typeof value !== "object") return [];
  return Object.entries(value).flatMap(([key, member]) => tensorsIn(member, path ? `${path}.${key}` : key));
}

/** A list of objects as a table. */
function recordsTable(value) {
  const isRecord = (one) => one !== null && typeof one === "object" && !Array.isArray(one) && !(one instanceof Tensor);
  if (!Array.isArray(value) || value.length === 0 || !value.every(isRecord)) return null;
  const keys = [...new Set(value.flatMap(Object.keys))];
  return grid("Result", keys, value.slice(0, MOST_ROWS).map((one) => keys.map((key) =>
    one[key] === undefined ? "" : typeof one[key] === "string" ? one[key] : textOf(one[key]))));
}

function grid(label, heads, rows) {
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": label },
    h("table", { class: "cells" }, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col", class: "number" }, String(head))))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
}

/** The first matrix of a tensor: [numbers, rows, columns]. */
function firstMatrix(tensor) {
  const { shape } = tensor;
  const columns = shape.at(-1) ?? 1;
  const rows = shape.length < 2 ? 1 : shape.at(-2);
  return [tensor.numbers().subarray(0, rows * columns), rows, columns];
}

function tableOf(tensor) {
  const [numbers, rows, columns] = firstMatrix(tensor);
  const shown = Math.min(columns, MOST_COLUMNS);
  const lines = Array.from({ length: Math.min(rows, MOST_ROWS) }, (_, row) =>
    Array.from({ length: shown }, (_, column) => String(Number(numbers[row * columns + column].toPrecision(6)))));
  const note = [];
  if (tensor.shape.length > 2) note.push("the first matrix");
  if (rows > MOST_ROWS) note.push(`the first ${MOST_ROWS} of ${rows} rows`);
  if (columns > shown) note.push(`the first ${shown} of ${columns} columns`);
  return h("div", {}, grid("Elements", Array.from({ length: shown }, (_, at) => at), lines),
    h("p", { class: "note" }, note.join(", ")));
}

function plotOf(tensor) {
  const [numbers, rows, columns] = firstMatrix(tensor);
  const lines = Math.min(rows, 4);
  const chart = lineChart(rows > lines ? `The first ${lines} of ${rows} rows` : "Elements",
    Array.from({ length: lines }, (_, row) => (rows > 1 ? `row ${row}` : "")));
  const x = Array.from({ length: columns }, (_, at) => at);
  chart.update([x, ...Array.from({ length: lines }, (_, row) => Array.from(numbers.subarray(row * columns, (row + 1) * columns)))]);
  return chart.element;
}

function histogramOf(tensor) {
  const numbers = tensor.numbers();
  const chart = barChart("How many elements have which value", [""]);
  chart.update(histogram(numbers, statistics(numbers)));
  return chart.element;
}

function soundOf(tensor) {
  const numbers = tensor.numbers();
  const frames = tensor.shape.at(-1);
  const channels = [numbers.subarray(0, frames)];
  if (tensor.size === 2 * frames) channels.push(numbers.subarray(frames));
  const id = freshId("rate");
  const audio = h("audio", { controls: true, "aria-label": "The tensor as sound" });
  const stop = () => {
    URL.revokeObjectURL(audio.src);
    audio.removeAttribute("src");
  };
  const play = () => {
    stop();
    audio.src = URL.createObjectURL(new Blob([wav(channels, Number(rate.value))], { type: "audio/wav" }));
  };
  const rate = h("select", { id, onchange: play }, RATES.map((one) => h("option", { selected: one === 16000 }, String(one))));
  return h("st-part", { class: "row middle", enter: play, leave: stop }, audio, h("label", { for: id }, "Samples a second"), rate);
}

/** What a tensor can be shown as; the first is shown first. */
function viewsOf(tensor) {
  const { shape } = tensor;
  const views = [];
  const form = imageForm(shape);
  const [last, other] = [shape.at(-1) ?? 1, tensor.size / (shape.at(-1) || 1)];
  if (form) views.push(["Image", () => image(tensor, form)]);
  if (other === 1 && last > 8) views.push(["Plot", () => plotOf(tensor)]);
  views.push(["Table", () => tableOf(tensor)]);
  if (other > 1 && last > 2) views.push(["Plot", () => plotOf(tensor)]);
  if (other > 1) views.push(["Heat map", () => heatMap(...firstMatrix(tensor))]);
  if (tensor.size > 1) views.push(["Histogram", () => histogramOf(tensor)]);
  if (last >= 1000 && other <= 2) views.push(["Sound", () => soundOf(tensor)]);
  return views;
}

/** A tensor with buttons for its views, its statistics and a download. */
export function tensorView(tensor, name, more = []) {
  const place = h("div");
  const summary = `${tensor.dtype} [${tensor.shape.join(", ")}], ${bytes(tensor.bytes.length)}`;
  if (tensor.size === 0) return h("p", {}, `${name}: ${summary}, no elements`);
  if (tensor.dtype === TWO_IN_A_BYTE)
    return h("div", { class: "result" },
      h("p", {}, `${name}: ${summary}; its bytes have two numbers each, not shown here`),
      h("div", { class: "row" }, more));
  const { low, high, mean, deviation, notFinite } = statistics(tensor.numbers());
  const buttons = viewsOf(tensor).map(([title, make]) => {
    const button = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
      for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
      place.replaceChildren(make());
    } }, title);
    return button;
  });
  const save = action("Download .npy", () => download(formatNpy(tensor), `${name.replaceAll("/", "_")}.npy`));
  const line = [`from ${short(low)} to ${short(high)}`, `mean ${short(mean)}`, `deviation ${short(deviation)}`];
  if (notFinite) line.push(`${notFinite} not finite`);
  queueMicrotask(() => buttons[0].click());
  return h("div", { class: "result" }, name === RESULT ? null : h("h3", {}, name), h("p", { class: "note" }, `${summary}; ${line.join(", ")}`),
    h("div", { class: "row", role: "group", "aria-label": `Views of ${name}` }, buttons, save, more), place);
}
