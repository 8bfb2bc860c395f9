import { barChart } from "../charts.js";
import { Table, Tile, action, bytes, duration, h, say, section, short, tiles } from "../dom.js";
import { store } from "../store.js";

const DOUBLINGS = Array.from({ length: 44 }, (_, power) => 2 ** power); // steps of the axis

export function memoryView() {
  const call = (method, params) => store.call(method, params);
  const names = ["Lent to clients", "Shared memory", "Kept warm", "Named tensors", "Results of tasks", "Cache"];
  const tile = Object.fromEntries(names.map((name) => [name, new Tile(name)]));
  const picture = h("div");
  let chart = null;
  let chartOf = "";
  let clients = [];
  const table = new Table("Leases", [
    { title: "Lease", cell: (one) => one.id.slice(0, 12) + "…" },
    { title: "Client", cell: (one) => one.owner + (one.pid ? `, process ${one.pid}` : "") },
    { title: "Transport", cell: (one) => one.transport },
    { title: "Size", number: true, cell: (one) => bytes(one.bytes) },
    { title: "Age", number: true, cell: (one) => duration(one.age_ms) },
    { title: "Ends in", number: true, cell: (one) => (one.expires_in_ms === undefined ? "" : duration(one.expires_in_ms)) },
    { title: "State", cell: (one) => (one.confirmed ? "held" : "provisional") },
    { title: "Actions", live: false, cell: (one) => action("Revoke", async () => {
      await call("lease.revoke", { leases: [one.id] });
      say("The lease was revoked.");
      await refresh();
    }, { "aria-label": `Revoke lease ${one.id}` }) },
  ], (one) => one.id, "No tensor is lent to a client.");
  const objects = new Table("Objects", [
    { title: "Handle", cell: (one) => one.id.slice(0, 12) + "…" },
    { title: "Type", cell: (one) => one.type },
    { title: "Client", cell: (one) => one.owner },
    { title: "Uses", number: true, cell: (one) => short(one.uses) },
    { title: "Age", number: true, cell: (one) => duration(one.age_ms) },
    { title: "Actions", live: false, cell: (one) => action("Release", async () => {
      await call("object.release", { ids: [one.id] });
      await refresh();
    }, { "aria-label": `Release ${one.id}` }) },
  ], (one) => one.id, "Clients hold no objects.");

  /** By client and device: from the metrics, else from the leases that this client may see. */
  function sums(leases) {
    if (store.leases) return store.leases.map(({ client, device, bytes: size }) => [client, device, size]);
    return leases.map((one) => [one.owner, one.transport === "cuda_ipc" ? "device" : "cpu", one.bytes]);
  }

  function draw(all) {
    const devices = [...new Set(all.map(([, device]) => device))].sort();
    clients = [...new Set(all.map(([client]) => client))].sort();
    if (chartOf !== devices.join("\n")) {
      chartOf = devices.join("\n");
      // The series that is drawn first is the sum of all devices, so the names are in reverse.
      chart = devices.length ? barChart("Memory lent, by client and device", [...devices].reverse(), () => clients, bytes, DOUBLINGS) : null;
      picture.replaceChildren(chart?.element ?? h("p", { class: "none" }, "No memory is lent."));
    }
    const sum = (client, device) => all.filter(([c, d]) => c === client && d === device).reduce((total, [, , size]) => total + size, 0);
    const upTo = devices.map((_, at) => clients.map((client) => devices.slice(0, at + 1).reduce((total, device) => total + sum(client, device), 0)));
    const texts = devices.map((device) => bytes(clients.reduce((total, client) => total + sum(client, device), 0)));
    chart?.update([clients.map((_, at) => at), ...upTo.reverse()], texts.reverse());
  }

  async function refresh() {
    const [{ leases }, held] = await Promise.all([call("lease.list", { limit: 200 }), call("object.list")]);
    table.update(leases);
    objects.update(held.objects);
    draw(sums(leases));
  }

  return {
    elements: [tiles(...Object.values(tile)), section("By client and device", picture), section("Leases", table.element), section("Objects", objects.element)],
    update() {
      const { totals, limits } = store.info;
      const { shared_memory: memory, named_tensors: named, tasks, cache } = totals;
      tile["Lent to clients"].update(bytes(memory.leased_bytes), `${short(memory.leases)} leases`);
      tile["Shared memory"].update(bytes(memory.segment_bytes), `of ${bytes(limits.max_shared_bytes)}, ${short(memory.segments)} segments`);
      tile["Kept warm"].update(bytes(memory.idle_segment_bytes), `${short(memory.idle_segments)} segments`);
      tile["Named tensors"].update(bytes(named.bytes), `of ${bytes(limits.max_named_bytes)}, ${short(named.names)} names`);
      tile["Results of tasks"].update(bytes(tasks.host_bytes + tasks.device_bytes), `${short(tasks.finished)} ended tasks`);
      tile.Cache.update(bytes(cache.bytes), `${short(cache.entries)} results, ${short(cache.hits)} hits`);
      refresh().catch((error) => say(error.message, "bad"));
    },
  };
}
