// Tensors as pictures: heat maps, images, histograms; and as sound.

import { h, short } from "./dom.js";

const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]; // viridis

function heat(part) {
  const at = Math.min(Math.max(part, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(at), STOPS.length - 2);
  return STOPS[low].map((from, channel) => from + (at - low) * (STOPS[low + 1][channel] - from));
}

/** The finite elements' count, least, greatest, mean and deviation, and how many are not finite. */
export function statistics(numbers) {
  let [count, sum, squares, low, high] = [0, 0, 0, Infinity, -Infinity];
  for (const value of numbers) {
    if (!Number.isFinite(value)) continue;
    count++;
    sum += value;
    low = Math.min(low, value);
    high = Math.max(high, value);
  }
  const mean = sum / count;
  for (const value of numbers) if (Number.isFinite(value)) squares += (value - mean) ** 2;
  return { count, low, high, mean, deviation: Math.sqrt(squares / count), notFinite: numbers.length - count };
}

/** @returns {[number[], number[]]} the middles and the counts of equal ranges. */
export function histogram(numbers, { low, high }, bins = 40) {
  const width = (high - low) / bins || 1;
  const counts = new Array(bins).fill(0);
  for (const value of numbers)
    if (Number.isFinite(value)) counts[Math.min(bins - 1, Math.floor((value - low) / width))]++;
  return [counts.map((_, at) => low + (at + 0.5) * width), counts];
}

/** Draws `rows` x `columns` pixels, each enlarged so that a small matrix can be seen. */
function canvas(rows, columns, colourOf, label) {
  const element = h("canvas", { class: "picture", role: "img", "aria-label": label, width: columns, height: rows });
  const context = element.getContext("2d");
  const image = context.createImageData(columns, rows);
  for (let at = 0; at < rows * columns; at++) {
    const [red, green, blue, alpha = 255] = colourOf(at);
    image.data.set([red, green, blue, alpha], 4 * at);
  }
  context.putImageData(image, 0, 0);
  element.style.width = `${columns * Math.max(1, Math.min(32, Math.floor(384 / Math.max(rows, columns))))}px`;
  return element;
}

/** A matrix as colours. Larger ones are thinned out to at most 512 rows and columns. */
export function heatMap(numbers, rows, columns) {
  const { low, high } = statistics(numbers);
  const step = Math.ceil(Math.max(rows, columns) / 512);
  const [height, width] = [Math.ceil(rows / step), Math.ceil(columns / step)];
  const map = canvas(height, width, (at) => {
    const value = numbers[Math.floor(at / width) * step * columns + (at % width) * step];
    return Number.isFinite(value) ? heat((value - low) / (high - low || 1)) : [255, 0, 0];
  }, `Heat map of ${rows} rows and ${columns} columns, from ${short(low)} to ${short(high)}`);
  const note = `dark ${short(low)}, bright ${short(high)}` + (step > 1 ? `, every ${step}th row and column` : "");
  return h("figure", { class: "chart" }, map, h("figcaption", {}, note));
}

/** Where the channels of an image are: {rows, columns, channels, first: channels before rows}; null: it is no image. */
export function imageForm(shape) {
  const dims = shape.length === 4 && shape[0] === 1 ? shape.slice(1) : shape;
  const large = (size) => size > 4 && size <= 4096;
  if (dims.length !== 3) return null;
  if ([1, 3, 4].includes(dims[2]) && large(dims[0]) && large(dims[1]))
    return { rows: dims[0], columns: dims[1], channels: dims[2], first: false };
  if ([1, 3, 4].includes(dims[0]) && large(dims[1]) && large(dims[2]))
    return { rows: dims[1], columns: dims[2], channels: dims[0], first: true };
  return null;
}

/** An image: bytes, or numbers from 0 to 1; any other range is stretched. */
export function image(tensor, { rows, columns, channels, first }) {
  const numbers = tensor.numbers();
  const { low, high } = statistics(numbers);
  const isByte = tensor.dtype === "uint8";
  const fits = !isByte && low >= 0 && high <= 1;
  const shade = (value) => (isByte ? value : 255 * (fits ? value : (value - low) / (high - low || 1)));
  const plane = rows * columns;
  const part = (at, channel) => shade(numbers[first ? channel * plane + at : at * channels + channel]);
  const picture = canvas(rows, columns, (at) =>
    channels === 1 ? new Array(3).fill(part(at, 0)) : Array.from({ length: channels }, (_, c) => part(at, c)),
    `Image of ${columns} by ${rows} pixels`);
  return picture;
}

/** A sound file of 16 bits: `channels` arrays of numbers, stretched to -1 to 1 where they are larger. */
export function wav(channels, rate) {
  const frames = channels[0].length;
  const peak = Math.max(1, ...channels.map((one) => one.reduce((most, value) => Math.max(most, Math.abs(value)), 0)));
  const view = new DataView(new ArrayBuffer(44 + 2 * frames * channels.length));
  const text = (at, word) => [...word].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  const width = 2 * channels.length;
  text(0, "RIFF");
  view.setUint32(4, 36 + frames * width, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, channels.length, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate * width, true);
  view.setUint16(32, width, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, frames * width, true);
  for (let frame = 0; frame < frames; frame++)
    channels.forEach((one, channel) => view.setInt16(44 + frame * width + 2 * channel, (32767 * one[frame]) / peak, true));
  return view.buffer;
}
