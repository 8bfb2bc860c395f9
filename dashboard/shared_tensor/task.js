const ENDED = new Set(["completed", "failed", "cancelled"]);
const PAUSE_MS = 20_000; // the longest wait of one request

/** A call whose result the daemon keeps. */
export class Task {
  /** Use `client.submit`; or `new Task(client, {id})` for a task of another page. */
  constructor(client, state) {
    this.client = client;
    this.id = state.id;
    /** The task as it was last seen: {state, progress?: {fraction, message?}, error?, ...}. */
    this.state = state;
  }

  async refresh() {
    this.state = await this.client.call("task.get", { id: this.id });
    return this.state;
  }

  /**
   * Waits for the end and returns the result.
   * @param {(task: object) => void} [onProgress] called with the task when it changes.
   * @throws {SharedTensorError} the error of the function; -32004 if the task was cancelled.
   */
  async result(onProgress) {
    if (onProgress) await this.#watch(onProgress).catch(() => {}); // without a WebSocket: after each wait
    try {
      while (!ENDED.has(this.state.state)) {
        this.state = await this.client.call("task.wait", { id: this.id, timeout_ms: PAUSE_MS });
        onProgress?.(this.state);
      }
    } finally {
      if (onProgress) this.client.socket.unwatch(this.id);
    }
    return this.client.call("task.result", { id: this.id });
  }

  async cancel() {
    this.state = await this.client.call("task.cancel", { id: this.id });
    return this.state;
  }

  #watch(onProgress) {
    return this.client.socket.watch(this.id, onProgress);
  }
}
