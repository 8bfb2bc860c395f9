// The state of the daemon as the page sees it: read over the WebSocket every two seconds while the page is visible.

import { added, parseMetrics, quantile, since } from "./metrics.js";
import { Client, SharedTensorError } from "../shared_tensor.js";

const EVERY_MS = 2000;
const KEPT = 300; // readings: ten minutes
const WINDOW = 5; // readings that the table of functions looks back on: ten seconds
const RETRY = 15; // readings after which a WebSocket is tried again
const TOKEN = "shared_tensor.token";

/** Methods that change nothing: such a call may be made again if the connection ends before its answer comes. */
const READS = new Set(["server.info", "rpc.discover", "server.calls", "task.list", "task.result", "tensor.list",
  "lease.list", "object.list", "model.list", "log.tail"]);

const kept = () => sessionStorage.getItem(TOKEN) ?? "";

class Store extends EventTarget {
  client = new Client({ url: new URL("./", location.href), token: kept() });
  info = null;
  /** @type {Map<string, object>} the functions and methods of rpc.discover, by name */
  methods = new Map();
  history = { time: [], ok: [], failed: [], p50: [], p90: [], p99: [], queued: [], busy: [] };
  functions = []; // {name, rate, p50, p90, p99, calls, failures}
  leases = null; // by client and device; null: only admins may see this
  #readings = []; // {time, calls, seconds}
  #mayReadMetrics = true;
  #sockets = true; // false: no WebSocket could be opened
  #reading = null;
  #ticks = 0;
  #timer = 0;
  #epoch = "";

  start() {
    document.addEventListener("visibilitychange", () => document.hidden || this.tick());
    return this.tick();
  }

  /** Reads the state now, and then every two seconds. */
  tick() {
    this.#reading ??= this.#tick().finally(() => (this.#reading = null));
    return this.#reading;
  }

  /** The token stays in this tab: sessionStorage is not sent by itself, and no other page can read it. */
  async login(token) {
    await this.#reading; // with the old token
    if (token) sessionStorage.setItem(TOKEN, token);
    else sessionStorage.removeItem(TOKEN);
    this.client.close();
    this.client = new Client({ url: this.client.url, token });
    this.#mayReadMetrics = true;
    return this.tick();
  }

  /** Calls over the WebSocket; by fetch where a proxy lets no WebSocket through. */
  async call(method, params = []) {
    const { socket } = this.client;
    const opens = this.#sockets && (await socket.open().then(() => true, () => false));
    if (!opens) return this.#fetched(method, params);
    try {
      return await socket.call(method, params);
    } catch (error) {
      if (error.code !== null) throw error;
      if (READS.has(method)) return this.#fetched(method, params);
      throw new SharedTensorError(`${error.message}: it is not known whether ${method} was carried out`, null);
    }
  }

  async #fetched(method, params) {
    const answer = await this.client.call(method, params);
    this.#sockets &&= this.client.socket.isOpen;
    return answer;
  }

  get isLive() {
    return this.client.socket.isOpen;
  }

  get hasToken() {
    return kept() !== "";
  }

  async #tick() {
    clearTimeout(this.#timer);
    if (document.hidden) return;
    if (++this.#ticks % RETRY === 0) this.#sockets = true;
    try {
      await this.#read();
      this.#tell("change");
    } catch (error) {
      this.info = null;
      this.#sockets = true;
      this.#tell(error.status === 401 ? "token" : "lost", error);
      if (error.status === 401) return;
    }
    this.#timer = setTimeout(() => this.tick(), EVERY_MS);
  }

  async #read() {
    const [info, metrics] = await Promise.all([this.call("server.info"), this.#metrics()]);
    const models = Object.keys(info.totals.functions).some((name) => !this.methods.has(name));
    if (info.epoch !== this.#epoch || models || this.info?.functions !== info.functions) {
      const { methods } = await this.call("rpc.discover");
      this.methods = new Map(methods.map((method) => [method.name, method]));
      if (info.epoch !== this.#epoch) this.#readings = [];
      this.#epoch = info.epoch;
      this.info = info;
      this.#tell("functions");
    }
    this.info = info;
    this.leases = metrics?.leases ?? null;
    this.#note(metrics ?? ofInfo(info));
  }

  /** Null: this client may not read them. */
  async #metrics() {
    if (!this.#mayReadMetrics) return null;
    try {
      return parseMetrics(await (await this.client.get("metrics")).text());
    } catch (error) {
      if (error.status !== 403) throw error;
      this.#mayReadMetrics = false;
      return null;
    }
  }

  #note({ calls, seconds }) {
    const own = (map) => new Map([...map].filter(([name]) => !this.methods.get(name)?.["x-builtin"]));
    const now = { time: performance.now(), calls: own(calls), seconds: seconds && own(seconds) };
    this.#readings.push(now);
    if (this.#readings.length > WINDOW + 1) this.#readings.shift();
    this.#sum(now, this.#readings.at(-2));
    this.functions = this.#byFunction(now, this.#readings[0]);
  }

  #sum(now, before) {
    const passed = before ? (now.time - before.time) / 1000 : 0;
    const rate = (kind) => (before ? total(now.calls, kind) - total(before.calls, kind) : 0) / (passed || 1);
    const buckets = before && now.seconds
      ? added([...now.seconds].map(([name, one]) => since(one, before.seconds?.get(name))))
      : [];
    const { workers } = this.info.totals;
    const line = {
      time: Date.now() / 1000, ok: Math.max(0, rate("ok")), failed: Math.max(0, rate("failed")),
      p50: quantile(buckets, 0.5), p90: quantile(buckets, 0.9), p99: quantile(buckets, 0.99),
      queued: workers.queued, busy: workers.busy,
    };
    for (const [name, values] of Object.entries(this.history)) {
      values.push(line[name]);
      if (values.length > KEPT) values.shift();
    }
  }

  #byFunction(now, before) {
    const passed = (now.time - before.time) / 1000;
    return [...now.calls].map(([name, { ok, failed }]) => {
      const earlier = before.calls.get(name) ?? { ok: 0, failed: 0 };
      const rate = passed > 0 ? (ok + failed - earlier.ok - earlier.failed) / passed : 0;
      const times = this.info.totals.functions[name]?.compute_ms;
      const buckets = now.seconds ? since(now.seconds.get(name), before.seconds?.get(name)) : [];
      const at = (part, otherwise) => (now.seconds ? quantile(buckets, part) : otherwise);
      return { name, rate, calls: ok + failed, failures: failed,
        p50: at(0.5, times?.p50), p90: at(0.9, times?.p90), p99: at(0.99, times?.p99) };
    }).filter(({ calls }) => calls > 0).sort((a, b) => b.rate - a.rate || b.calls - a.calls);
  }

  #tell(what, detail) {
    this.dispatchEvent(new CustomEvent(what, { detail }));
  }
}

/** Without /metrics: runs since the start, and their times since the start. */
function ofInfo(info) {
  const calls = Object.entries(info.totals.functions).map(([name, { calls: runs, failures }]) =>
    [name, { ok: runs - failures, failed: failures }]);
  return { calls: new Map(calls), seconds: null };
}

const total = (calls, kind) => [...calls.values()].reduce((sum, one) => sum + one[kind], 0);

export const store = new Store();
