import { Table, Tile, bytes, duration, freshId, h, say, section, setText, short, tiles } from "../dom.js";
import { store } from "../store.js";
import { logPart } from "./log.js";

const EVERY_MS = 10_000; // options do not change

export function serverView() {
  const tile = Object.fromEntries(["Health", "Ready", "Version", "Uptime", "Connections", "Requests"].map((name) => [name, new Tile(name)]));
  const processes = new Table("Worker processes", [
    { title: "Runs", wrap: true, cell: (one) => one.group },
    { title: "Process", cell: (one) => (one.pid ? String(one.pid) : "starting") },
    { title: "State", cell: (one) => (one.ready ? "ready" : "not ready") },
    { title: "Calls", number: true, cell: (one) => String(one.calls) },
    { title: "Restarts", number: true, cell: (one) => String(one.restarts) },
    { title: "Last end", wrap: true, cell: (one) => one.last_end ?? "" },
  ], (one) => one.at, "All functions run in the server itself. --load plugin.so?processes=2 runs those of a plugin in processes of its own.");
  const transports = new Table("Transports of tensors", [
    { title: "Transport", cell: (one) => one.name },
    { title: "State", cell: (one) => (one.usable ? "usable" : "not usable") },
    { title: "Tensors", number: true, cell: (one) => short(one.tensors) },
    { title: "Bytes", number: true, cell: (one) => bytes(one.bytes) },
    { title: "Copied", number: true, cell: (one) => bytes(one.copied_bytes) },
    { title: "Reason", wrap: true, cell: (one) => one.reason ?? "" },
  ], (one) => one.name, "");
  const devices = new Table("Devices", [
    { title: "Device", cell: (one) => one.uuid },
    { title: "Name", cell: (one) => one.name },
    { title: "Memory", number: true, cell: (one) => bytes(one.memory_bytes) },
  ], (one) => one.uuid, "No GPU is shared.");
  const options = new Table("Options", [
    { title: "Option", cell: (one) => one.name },
    { title: "Value", wrap: true, cell: (one) => textOf(one.value) },
    { title: "Default", cell: (one) => textOf(one.default) },
    { title: "From", wrap: true, cell: (one) => one.origin },
    { title: "Meaning", wrap: true, cell: (one) => one.help ?? one.section },
  ], (one) => one.name, "Only admins may see the options.");
  const limits = new Table("Limits", [
    { title: "Limit", cell: ([name]) => name },
    { title: "Value", number: true, cell: ([name, value]) => limitText(name, value) },
  ], ([name]) => name, "");
  const log = logPart();
  const onlyId = freshId("only");
  const only = h("input", { id: onlyId, type: "checkbox", onchange: showOptions });
  const note = h("p", { class: "note" });
  let all = [];
  let read = -Infinity;

  function showOptions() {
    options.update(only.checked ? all.filter((one) => one.origin !== "default") : all);
  }

  async function readOptions() {
    if (performance.now() - read < EVERY_MS) return;
    read = performance.now();
    try {
      all = (await store.client.call("server.options")).options;
    } catch (error) {
      if (error.code !== -32007) throw error;
      all = [];
    }
    showOptions();
  }

  async function readHealth() {
    for (const [path, name] of [["healthz", "Health"], ["readyz", "Ready"]])
      tile[name].update(await store.client.get(path).then(() => "yes", (error) => (error.status === 503 ? "no" : "–")));
  }

  return {
    elements: [
      tiles(...Object.values(tile)),
      log.element,
      section("Worker processes", processes.element),
      section("Transports", transports.element),
      section("Devices", devices.element),
      section("Options", h("div", { class: "row middle" }, only, h("label", { for: onlyId }, "only those that were set")), options.element),
      section("Limits in force", note, limits.element),
    ],
    update() {
      const { info } = store;
      const { totals } = info;
      tile.Version.update(info.version, `protocol ${info.protocol.newest}`);
      tile.Uptime.update(duration(info.uptime_ms), `epoch ${info.epoch.slice(0, 8)}`);
      tile.Connections.update(short(totals.connections), `${short(totals.streams.web_sockets)} WebSockets`);
      tile.Requests.update(short(totals.requests), `${bytes(totals.bytes_in)} in, ${bytes(totals.bytes_out)} out`);
      processes.update((info.worker_processes ?? []).map((one, at) => ({ at, ...one })));
      transports.update(Object.entries(info.transports).map(([name, one]) => ({ name, ...one, ...totals.tensors[name] })));
      devices.update(info.devices);
      limits.update(Object.entries(info.limits));
      setText(note, info.operations ? `The port for operators: ${info.operations}` : "");
      Promise.all([readOptions(), readHealth(), log.update()]).catch((error) => say(error.message, "bad"));
    },
  };
}

function textOf(value) {
  if (value === undefined || value === "") return "";
  if (typeof value === "boolean") return value ? "on" : "off";
  if (Array.isArray(value)) return value.join(", ");
  return String(value);
}

function limitText(name, value) {
  if (name.endsWith("_ms")) return duration(value);
  return name.includes("bytes") ? bytes(value) : short(value);
}
