// NumPy's file format, versions 1 to 3, little endian and rows first; files in Fortran's order are turned.

import { failure } from "./error.js";
import { Tensor } from "./tensor.js";

const OF_NPY = {
  "|b1": "bool", "|u1": "uint8", "|i1": "int8", "<u2": "uint16", "<i2": "int16", "<u4": "uint32", "<i4": "int32",
  "<u8": "uint64", "<i8": "int64", "<f2": "float16", "<f4": "float32", "<f8": "float64", "<c8": "complex64",
  "<c16": "complex128",
};
const TO_NPY = Object.fromEntries(Object.entries(OF_NPY).map(([npy, dtype]) => [dtype, npy]));
const MAGIC = "\x93NUMPY";

const latin = (bytes) => String.fromCharCode(...bytes);

/** Reads a .npy file. @param {ArrayBuffer|Uint8Array} file @returns {Tensor} */
export function parseNpy(file) {
  const bytes = file instanceof Uint8Array ? file : new Uint8Array(file);
  if (bytes.length < 12 || latin(bytes.subarray(0, 6)) !== MAGIC) throw failure("this is not a .npy file");
  const view = new DataView(bytes.buffer, bytes.byteOffset);
  const wide = bytes[6] >= 2; // the version
  const start = wide ? 12 : 10;
  const end = start + (wide ? view.getUint32(8, true) : view.getUint16(8, true));
  const header = latin(bytes.subarray(start, end));
  const descr = /'descr':\s*'([^']*)'/.exec(header)?.[1];
  const dims = /'shape':\s*\(([^)]*)\)/.exec(header)?.[1];
  const dtype = OF_NPY[descr];
  if (dtype === undefined || dims === undefined)
    throw failure(`the .npy file has elements of ${descr ?? "an unknown type"}: expected ${Object.keys(OF_NPY).join(" ")}`);
  const shape = dims.split(",").map((text) => text.trim()).filter(Boolean).map(Number);
  const columnsFirst = /'fortran_order':\s*True/.test(header);
  const strides = columnsFirst && shape.map((_, at) => shape.slice(0, at).reduce((a, b) => a * b, 1));
  return Tensor.fromBytes(bytes.slice(end), shape, dtype, strides || undefined);
}

/** Writes a .npy file. @param {Tensor} tensor @returns {Uint8Array} */
export function formatNpy(tensor) {
  const descr = TO_NPY[tensor.dtype];
  if (descr === undefined) throw failure(`.npy has no ${tensor.dtype}`);
  const comma = tensor.shape.length === 1 ? "," : "";
  let header = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${tensor.shape.join(", ")}${comma}), }`;
  header = header.padEnd(Math.ceil((header.length + 11) / 64) * 64 - 11) + "\n";
  const file = new Uint8Array(10 + header.length + tensor.bytes.length);
  file.set(Array.from(MAGIC + "\x01\x00", (c) => c.charCodeAt(0)));
  new DataView(file.buffer).setUint16(8, header.length, true);
  file.set(Array.from(header, (c) => c.charCodeAt(0)), 10);
  file.set(tensor.bytes, 10 + header.length);
  return file;
}
