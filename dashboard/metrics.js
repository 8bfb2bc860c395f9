// What the page reads of /metrics: how often each function was called, and how long its calls took.

const LINE = /^shared_tensor_(calls_total|call_seconds_bucket|lease_bytes|leases)\{(.*)\} (\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

const unescaped = (text) => text.replace(/\\(.)/g, (_, c) => (c === "n" ? "\n" : c));

/**
 * @returns {{calls: Map<string, {ok: number, failed: number}>, seconds: Map<string, [number, number][]>,
 *   leases: {client: string, device: string, count: number, bytes: number}[]}} `seconds`: [limit, calls up to it].
 */
export function parseMetrics(text) {
  const calls = new Map();
  const seconds = new Map();
  const leases = new Map();
  for (const line of text.split("\n")) {
    const found = LINE.exec(line);
    if (!found) continue;
    const labels = Object.fromEntries([...found[2].matchAll(LABEL)].map(([, name, value]) => [name, unescaped(value)]));
    const value = Number(found[3]);
    if (found[1] === "calls_total") {
      const sums = entry(calls, labels.function, () => ({ ok: 0, failed: 0 }));
      sums[labels.outcome === "ok" ? "ok" : "failed"] += value;
    } else if (found[1] === "call_seconds_bucket") {
      entry(seconds, labels.function, () => []).push([labels.le === "+Inf" ? Infinity : Number(labels.le), value]);
    } else if (labels.client !== undefined) {
      const { client, device } = labels;
      const lease = entry(leases, client + "\0" + device, () => ({ client, device, count: 0, bytes: 0 }));
      lease[found[1] === "leases" ? "count" : "bytes"] = value;
    }
  }
  return { calls, seconds, leases: [...leases.values()] };
}

function entry(map, key, make) {
  if (!map.has(key)) map.set(key, make());
  return map.get(key);
}

/** The calls of each bucket between two readings. */
export function since(now = [], before = []) {
  let last = 0;
  return now.map(([limit, count], at) => {
    const upTo = count - (before[at]?.[1] ?? 0);
    const here = upTo - last;
    last = upTo;
    return [limit, here];
  });
}

export function added(all) {
  const sums = new Map();
  for (const buckets of all) for (const [limit, count] of buckets) sums.set(limit, (sums.get(limit) ?? 0) + count);
  return [...sums.entries()].sort(([a], [b]) => a - b);
}

/** The time in milliseconds that a part of the calls did not exceed; inside a bucket in proportion. Null: no calls. */
export function quantile(buckets, part) {
  const total = buckets.reduce((sum, [, count]) => sum + count, 0);
  if (total === 0) return null;
  let below = 0;
  let from = 0;
  for (const [limit, count] of buckets) {
    if (below + count >= part * total && count > 0)
      return 1000 * (limit === Infinity ? from : from + ((part * total - below) / count) * (limit - from));
    below += count;
    from = limit;
  }
  return 1000 * from;
}
