/** The dtypes: the typed array that holds their elements, and how many of its numbers one element has. */
const DTYPES = {
  bool: [Uint8Array, 1],
  uint8: [Uint8Array, 1],
  int8: [Int8Array, 1],
  uint16: [Uint16Array, 1],
  int16: [Int16Array, 1],
  uint32: [Uint32Array, 1],
  int32: [Int32Array, 1],
  uint64: [BigUint64Array, 1],
  int64: [BigInt64Array, 1],
  float32: [Float32Array, 1],
  float64: [Float64Array, 1],
  complex64: [Float32Array, 2],
  complex128: [Float64Array, 2],
  // JavaScript has no arrays of these: `data` holds their bits, and numbers() decodes them.
  float16: [Uint16Array, 1],
  bfloat16: [Uint16Array, 1],
  complex32: [Uint16Array, 2],
  float8_e4m3fn: [Uint8Array, 1],
  float8_e4m3fnuz: [Uint8Array, 1],
  float8_e5m2: [Uint8Array, 1],
  float8_e5m2fnuz: [Uint8Array, 1],
  float8_e8m0fnu: [Uint8Array, 1],
  float4_e2m1fn_x2: [Uint8Array, 1], // two numbers in an element, which numbers() does not decode
};

const NATURAL = new Map([
  [Uint8Array, "uint8"],
  [Uint8ClampedArray, "uint8"],
  [Int8Array, "int8"],
  [Uint16Array, "uint16"],
  [Int16Array, "int16"],
  [Uint32Array, "uint32"],
  [Int32Array, "int32"],
  [BigUint64Array, "uint64"],
  [BigInt64Array, "int64"],
  [Float32Array, "float32"],
  [Float64Array, "float64"],
]);

/** The dtypes whose arrays hold bits, or parts of numbers. */
const BITS_OR_PARTS = /^(b?float16|float8|float4|complex)/;

export const product = (shape) => shape.reduce((count, size) => count * size, 1);

function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function bfloat(bits) {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint32(0, bits * 65536);
  return view.getFloat32(0);
}

/** A number of 8 bits: a sign, an exponent, and the fraction in the last `width` bits. */
function float8(bits, width, bias) {
  const sign = bits & 0x80 ? -1 : 1;
  const exponent = (bits & 0x7f) >> width;
  const fraction = (bits % 2 ** width) / 2 ** width;
  return sign * (exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias));
}

/** The dtypes that numbers() decodes, with the number of an element's bits. */
const DECODED = {
  float16: half,
  bfloat16: bfloat,
  float8_e4m3fn: (bits) => ((bits & 0x7f) === 0x7f ? NaN : float8(bits, 3, 7)),
  float8_e4m3fnuz: (bits) => (bits === 0x80 ? NaN : float8(bits, 3, 8)),
  float8_e5m2: (bits) => half(bits << 8),
  float8_e5m2fnuz: (bits) => (bits === 0x80 ? NaN : float8(bits, 2, 16)),
  float8_e8m0fnu: (bits) => (bits === 0xff ? NaN : 2 ** (bits - 127)),
};

/** Whether the array kept the number `given` as `element`: integers exactly, others rounded. */
function isKept(element, given, dtype) {
  if (dtype === "bool" && element > 1) return false;
  if (typeof element === "bigint") return element === BigInt(given);
  const mayRound = DTYPES[dtype][0] === Float32Array || DTYPES[dtype][0] === Float64Array;
  if (!mayRound) return element === Number(given);
  return Number.isFinite(element) || element === given || Number.isNaN(given);
}

/** The typed array of `numbers`. @throws {RangeError} for a number that does not fit the dtype. */
function arrayOf(numbers, dtype) {
  const data = new DTYPES[dtype][0](numbers.length);
  const big = data instanceof BigInt64Array || data instanceof BigUint64Array;
  for (const [at, given] of numbers.entries()) {
    if (big && typeof given === "number" && !Number.isSafeInteger(given))
      throw new RangeError(`${given} is not an exact ${dtype}: expected an integer, from 2^53 on a BigInt`);
    data[at] = big ? BigInt(given) : Number(given);
    if (!isKept(data[at], given, dtype)) throw new RangeError(`${given} does not fit ${dtype}`);
  }
  return data;
}

function rowsFirst(data, shape, strides, width) {
  const out = new data.constructor(product(shape) * width);
  const index = shape.map(() => 0);
  for (let to = 0; to < out.length; to += width) {
    const from = index.reduce((sum, at, dimension) => sum + at * strides[dimension], 0) * width;
    for (let part = 0; part < width; part++) out[to + part] = data[from + part];
    for (let d = shape.length - 1; d >= 0 && ++index[d] === shape[d]; d--) index[d] = 0;
  }
  return out;
}

/** A tensor: a typed array, rows first, with its shape and dtype. */
export class Tensor {
  /**
   * @param {TypedArray|number[]} data the elements, rows first; an array of numbers becomes float32 without `dtype`.
   * @param {number[]} [shape] default: one dimension.
   * @param {string} [dtype] default: that of the typed array. "bool", "float16", ... where an array serves several.
   */
  constructor(data, shape, dtype) {
    dtype ??= Array.isArray(data) ? "float32" : NATURAL.get(data.constructor);
    const [array, width] = DTYPES[dtype] ?? [];
    if (array === undefined) throw new TypeError(`"${dtype}" is not a dtype of shared_tensor`);
    if (Array.isArray(data)) data = arrayOf(data, dtype);
    const fits = data instanceof array || (data instanceof Uint8ClampedArray && array === Uint8Array);
    if (!fits) throw new TypeError(`a tensor of ${dtype} takes a ${array.name}, not a ${data.constructor.name}`);
    this.shape = shape ?? [data.length / width];
    if (product(this.shape) * width !== data.length)
      throw new RangeError(`${data.length / width} elements do not fit the shape [${this.shape}]`);
    this.dtype = dtype;
    this.data = data;
  }

  /** Whether `value` is a typed array that can be sent as a tensor. */
  static isArray(value) {
    return ArrayBuffer.isView(value) && NATURAL.has(value.constructor);
  }

  /** A tensor of nested arrays of numbers or of booleans. @throws {RangeError} for a number that does not fit. */
  static fromNested(nested, dtype) {
    const shape = [];
    for (let level = nested; Array.isArray(level); level = level[0]) shape.push(level.length);
    const flat = Array.isArray(nested) ? nested.flat(shape.length - 1) : [nested];
    if (flat.some(Array.isArray) || flat.length !== product(shape)) throw new RangeError("rows have unequal lengths");
    const kinds = new Set(flat.map((one) => typeof one));
    if (flat.length > 0 && !(kinds.size === 1 && (kinds.has("number") || kinds.has("boolean") || kinds.has("bigint"))))
      throw new TypeError("a tensor has only numbers, or only true and false");
    dtype ??= kinds.has("boolean") ? "bool" : kinds.has("bigint") ? "int64" : "float32";
    if (BITS_OR_PARTS.test(dtype))
      throw new TypeError(`nested numbers cannot become ${dtype}: give new Tensor the array of its bits or parts`);
    return new Tensor(flat, shape, dtype);
  }

  /** The tensor of bytes, little endian. `strides` in elements: the result has the elements rows first. */
  static fromBytes(bytes, shape, dtype, strides) {
    const [array, width] = DTYPES[dtype] ?? [];
    if (array === undefined) throw new TypeError(`this client does not know the dtype "${dtype}"`);
    const size = array.BYTES_PER_ELEMENT;
    const fits = bytes.byteOffset % size === 0;
    const own = fits ? bytes : bytes.slice();
    const data = new array(own.buffer, own.byteOffset, Math.floor(own.byteLength / size));
    return new Tensor(strides ? rowsFirst(data, shape, strides, width) : data, shape, dtype);
  }

  /** Number of elements. */
  get size() {
    return product(this.shape);
  }

  /** The bytes of the elements, little endian; not a copy. */
  get bytes() {
    return new Uint8Array(this.data.buffer, this.data.byteOffset, this.data.byteLength);
  }

  /**
   * The elements as numbers, rows first; of complex elements the absolute values. 64-bit integers are rounded.
   * @throws {TypeError} for float4_e2m1fn_x2, whose elements are two numbers each.
   */
  numbers() {
    const { data, dtype } = this;
    if (dtype in DECODED) return Float32Array.from(data, DECODED[dtype]);
    if (dtype === "float4_e2m1fn_x2")
      throw new TypeError(`an element of ${dtype} is two numbers: read their bits in \`data\``);
    if (dtype === "complex32") return Float32Array.from({ length: this.size }, (_, i) =>
      Math.hypot(half(data[2 * i]), half(data[2 * i + 1])));
    if (dtype.startsWith("complex")) return Float64Array.from({ length: this.size }, (_, i) =>
      Math.hypot(data[2 * i], data[2 * i + 1]));
    return data instanceof BigInt64Array || data instanceof BigUint64Array ? Float64Array.from(data, Number) : data;
  }

  /** Nested arrays of numbers, as deep as the shape. */
  toNested() {
    const numbers = this.numbers();
    const build = (depth, from, count) => {
      if (depth === this.shape.length) return numbers[from];
      const step = count / (this.shape[depth] || 1);
      return Array.from({ length: this.shape[depth] }, (_, i) => build(depth + 1, from + i * step, step));
    };
    return build(0, 0, this.size);
  }
}
