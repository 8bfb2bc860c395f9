import { Table, action, duration, freshId, h, progressBar, say, section } from "../dom.js";
import { showResult } from "../result.js";
import { store } from "../store.js";

const STATES = ["all", "pending", "running", "completed", "failed", "cancelled"];
const ended = (task) => ["completed", "failed", "cancelled"].includes(task.state);

function progress(item, before) {
  if (!item.progress) return "";
  const bar = progressBar(item.progress.fraction, `Progress of ${item.method ?? item.function}`, before?.firstChild);
  const line = before instanceof HTMLElement ? before : h("span", {}, bar, h("span"));
  line.lastChild.textContent = " " + (item.progress.message ?? "");
  return line;
}

export function callsView() {
  const call = (method, params) => store.call(method, params);
  const calls = new Table("Calls that run or wait", [
    { title: "Function", cell: (one) => one.function },
    { title: "State", cell: (one) => one.state },
    { title: "For", number: true, cell: (one) => duration(one.age_ms) },
    { title: "Progress", cell: progress },
    { title: "Caller", cell: (one) => one.owner },
    { title: "Kind", cell: (one) => (one.task ? "task" : "call") },
    { title: "Actions", live: false, cell: (one) => action("Cancel", async () => {
      await call("server.cancel_call", { id: one.id });
      say(`${one.function} was cancelled.`);
      await refresh();
    }, { "aria-label": `Cancel ${one.function} ${one.id}` }) },
  ], (one) => one.id, "No call runs or waits.");

  const result = h("div", { class: "result" });
  const tasks = new Table("Tasks", [
    { title: "Function", cell: (task) => task.method },
    { title: "State", cell: (task) => task.state },
    { title: "Progress", cell: progress },
    { title: "Started", cell: (task) => new Date(task.created_at).toLocaleTimeString() },
    { title: "Changed", cell: (task) => new Date(task.updated_at).toLocaleTimeString() },
    { title: "Error", wrap: true, cell: (task) => (task.error ? `${task.error.message}: ${task.error.data?.message ?? task.error.data?.detail ?? ""}` : "") },
    { title: "Actions", cell: (task, before) => taskButton(task, before) },
  ], (task) => task.id, "There are no tasks.");

  function taskButton(task, before) {
    const wanted = ended(task) ? (task.state === "completed" ? "Result" : "") : "Cancel";
    if (wanted === "") return "";
    if (before?.textContent === wanted) return before;
    return action(wanted, async () => {
      if (wanted === "Cancel") {
        await call("task.cancel", { id: task.id });
        say(`The task ${task.method} was cancelled.`);
        return refresh();
      }
      showResult(result, await call("task.result", { id: task.id }));
      result.scrollIntoView({ block: "nearest" });
    }, { "aria-label": `${wanted} of ${task.method}, task ${task.id}` });
  }

  const stateId = freshId("state");
  const state = h("select", { id: stateId, onchange: () => refresh() }, STATES.map((one) => h("option", {}, one)));
  let watched = new Set();

  async function refresh() {
    const [running, listed] = await Promise.all([
      call("server.calls", { limit: 200 }),
      call("task.list", state.value === "all" ? { limit: 200 } : { limit: 200, state: state.value }),
    ]);
    calls.update(running.calls);
    shown = listed.tasks;
    tasks.update(shown);
    for (const task of shown) {
      if (ended(task) || watched.has(task.id)) continue;
      watched.add(task.id);
      store.client.socket.watch(task.id, changed).catch(() => {}); // the list is read again anyway
    }
  }
  let shown = [];
  function changed(task) {
    shown = shown.map((one) => (one.id === task.id ? task : one));
    tasks.update(shown);
    if (ended(task)) store.client.socket.unwatch(task.id);
  }

  return {
    elements: [
      section("Now", calls.element),
      section("Tasks", h("div", { class: "row middle" }, h("label", { for: stateId }, "State"), state), tasks.element),
      section("Result of a task", result),
    ],
    update: () => refresh().catch((error) => say(error.message, "bad")),
    leave: () => watched.forEach((id) => store.client.socket.unwatch(id)),
  };
}
