import { SharedTensorError, errorOf, failure } from "./error.js";
import { decode, encode, parse } from "./message.js";
import { StreamCall } from "./stream.js";

/** A token as a part of a subprotocol's name: browsers send no Authorization with a WebSocket. */
const spelled = (token) =>
  encodeURIComponent(token).replace(/[()]/g, (c) => "%" + c.charCodeAt(0).toString(16).toUpperCase());

/** JSON-RPC over one WebSocket. It connects with its first call, and again with the first call after its end. */
export class Socket {
  #client;
  #opening = null;
  #webSocket = null;
  #nextId = 1;
  #calls = new Map(); // id -> {resolve, reject, stream?}
  #watches = new Map(); // id of a task -> callback

  /** Use `client.socket`. */
  constructor(client) {
    this.#client = client;
  }

  /** Whether the WebSocket is open now. */
  get isOpen() {
    return this.#webSocket?.readyState === WebSocket.OPEN;
  }

  /** Connects; done already where it is open. @throws {SharedTensorError} */
  async open() {
    this.#opening ??= this.#connect();
    return this.#opening;
  }

  /** As Client.call. `timeoutMs` and `idempotencyKey` work; there is no `signal`. */
  async call(method, params = [], options = {}) {
    await this.open();
    return this.#request(method, params, options);
  }

  async notify(method, params = []) {
    await this.open();
    this.send({ jsonrpc: "2.0", method, params });
  }

  /** Calls a function that streams. @returns {StreamCall} */
  stream(method, params = [], options = {}) {
    return new StreamCall(this, method, params, options);
  }

  /** Calls `changed` with the task when it starts, reports progress and ends. @returns the task as it is now. */
  async watch(id, changed) {
    this.#watches.set(id, changed);
    return this.call("task.watch", { id });
  }

  unwatch(id) {
    if (this.#watches.delete(id) && this.isOpen) this.#request("task.unwatch", { id }).catch(() => {});
  }

  /** Its calls fail. The next call connects again. */
  close() {
    this.#end(failure("the WebSocket was closed"));
  }

  /** For StreamCall: starts a call that streams; its messages go to `stream`. */
  async begin(method, params, options, stream) {
    await this.open();
    const id = this.#nextId;
    return { id, answer: this.#request(method, params, options, stream) };
  }

  /** For StreamCall: sends a message. @returns {number} its bytes. */
  send(message) {
    if (!this.isOpen) throw failure("the WebSocket is closed");
    const { json, tensors } = encode(message);
    this.#webSocket.send(tensors ?? json);
    return (tensors ?? new TextEncoder().encode(json)).length;
  }

  #request(method, params, { timeoutMs, idempotencyKey, window } = {}, stream) {
    const id = this.#nextId++;
    const { transport, session } = this.#client;
    const meta = { accept: transport === "body" ? "body, base64, data" : transport };
    if (timeoutMs !== undefined) meta.timeout_ms = timeoutMs;
    if (idempotencyKey !== undefined) meta.idempotency_key = idempotencyKey;
    if (window !== undefined) meta.stream_window = window;
    if (session) meta.session = session;
    return new Promise((resolve, reject) => {
      this.#calls.set(id, { resolve, reject, stream });
      try {
        this.send({ jsonrpc: "2.0", id, method, params, meta });
      } catch (error) {
        this.#calls.delete(id);
        reject(error);
      }
    });
  }

  #connect() {
    const url = new URL("ws", this.#client.url);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const { token } = this.#client;
    const protocols = token ? ["shared-tensor", "shared-tensor.token." + spelled(token)] : [];
    const webSocket = new WebSocket(url, protocols);
    this.#webSocket = webSocket;
    return new Promise((resolve, reject) => {
      webSocket.binaryType = "arraybuffer";
      webSocket.onopen = () => resolve();
      webSocket.onmessage = ({ data }) => this.#webSocket === webSocket && this.#receive(data);
      webSocket.onclose = ({ code, reason }) => {
        const why = failure(`the WebSocket ended (${code}${reason ? ": " + reason : ""})`);
        reject(why);
        if (this.#webSocket === webSocket) this.#end(why);
      };
    });
  }

  #receive(data) {
    let message;
    try {
      message = parse(data);
    } catch (error) {
      return this.#end(error); // it does not tell which call it belongs to
    }
    const { json, bytes } = message;
    for (const one of Array.isArray(json) ? json : [json]) this.#take(one, bytes);
  }

  #take(json, bytes) {
    let message;
    try {
      message = decode({ json, bytes });
    } catch (error) {
      return this.#drop(json, error);
    }
    const { method, params } = message;
    if (method === "task.changed") this.#watches.get(params.id)?.(params);
    else if (method) this.#calls.get(params?.call)?.stream?.receive(method, params);
    else this.#answer(message);
  }

  /** The call of a message that cannot be read fails; a call that streams still runs, and is cancelled. */
  #drop({ id, method, params }, error) {
    const call = method ? params?.call : id;
    this.#calls.get(call)?.reject(error);
    this.#calls.delete(call);
    if (method && this.isOpen) this.send({ jsonrpc: "2.0", method: "stream.cancel", params: { call } });
  }

  #answer({ id, result, error }) {
    const call = this.#calls.get(id);
    this.#calls.delete(id);
    if (error) call?.reject(errorOf(error));
    else call?.resolve(result);
  }

  #end(why) {
    this.#webSocket?.close(1000);
    this.#opening = this.#webSocket = null;
    const calls = [...this.#calls.values()];
    this.#calls.clear();
    this.#watches.clear();
    for (const { reject } of calls) reject(new SharedTensorError(why.message, null, undefined));
  }
}
