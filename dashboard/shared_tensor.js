/**
 * The client of shared_tensor for web pages: calls by fetch and WebSocket, batches, tasks, streams, tensors as typed
 * arrays. An ES module without dependencies; a daemon serves it at /shared_tensor.js, with its types in
 * shared_tensor.d.ts.
 *
 *     import { Client, Tensor } from "/shared_tensor.js";
 *     const client = new Client();
 *     const doubled = await client.call("scale", [new Tensor(new Float32Array([1, 2, 3, 4]), [2, 2]), 2]);
 *     console.log(doubled.dtype, doubled.shape, doubled.data);
 *
 * A page of another origin needs --allowed-origin. docs/dashboard.md has more examples.
 */

import { decode, encode, parse } from "./shared_tensor/message.js";
import { errorOf, failure } from "./shared_tensor/error.js";
import { Socket } from "./shared_tensor/socket.js";
import { Task } from "./shared_tensor/task.js";
import { formatNpy, parseNpy } from "./shared_tensor/npy.js";

export { Socket } from "./shared_tensor/socket.js";
export { StreamCall } from "./shared_tensor/stream.js";
export { SharedTensorError } from "./shared_tensor/error.js";
export { Task } from "./shared_tensor/task.js";
export { Tensor } from "./shared_tensor/tensor.js";
export { formatNpy, parseNpy } from "./shared_tensor/npy.js";

const FRAME = "application/vnd.shared-tensor";

/** A client of one daemon. Its calls may overlap. */
export class Client {
  #nextId = 1;
  #socket = null;

  /**
   * @param {object} [options]
   * @param {string|URL} [options.url] of the daemon; default: the origin of the page.
   * @param {string} [options.token] if the daemon has tokens.
   * @param {string} [options.session] the token of a session that all calls belong to.
   * @param {"body"|"base64"|"data"} [options.transport] how tensors of results come; default: as bytes ("body").
   */
  constructor({ url = globalThis.location?.origin, token = "", session = "", transport = "body" } = {}) {
    const base = String(url);
    this.url = new URL(base.endsWith("/") ? base : base + "/");
    this.token = token;
    this.session = session;
    this.transport = transport;
  }

  /**
   * Calls a function by fetch.
   * @param {string} method
   * @param {Array|object} [params] by position or by name; with tensors, typed arrays and references anywhere inside.
   * @param {object} [options] `timeoutMs`, `idempotencyKey`, and `signal`, an AbortSignal that cancels the call.
   * @returns {Promise<any>} the result, its tensors as Tensor.
   * @throws {SharedTensorError}
   */
  async call(method, params = [], options = {}) {
    const { answer } = await this.#post({ ...this.#request(method, params), id: this.#nextId++ }, options);
    if (answer.error) throw errorOf(answer.error);
    return answer.result;
  }

  /** Calls a function and does not wait for it: no result, no error of the function. */
  async notify(method, params = [], options = {}) {
    await this.#post(this.#request(method, params), options);
  }

  /**
   * Sends several calls as one batch. An item may name the result of an earlier item: `{$ref: {item: INDEX}}`.
   * @param {{method: string, params?: Array|object}[]} items
   * @returns {Promise<({result: any}|{error: SharedTensorError})[]>} in the order of the items.
   */
  async batch(items, options = {}) {
    if (items.length === 0) return [];
    const requests = items.map(({ method, params = [] }, id) => ({ ...this.#request(method, params), id }));
    const { answer } = await this.#post(requests, options);
    if (!Array.isArray(answer)) throw errorOf(answer.error);
    return answer.map((one) => (one.error ? { error: errorOf(one.error) } : { result: one.result }));
  }

  /** The client's WebSocket: opened when it is first used, and opened again when it was closed. */
  get socket() {
    this.#socket ??= new Socket(this);
    return this.#socket;
  }

  /**
   * Starts a task: a call whose result the daemon keeps.
   * @param {object} [options] `ttlMs`, `deadlineMs`, `idempotencyKey`.
   * @returns {Promise<Task>}
   */
  async submit(method, params = [], { ttlMs, deadlineMs, idempotencyKey } = {}) {
    const wanted = { method, params };
    if (ttlMs !== undefined) wanted.ttl_ms = ttlMs;
    if (deadlineMs !== undefined) wanted.deadline_ms = deadlineMs;
    if (idempotencyKey !== undefined) wanted.idempotency_key = idempotencyKey;
    return new Task(this, await this.call("task.submit", wanted));
  }

  /** Calls a function that streams, over the WebSocket. @returns {StreamCall} */
  stream(method, params = [], options = {}) {
    return this.socket.stream(method, params, options);
  }

  /** The OpenRPC document: all functions and methods. */
  discover() {
    return this.call("rpc.discover");
  }

  /** Publishes a tensor under a name. @returns {Promise<{name: string, version: number}>} */
  putTensor(name, tensor, { metadata, ifVersion } = {}) {
    const params = { name, tensor };
    if (metadata !== undefined) params.metadata = metadata;
    if (ifVersion !== undefined) params.if_version = ifVersion;
    return this.call("tensor.put", params);
  }

  /** The tensor of a name ("weights", "set/member"). @returns {Promise<Tensor>} */
  async getTensor(name, { owner } = {}) {
    const found = await this.call("tensor.get", owner === undefined ? { name } : { name, owner });
    if (found.tensor) return found.tensor;
    throw failure(`"${name}" is a set of tensors: name one member, ${name}/MEMBER`);
  }

  /** The .npy file of a named tensor. @returns {Promise<ArrayBuffer>} */
  async getNpy(name, { owner } = {}) {
    const query = owner === undefined ? "" : "?owner=" + encodeURIComponent(owner);
    const response = await this.get("tensors/" + name.split("/").map(encodeURIComponent).join("/") + ".npy" + query);
    return response.arrayBuffer();
  }

  /** Publishes a .npy file (an ArrayBuffer or Uint8Array, or a Tensor) under a name. */
  async putNpy(name, file) {
    const bytes = file instanceof ArrayBuffer || ArrayBuffer.isView(file) ? file : formatNpy(file);
    return this.putTensor(name, parseNpy(bytes));
  }

  /** GET, or HEAD, of a path of the daemon, such as "metrics". @returns {Promise<Response>} with status 2xx. */
  async get(path, { signal, method = "GET", headers = {} } = {}) {
    const response = await this.#fetch(path, { method, headers: { ...this.#headers(), ...headers }, signal });
    if (response.ok) return response;
    throw await rejectionOf(response);
  }

  /** Closes the WebSocket: its calls fail. It is opened again when it is next used. */
  close() {
    this.#socket?.close();
  }

  #request(method, params) {
    return { jsonrpc: "2.0", method, params };
  }

  #headers() {
    return this.token ? { Authorization: "Bearer " + this.token } : {};
  }

  async #fetch(path, options) {
    try {
      return await fetch(new URL(path, this.url), options);
    } catch (error) {
      if (error.name === "AbortError" || error.name === "TimeoutError") throw error;
      throw failure(`no answer from ${this.url.origin}: ${error.message}`);
    }
  }

  async #post(message, { timeoutMs, idempotencyKey, signal } = {}) {
    const { json, tensors } = encode(message);
    const headers = this.#headers();
    headers["Content-Type"] = tensors ? FRAME : "application/json";
    headers["Shared-Tensor-Accept"] = this.transport === "body" ? "body, base64, data" : this.transport;
    if (timeoutMs !== undefined) headers["Request-Timeout"] = String(timeoutMs);
    if (idempotencyKey !== undefined) headers["Idempotency-Key"] = idempotencyKey;
    if (this.session) headers["Shared-Tensor-Session"] = this.session;
    const body = tensors ?? json;
    const response = await this.#fetch("jsonrpc", { method: "POST", headers, body, signal });
    if (response.status === 204) return { answer: {} };
    const type = response.headers.get("Content-Type") ?? "";
    if (type.startsWith(FRAME)) return { answer: decode(parse(await response.arrayBuffer())) };
    if (!type.startsWith("application/json")) throw await rejectionOf(response);
    const answer = decode(parse(await response.text()));
    if (!Array.isArray(answer) && answer.error) throw errorOf(answer.error, response);
    return { answer };
  }
}

async function rejectionOf(response) {
  const text = await response.text();
  try {
    return errorOf(JSON.parse(text).error, response);
  } catch {
    return failure(`HTTP ${response.status} from ${response.url}`, response.status);
  }
}
