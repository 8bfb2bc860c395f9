/** A call failed: an error of the daemon or of its function, or no answer. */
export class SharedTensorError extends Error {
  /**
   * @param {string} message
   * @param {number|null} code of JSON-RPC, such as -32602; null: there is no answer of the daemon.
   * @param {any} data of the error: what was wrong and what to do (docs/protocol.md, "Errors").
   * @param {number} [status] of HTTP.
   */
  constructor(message, code, data, status) {
    super(message);
    this.name = "SharedTensorError";
    this.code = code;
    this.data = data;
    this.status = status;
  }

  /** Milliseconds after which to try again, if the daemon is busy. */
  get retryAfterMs() {
    return this.data?.retry_after_ms;
  }
}

/** What the data of an error say, as text behind its message. */
function details(data) {
  if (data === undefined || data === null) return "";
  if (data.type !== undefined) return `: ${data.type}: ${data.message}`;
  if (data.parameter !== undefined) return `: ${data.parameter}: expected ${data.expected}, got ${data.got}`;
  if (data.detail !== undefined) return ": " + data.detail;
  if (data.kind !== undefined) return ": " + data.kind;
  return ": " + JSON.stringify(data);
}

/** The exception for the `error` of a response. */
export function errorOf({ code, message, data }, response) {
  return new SharedTensorError(message + details(data), code, data, response?.status);
}

/** The exception for a failure without an answer of the daemon. */
export function failure(message, status) {
  return new SharedTensorError(message, null, undefined, status);
}
