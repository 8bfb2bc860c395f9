/**
 * A call that streams. Read what the function writes with `for await (const item of call)`; send what it reads with
 * write(); `await call.result` for its result.
 *
 *     const call = client.stream("running_sum");
 *     await call.write(1);
 *     await call.write(2);
 *     call.end();
 *     for await (const sum of call) console.log(sum);   // 1, 3
 *     console.log(await call.result);                   // 3
 *
 * Items of several written streams: `for await (const item of call.items("NAME"))`.
 */
export class StreamCall {
  #socket;
  #id = null;
  #streams = []; // {name, flow}
  #window = { items: 1024, bytes: 4 << 20 };
  #ready;
  #ended = false;
  #cancelled = false;
  #queues = new Map(); // name of a stream that the function writes -> {items, taken, done}
  #sent = new Map(); // name of a stream that the function reads -> {sizes: of items on their way, taken}
  #wake = new Set();

  /** Use `client.stream`. */
  constructor(socket, method, params, options) {
    this.#socket = socket;
    const started = new Promise((resolve) => (this.#ready = resolve));
    this.started = started;
    /** The result of the function. */
    this.result = socket.begin(method, params, options, this).then(({ id, answer }) => {
      this.#id = id;
      if (this.#cancelled) this.cancel(); // cancel() was called before the call had its id
      return answer;
    });
    this.result.catch(() => {}).then(() => this.#finish());
  }

  /** The items of a stream that the function writes; default: its only one. */
  async *items(name) {
    await this.started;
    const stream = name ?? this.#only("out");
    const queue = this.#queue(stream);
    try {
      for (;;) {
        while (queue.items.length > 0) {
          const item = queue.items.shift();
          queue.taken++;
          const tells = queue.items.length === 0 || queue.taken % 64 === 0; // the writer waits for this
          if (tells && !this.#ended) this.#tell("stream.taken", { stream, items: queue.taken });
          yield item;
        }
        if (queue.done || this.#ended) break;
        await this.#change();
      }
    } finally {
      if (!queue.done && !this.#ended) this.#tell("stream.stop", { stream });
    }
    await this.result; // a call that failed throws here
  }

  [Symbol.asyncIterator]() {
    return this.items();
  }

  /** Sends an item; waits while the function reads too slowly. False: the function wants no more. */
  async write(value, name) {
    await this.started;
    const stream = name ?? this.#only("in");
    const sent = this.#sending(stream);
    while (!this.#ended && !sent.stopped && this.#isFull(sent)) await this.#change();
    if (this.#ended || sent.stopped) return false;
    sent.sizes.push(this.#tell("stream.item", { stream, value }));
    return true;
  }

  /** No more items come. */
  async end(name) {
    await this.started;
    if (!this.#ended) this.#tell("stream.end", { stream: name ?? this.#only("in") });
  }

  /** Cancels the call, also before it has started: `result` rejects with -32004. */
  cancel() {
    this.#cancelled = true;
    if (this.#id !== null && !this.#ended && this.#socket.isOpen) this.#tell("stream.cancel", {});
  }

  /** For Socket. */
  receive(method, params) {
    if (method === "stream.ready") {
      this.#id = params.call;
      this.#streams = params.streams;
      this.#window = params.window ?? this.#window;
      this.#ready();
    } else if (method === "stream.item") this.#queue(params.stream).items.push(params.value);
    else if (method === "stream.end") this.#queue(params.stream).done = true;
    else if (method === "stream.taken") {
      const sent = this.#sending(params.stream);
      sent.sizes.splice(0, params.items - sent.taken);
      sent.taken = params.items;
    } else if (method === "stream.stop") this.#sending(params.stream).stopped = true;
    this.#wakeAll();
  }

  #only(flow) {
    const fitting = this.#streams.filter((stream) => stream.flow === flow);
    if (fitting.length === 1) return fitting[0].name;
    const what = flow === "in" ? "read" : "write";
    throw new TypeError(`the function ${what}s ${fitting.length} streams: name one of [${fitting.map((s) => s.name)}]`);
  }

  #queue(name) {
    if (!this.#queues.has(name)) this.#queues.set(name, { items: [], taken: 0, done: false });
    return this.#queues.get(name);
  }

  #sending(name) {
    if (!this.#sent.has(name)) this.#sent.set(name, { sizes: [], taken: 0, stopped: false });
    return this.#sent.get(name);
  }

  #isFull({ sizes }) {
    const bytes = sizes.reduce((sum, size) => sum + size, 0);
    return sizes.length >= this.#window.items || bytes >= this.#window.bytes;
  }

  #tell(method, params) {
    return this.#socket.send({ jsonrpc: "2.0", method, params: { call: this.#id, ...params } });
  }

  #change() {
    return new Promise((resolve) => this.#wake.add(resolve));
  }

  #wakeAll() {
    const waiting = [...this.#wake];
    this.#wake.clear();
    for (const wake of waiting) wake();
  }

  #finish() {
    this.#ended = true;
    this.#ready();
    this.#wakeAll();
  }
}
