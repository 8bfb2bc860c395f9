// JSON-RPC messages with tensors: JSON, or a frame of JSON and bytes (docs/protocol.md, "Tensors as bytes").

import { failure } from "./error.js";
import { Tensor } from "./tensor.js";

const ALIGNMENT = 64;
const up = (size) => Math.ceil(size / ALIGNMENT) * ALIGNMENT;

/** JSON has all integers; JavaScript's numbers have 53 bits. */
function integer(value) {
  if (typeof JSON.rawJSON === "function") return JSON.rawJSON(String(value));
  if (Number.isSafeInteger(Number(value))) return Number(value);
  throw new RangeError(`${value} has more than 53 bits, which this browser cannot write as JSON`);
}

/**
 * The text of a message; if it holds tensors, also the frame.
 * @returns {{json: string, tensors?: Uint8Array}}
 */
export function encode(message) {
  const parts = [];
  let size = 0;
  const walk = (value) => {
    if (typeof value === "bigint") return integer(value);
    if (typeof value === "number" && !Number.isFinite(value)) return String(value);
    if (value === null || typeof value !== "object") return value;
    const tensor = Tensor.isArray(value) ? new Tensor(value) : value;
    if (tensor instanceof Tensor) {
      const offset = up(size);
      parts.push([offset, tensor.bytes]);
      size = offset + tensor.bytes.length;
      const body = { offset, size: tensor.bytes.length };
      return { $tensor: { dtype: tensor.dtype, shape: tensor.shape, body } };
    }
    if (Array.isArray(value)) return value.map(walk);
    return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, walk(member)]));
  };
  const json = JSON.stringify(walk(message));
  if (parts.length === 0) return { json };
  const text = new TextEncoder().encode(json);
  const start = up(8 + text.length);
  const frame = new Uint8Array(start + size).fill(0x20, 8 + text.length, start);
  new DataView(frame.buffer).setBigUint64(0, BigInt(start - 8), true);
  frame.set(text, 8);
  for (const [offset, bytes] of parts) frame.set(bytes, start + offset);
  return { json, tensors: frame };
}

/** The JSON and the bytes of a frame. */
function split(buffer) {
  const length = Number(new DataView(buffer).getBigUint64(0, true));
  const text = new TextDecoder().decode(new Uint8Array(buffer, 8, length));
  return [text, new Uint8Array(buffer, 8 + length)];
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function ofWord(value) {
  return { NaN: NaN, Infinity: Infinity, "-Infinity": -Infinity }[value] ?? value;
}

/** JSON.parse has rounded integers of more than 53 bits. No typed array holds numbers of 8 bits. */
function isExact(numbers, dtype) {
  if (dtype === "int64" || dtype === "uint64") return numbers.every(Number.isSafeInteger);
  return !dtype.startsWith("float8");
}

function tensorOf(descriptor, bytes) {
  const { dtype, shape, strides, body, base64, data } = descriptor;
  if (body) return Tensor.fromBytes(bytes.subarray(body.offset, body.offset + body.size), shape, dtype, strides);
  if (base64 !== undefined) return Tensor.fromBytes(fromBase64(base64), shape, dtype);
  if (data === undefined) return { $tensor: descriptor };
  if (dtype.startsWith("complex")) {
    const parts = [data].flat(Infinity).map(ofWord);
    return new Tensor(new (dtype === "complex128" ? Float64Array : Float32Array)(parts), shape,
      dtype === "complex128" ? dtype : "complex64");
  }
  const flat = [data].flat(Infinity).map(ofWord);
  if (!isExact(flat, dtype))
    throw new RangeError(
      `the numbers of a ${dtype} tensor are not exact in "data": use the transport "body" or "base64"`);
  const half = dtype === "float16" || dtype === "bfloat16";
  return reshaped(Tensor.fromNested(flat, half ? "float32" : dtype), shape);
}

const reshaped = (tensor, shape) => new Tensor(tensor.data, shape, tensor.dtype);

/**
 * The value that JSON stands for: its tensors become Tensor. `bytes`: those of a frame. Read from the outside in: the
 * object inside "$literal" is no tensor, whatever its keys are; its members are values again.
 */
function valueOf(json, bytes) {
  if (json === null || typeof json !== "object") return json;
  if (Array.isArray(json)) return json.map((one) => valueOf(one, bytes));
  const keys = Object.keys(json);
  const marker = keys.length === 1 ? keys[0] : "";
  if (marker === "$tensor" && typeof json.$tensor === "object") return tensorOf(json.$tensor, bytes);
  const plain = marker === "$literal" ? json.$literal : json;
  return Object.fromEntries(Object.entries(plain).map(([key, member]) => [key, valueOf(member, bytes)]));
}

/** `read`, whose exceptions become a SharedTensorError. */
function reading(read) {
  try {
    return read();
  } catch (error) {
    throw failure(`a message of the daemon cannot be read: ${error.message}`);
  }
}

/** The JSON of a message, or of a batch, before its tensors are read. @returns {{json: any, bytes: Uint8Array}} */
export function parse(data) {
  return reading(() => {
    const [text, bytes] = typeof data === "string" ? [data, new Uint8Array()] : split(data);
    return { json: JSON.parse(text), bytes };
  });
}

/** Reads the tensors of a message of parse(). */
export const decode = ({ json, bytes }) => reading(() => valueOf(json, bytes));
