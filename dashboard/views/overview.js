import { Table, Tile, bytes, duration, section, short, tiles } from "../dom.js";
import { timeChart } from "../charts.js";
import { store } from "../store.js";

export function overviewView() {
  const tile = Object.fromEntries(["Calls a second", "Slowest 1 %", "Workers busy", "Waiting", "Memory lent", "Uptime"]
    .map((name) => [name, new Tile(name)]));
  const rate = timeChart("Calls a second", ["answered", "failed"]);
  const latency = timeChart("Time of a call", ["p50", "p90", "p99"], " ms");
  const pool = timeChart("Workers and queue", ["busy workers", "waiting calls"]);
  const table = new Table("Functions that were called", [
    { title: "Function", cell: (one) => one.name },
    { title: "Calls a second", number: true, cell: (one) => short(one.rate) },
    { title: "p50", number: true, cell: (one) => duration(one.p50) },
    { title: "p90", number: true, cell: (one) => duration(one.p90) },
    { title: "p99", number: true, cell: (one) => duration(one.p99) },
    { title: "Calls", number: true, cell: (one) => one.calls.toLocaleString("en") },
    { title: "Failed", number: true, cell: (one) => one.failures.toLocaleString("en") },
  ], (one) => one.name, "No function was called yet. Try one in Functions.");

  return {
    elements: [
      tiles(...Object.values(tile)),
      columns(section("Calls a second", rate.element), section("Time of a call", latency.element),
        section("Workers and queue", pool.element)),
      section("By function, last ten seconds", table.element),
    ],
    update() {
      const { history, info } = store;
      const { workers, shared_memory: memory } = info.totals;
      const last = (name) => history[name].at(-1);
      const p99 = last("p99");
      tile["Calls a second"].update(short(last("ok") + last("failed")), last("failed") > 0 ? `${short(last("failed"))} failed` : "");
      tile["Slowest 1 %"].update(duration(p99), "last 2 s");
      tile["Workers busy"].update(`${workers.busy} of ${workers.count}`, workers.replaced ? `${workers.replaced} hang` : "");
      tile.Waiting.update(short(workers.queued), `${short(workers.rejected)} rejected so far`);
      tile["Memory lent"].update(bytes(memory.leased_bytes), `${short(memory.leases)} leases`);
      tile.Uptime.update(duration(info.uptime_ms), `${short(info.service.requests)} requests`);
      rate.update([history.time, history.ok, history.failed], [short(last("ok")), short(last("failed"))]);
      latency.update([history.time, history.p50, history.p90, history.p99],
        [last("p50"), last("p90"), p99].map(duration));
      pool.update([history.time, history.busy, history.queued], [short(workers.busy), short(workers.queued)]);
      table.update(store.functions);
    },
  };
}

function columns(...children) {
  const element = document.createElement("div");
  element.className = "columns";
  element.append(...children);
  return element;
}
