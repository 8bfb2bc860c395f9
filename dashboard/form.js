// Forms from the JSON Schemas of parameters. A field is {element, read()}: read() returns the value, or undefined where
// nothing was given; it may throw with a text for people.

import { Tensor, parseNpy } from "../shared_tensor.js";
import { freshId, h } from "./dom.js";

const DTYPES = ["float32", "float64", "int64", "int32", "int16", "int8", "uint8", "bool"];
const FORMS = [
  ["float32 [1, 3, height, width], 0 to 1", "nchw"],
  ["uint8 [height, width, 3]", "hwc"],
  ["float32 [height, width], grey, 0 to 1", "grey"],
];
const WORDS = ["NaN", "Infinity", "-Infinity"];

const isNull = (schema) => schema.type === "null";

/** What kind of field a schema needs. */
function kindOf(schema) {
  if (schema.$ref?.endsWith("/Tensor")) return "tensor";
  if (schema["x-object-type"]) return "object";
  if (schema.enum) return "choice";
  if (schema.anyOf) {
    const kinds = schema.anyOf.filter((one) => !isNull(one)).map(kindOf);
    if (kinds.includes("number")) return "number";
    return kinds.length === 1 ? kinds[0] : "json";
  }
  if (schema.type === "string") return schema.contentEncoding === "base64" ? "bytes" : "text";
  return { integer: "integer", number: "number", boolean: "flag" }[schema.type] ?? "json";
}

const choicesOf = (schema) => schema.enum ?? schema.anyOf?.find((one) => one.enum)?.enum ?? [];
const shown = (value) => (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));

/** A field for one parameter of rpc.discover. */
export function fieldOf({ name, required, schema }) {
  const kind = kindOf(schema);
  if (kind === "tensor") return tensorField(name, required);
  const id = freshId("field");
  const { element, read } = FIELDS[kind](id, schema, required);
  const hint = [kind === "json" ? "JSON" : kind === "object" ? `handle of ${schema["x-object-type"]}` : kind];
  if (!required) hint.push(schema.default === undefined ? "optional" : `default ${shown(schema.default)}`);
  return {
    element: h("div", { class: "field" }, h("label", { for: id }, h("span", { class: "name" }, name), ` ${hint.join(", ")}`), element),
    read: async () => {
      const value = await read();
      if (value === undefined && required) throw new Error(`${name} is missing: give ${hint[0]}`);
      return value;
    },
  };
}

function input(id, properties) {
  return h("input", { id, autocomplete: "off", ...properties });
}

const FIELDS = {
  integer(id) {
    const element = input(id, { type: "text", inputmode: "numeric" });
    return { element, read: () => readText(element, /^[+-]?\d+$/, "an integer", (text) => {
      const value = BigInt(text);
      return BigInt(Number(value)) === value && Number.isSafeInteger(Number(value)) ? Number(value) : value;
    }) };
  },
  number(id) {
    const element = input(id, { type: "text", inputmode: "decimal" });
    return { element, read: () => readText(element, null, "a number", (text) => {
      const value = WORDS.includes(text) ? text : Number(text);
      if (Number.isNaN(value)) throw new Error(`"${text}" is not a number`);
      return value;
    }) };
  },
  text(id, schema, required) {
    const element = input(id, { type: "text" });
    return { element, read: () => (required || element.value !== "" ? element.value : undefined) };
  },
  flag(id, schema, required) {
    if (!required) return selectOf(id, [true, false], required);
    const element = h("input", { id, type: "checkbox" });
    return { element, read: () => element.checked };
  },
  choice(id, schema, required) {
    return selectOf(id, choicesOf(schema), required);
  },
  bytes(id) {
    const element = input(id, { type: "file" });
    return { element, read: async () => element.files[0] && base64(await element.files[0].arrayBuffer()) };
  },
  object(id) {
    const element = input(id, { type: "text", placeholder: "o-..." });
    return { element, read: () => (element.value ? { $object: { id: element.value.trim() } } : undefined) };
  },
  json(id) {
    const element = h("textarea", { id, spellcheck: "false" });
    return { element, read: () => readText(element, null, "JSON", (text) => JSON.parse(text)) };
  },
};

/** One of `values`. What is not required has one more option, which gives nothing: the function's default counts. */
function selectOf(id, values, required) {
  const options = values.map((value, at) => h("option", { value: String(at) }, shown(value)));
  const element = h("select", { id }, required ? options : [h("option", { value: "" }, "not given"), ...options]);
  return { element, read: () => (element.value === "" ? undefined : values[Number(element.value)]) };
}

function readText(element, pattern, expected, convert) {
  const text = element.value.trim();
  if (text === "") return undefined;
  if (pattern && !pattern.test(text)) throw new Error(`"${text}" is not ${expected}`);
  return convert(text);
}

function base64(buffer) {
  let text = "";
  for (const byte of new Uint8Array(buffer)) text += String.fromCharCode(byte);
  return btoa(text);
}

/** A tensor from nested arrays, a .npy file, an image, or the name of a tensor in the daemon. */
export function tensorField(name, required) {
  const sources = { numbers: numbersSource(name), file: fileSource(name), image: imageSource(name), name: nameSource(name) };
  const id = freshId("source");
  const select = h("select", { id, onchange: show },
    h("option", { value: "numbers" }, "numbers"), h("option", { value: "file" }, ".npy file"),
    h("option", { value: "image" }, "image"), h("option", { value: "name" }, "named tensor"));
  function show() {
    for (const [source, { element }] of Object.entries(sources)) element.hidden = source !== select.value;
  }
  show();
  return {
    element: h("fieldset", {}, h("legend", {}, name), h("div", { class: "row middle" }, h("label", { for: id }, `tensor${required ? "" : ", optional"}, from`), select),
      Object.values(sources).map(({ element }) => element)),
    read: async () => {
      const value = await sources[select.value].read();
      if (value === undefined && required) throw new Error(`${name} is missing: give a tensor`);
      return value;
    },
  };
}

function numbersSource(name) {
  const text = h("textarea", { spellcheck: "false", "aria-label": `${name}: nested arrays`, placeholder: "[[1, 2], [3, 4]]" });
  const id = freshId("dtype");
  const dtype = h("select", { id }, DTYPES.map((one) => h("option", {}, one)));
  return {
    element: h("div", {}, text, h("div", { class: "row middle" }, h("label", { for: id }, "dtype"), dtype)),
    read: () => readText(text, null, "", (nested) => {
      try {
        return Tensor.fromNested(JSON.parse(nested), dtype.value);
      } catch (error) {
        const hint = error instanceof SyntaxError ? "; expected nested arrays such as [[1, 2], [3, 4]]" : "";
        throw new Error(`${name}: ${error.message}${hint}`);
      }
    }),
  };
}

function fileSource(name) {
  const file = h("input", { type: "file", accept: ".npy", "aria-label": `${name}: .npy file` });
  return { element: file, read: async () => file.files[0] && parseNpy(await file.files[0].arrayBuffer()) };
}

function nameSource(name) {
  const text = h("input", { type: "text", placeholder: "weights or set/member", "aria-label": `${name}: name of a tensor` });
  return { element: text, read: () => (text.value ? { $ref: text.value.trim() } : undefined) };
}

function imageSource(name) {
  const file = h("input", { type: "file", accept: "image/*", "aria-label": `${name}: image file` });
  const [formId, widthId, heightId] = ["form", "width", "height"].map(freshId);
  const form = h("select", { id: formId }, FORMS.map(([title, value]) => h("option", { value }, title)));
  const size = (id, label) => [h("label", { for: id }, label), h("input", { id, type: "number", min: "1", max: "4096", placeholder: "as it is" })];
  const [width, height] = [size(widthId, "width"), size(heightId, "height")];
  return {
    element: h("div", { class: "field" }, file, h("div", { class: "row middle" }, h("label", { for: formId }, "as"), form),
      h("div", { class: "row middle" }, width, height)),
    read: async () => {
      if (!file.files[0]) return undefined;
      const bitmap = await createImageBitmap(file.files[0]).catch(() => {
        throw new Error(`${name}: ${file.files[0].name} is not an image that this browser reads`);
      });
      return imageTensor(bitmap, form.value, Number(width[1].value) || bitmap.width, Number(height[1].value) || bitmap.height);
    },
  };
}

function imageTensor(bitmap, form, width, height) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.drawImage(bitmap, 0, 0, width, height);
  const { data } = context.getImageData(0, 0, width, height); // red, green, blue, alpha
  const count = width * height;
  if (form === "hwc") return new Tensor(Uint8Array.from({ length: 3 * count }, (_, i) => data[4 * Math.floor(i / 3) + (i % 3)]), [height, width, 3]);
  if (form === "grey")
    return new Tensor(Float32Array.from({ length: count }, (_, i) =>
      (0.299 * data[4 * i] + 0.587 * data[4 * i + 1] + 0.114 * data[4 * i + 2]) / 255), [height, width]);
  return new Tensor(Float32Array.from({ length: 3 * count }, (_, i) => data[4 * (i % count) + Math.floor(i / count)] / 255), [1, 3, height, width]);
}
