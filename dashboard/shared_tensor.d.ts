// Types of shared_tensor.js.

export type Params = readonly unknown[] | Record<string, unknown>;
export type Transport = "body" | "base64" | "data";
export type DType =
  | "bool" | "uint8" | "uint16" | "uint32" | "uint64" | "int8" | "int16" | "int32" | "int64"
  | "float16" | "bfloat16" | "float32" | "float64" | "complex32" | "complex64" | "complex128"
  | "float8_e4m3fn" | "float8_e4m3fnuz" | "float8_e5m2" | "float8_e5m2fnuz" | "float8_e8m0fnu" | "float4_e2m1fn_x2";
export type TypedArray =
  | Uint8Array | Uint8ClampedArray | Int8Array | Uint16Array | Int16Array | Uint32Array | Int32Array
  | BigUint64Array | BigInt64Array | Float32Array | Float64Array;
export type Nested = number | boolean | bigint | readonly Nested[];

export interface ClientOptions {
  /** Of the daemon; default: the origin of the page. */
  url?: string | URL;
  token?: string;
  session?: string;
  /** How tensors of results come; default: "body". */
  transport?: Transport;
}
export interface CallOptions {
  timeoutMs?: number;
  idempotencyKey?: string;
  /** Cancels the call. Only by fetch. */
  signal?: AbortSignal;
}
export interface TaskOptions {
  ttlMs?: number;
  deadlineMs?: number;
  idempotencyKey?: string;
}
export interface StreamOptions {
  timeoutMs?: number;
  window?: { items: number; bytes: number };
}
export interface TaskState {
  id: string;
  method: string;
  state: "pending" | "running" | "completed" | "failed" | "cancelled";
  created_at: string;
  updated_at: string;
  ttl_ms: number;
  progress?: { fraction: number; message?: string };
  error?: { code: number; message: string; data?: unknown };
}
export type BatchAnswer<T = unknown> = { result: T; error?: undefined } | { error: SharedTensorError; result?: undefined };

export class SharedTensorError extends Error {
  constructor(message: string, code: number | null, data?: unknown, status?: number);
  /** Of JSON-RPC; null: there is no answer of the daemon. */
  readonly code: number | null;
  readonly data: any;
  readonly status?: number;
  readonly retryAfterMs?: number;
}

export class Tensor {
  constructor(data: TypedArray | number[], shape?: number[], dtype?: DType);
  readonly shape: number[];
  readonly dtype: DType;
  readonly data: TypedArray;
  readonly size: number;
  readonly bytes: Uint8Array;
  static fromNested(nested: Nested, dtype?: DType): Tensor;
  static fromBytes(bytes: Uint8Array, shape: number[], dtype: DType, strides?: number[]): Tensor;
  static isArray(value: unknown): value is TypedArray;
  /**
   * The elements as numbers, rows first; of complex elements the absolute values. 64-bit integers are rounded. A
   * TypeError for float4_e2m1fn_x2.
   */
  numbers(): Exclude<TypedArray, BigUint64Array | BigInt64Array>;
  toNested(): any;
}

export class Client {
  constructor(options?: ClientOptions);
  readonly url: URL;
  token: string;
  session: string;
  transport: Transport;
  readonly socket: Socket;
  call<T = any>(method: string, params?: Params, options?: CallOptions): Promise<T>;
  notify(method: string, params?: Params, options?: CallOptions): Promise<void>;
  batch(items: { method: string; params?: Params }[], options?: CallOptions): Promise<BatchAnswer[]>;
  submit(method: string, params?: Params, options?: TaskOptions): Promise<Task>;
  stream<T = any>(method: string, params?: Params, options?: StreamOptions): StreamCall<T>;
  discover(): Promise<any>;
  putTensor(name: string, tensor: Tensor | TypedArray,
    options?: { metadata?: Record<string, string>; ifVersion?: number }): Promise<{ name: string; version: number }>;
  getTensor(name: string, options?: { owner?: string }): Promise<Tensor>;
  putNpy(name: string, file: ArrayBuffer | Uint8Array | Tensor): Promise<{ name: string; version: number }>;
  getNpy(name: string, options?: { owner?: string }): Promise<ArrayBuffer>;
  get(path: string,
    options?: { signal?: AbortSignal; method?: "GET" | "HEAD"; headers?: Record<string, string> }): Promise<Response>;
  close(): void;
}

export class Socket {
  readonly isOpen: boolean;
  open(): Promise<void>;
  call<T = any>(method: string, params?: Params, options?: Omit<CallOptions, "signal">): Promise<T>;
  notify(method: string, params?: Params): Promise<void>;
  stream<T = any>(method: string, params?: Params, options?: StreamOptions): StreamCall<T>;
  watch(taskId: string, changed: (task: TaskState) => void): Promise<TaskState>;
  unwatch(taskId: string): void;
  /** Its calls fail. The next call connects again. */
  close(): void;
}

export class Task<T = any> {
  constructor(client: Client, state: { id: string } & Partial<TaskState>);
  readonly client: Client;
  readonly id: string;
  state: TaskState;
  refresh(): Promise<TaskState>;
  result(onProgress?: (task: TaskState) => void): Promise<T>;
  cancel(): Promise<TaskState>;
}

export class StreamCall<T = any> implements AsyncIterable<T> {
  readonly started: Promise<void>;
  readonly result: Promise<any>;
  items(name?: string): AsyncGenerator<T, void, void>;
  [Symbol.asyncIterator](): AsyncGenerator<T, void, void>;
  /** False: the function wants no more. */
  write(value: unknown, name?: string): Promise<boolean>;
  end(name?: string): Promise<void>;
  /** Also before the call has started. `result` rejects with -32004. */
  cancel(): void;
}

export function parseNpy(file: ArrayBuffer | Uint8Array): Tensor;
export function formatNpy(tensor: Tensor): Uint8Array;
