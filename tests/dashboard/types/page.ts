// A page's script in TypeScript, which uses each name that shared_tensor.d.ts exports. It is compiled, not run.

import {
  BatchAnswer, CallOptions, Client, ClientOptions, DType, Nested, Params, SharedTensorError, Socket, StreamCall,
  StreamOptions, Task, TaskOptions, TaskState, Tensor, Transport, TypedArray, formatNpy, parseNpy,
} from "./shared_tensor.js";

const transport: Transport = "base64";
const options: ClientOptions = { url: new URL("http://127.0.0.1:2537"), token: "secret", session: "", transport };
const client = new Client(options);
const where: string = client.url.href + client.token + client.session + client.transport;

async function calls(stop: AbortController): Promise<number> {
  const params: Params = [1, 2];
  const limits: CallOptions = { timeoutMs: 1000, idempotencyKey: "k", signal: stop.signal };
  await client.notify("add", { a: 1, b: 2 }, limits);
  const answers: BatchAnswer[] = await client.batch([{ method: "add", params }, { method: "add" }]);
  for (const { error, result } of answers) console.log(error?.retryAfterMs ?? result);
  const document = await client.discover();
  console.log(document.methods, (await client.get("metrics", { method: "HEAD", headers: {} })).status);
  return client.call<number>("add", params, limits);
}

async function tensors(): Promise<Tensor> {
  const data: TypedArray = new Float32Array([1, 2, 3, 4]);
  const dtype: DType = "float32";
  const nested: Nested = [[1, 2], [3, 4]];
  const x = new Tensor(data, [2, 2], dtype);
  const all = [x, new Tensor([1, 2]), Tensor.fromNested(nested, "int64"), Tensor.fromBytes(x.bytes, [4], dtype, [1])];
  const facts: [number[], DType, TypedArray, number] = [x.shape, x.dtype, x.data, x.size];
  console.log(all, facts, x.numbers()[0] + 1, x.toNested(), Tensor.isArray(facts[2]));
  const { version } = await client.putTensor("w", x, { metadata: { by: "page" }, ifVersion: 1 });
  await client.putNpy(`w${version}`, formatNpy(parseNpy(await client.getNpy("w", { owner: "uid:0" }))));
  return client.getTensor("w", { owner: "uid:0" });
}

async function tasks(): Promise<void> {
  const limits: TaskOptions = { ttlMs: 1000, deadlineMs: 1000, idempotencyKey: "k" };
  const task: Task = await client.submit("sleep", [1], limits);
  const seen: TaskState = await task.refresh();
  console.log(seen.progress?.fraction, seen.error?.code, task.id, task.client === client);
  await task.result(({ state }) => console.log(state));
  await new Task(client, { id: task.id }).cancel();
}

async function streams(): Promise<void> {
  const limits: StreamOptions = { timeoutMs: 1000, window: { items: 8, bytes: 1 << 20 } };
  const call: StreamCall<number> = client.stream<number>("running_sum", [], limits);
  await call.started;
  if (await call.write(1, "numbers")) await call.end();
  for await (const sum of call) console.log(sum + 1);
  for await (const sum of call.items("sums")) console.log(sum + 1);
  call.cancel();
  await call.result;
}

async function socket(): Promise<void> {
  const one: Socket = client.socket;
  await one.open();
  if (one.isOpen) await one.call("add", [1, 2], { timeoutMs: 1000 });
  await one.notify("add", [1, 2]);
  const state: TaskState = await one.watch("t-1", (task: TaskState) => console.log(task.state));
  one.unwatch(state.id);
  one.stream("count").cancel();
  one.close();
}

export async function main(): Promise<void> {
  try {
    console.log(where, await calls(new AbortController()), await tensors());
    await Promise.all([tasks(), streams(), socket()]);
  } catch (error) {
    if (!(error instanceof SharedTensorError)) throw error;
    console.log(error.code, error.data, error.status, error.message);
    throw new SharedTensorError("the page failed", null);
  } finally {
    client.close();
  }
}

// The compiler finds mistakes: these types are not all `any`.
// @ts-expect-error: no such transport
client.transport = "shm";
// @ts-expect-error: a method's name is a string
client.call(1);
// @ts-expect-error: no such dtype
new Tensor([1], [1], "float33");
// @ts-expect-error: only by fetch
client.socket.call("add", [1, 2], { signal: new AbortController().signal });
