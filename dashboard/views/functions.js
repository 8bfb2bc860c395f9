import { SharedTensorError } from "../../shared_tensor.js";
import { duration, freshId, h, progressBar, section } from "../dom.js";
import { fieldOf } from "../form.js";
import { showResult } from "../result.js";
import { store } from "../store.js";

const MOST_ITEMS = 200; // of a stream that are shown

export function functionsView() {
  const searchId = freshId("search");
  const list = h("ul", { class: "list" });
  const search = h("input", { id: searchId, type: "search", autocomplete: "off", oninput: fill });
  const place = h("div");
  function chosen() {
    try {
      return decodeURIComponent(location.hash.split("/").slice(1).join("/"));
    } catch {
      return ""; // a link that somebody wrote wrongly
    }
  }

  function fill() {
    const word = search.value.toLowerCase();
    const names = [...store.methods.values()].filter((one) => !one["x-builtin"] && one.name.toLowerCase().includes(word));
    list.replaceChildren(...names.map((one) => h("li", {}, h("button", {
      type: "button", "aria-current": one.name === chosen() && "true", onclick: () => choose(one),
    }, one.name))));
    if (names.length === 0) list.replaceChildren(h("li", { class: "none" }, store.methods.size ? "No function has such a name." : ""));
  }
  function choose(one) {
    history.replaceState(null, "", `#functions/${encodeURIComponent(one.name)}`);
    place.replaceChildren(functionForm(one));
    fill();
  }
  function refill() {
    fill();
    const one = store.methods.get(chosen());
    if (one && !place.firstChild) choose(one);
    if (!one && !place.firstChild) place.replaceChildren(h("p", { class: "none" }, "Choose a function to call it."));
    if (one && place.firstElementChild?.className === "none") choose(one);
  }
  refill();
  return {
    elements: [h("div", { class: "split" },
      section("Functions", h("div", { class: "field" }, h("label", { for: searchId }, "Search"), search), list), place)],
    functions: refill,
  };
}

function functionForm(method) {
  const fields = method.params.map((parameter) => [parameter, fieldOf(parameter)]);
  const streams = method["x-streams"] ?? [];
  const state = h("p", { role: "status", class: "note" });
  const result = h("div", { class: "result" });
  const submit = h("button", { type: "submit", class: "primary" }, "Call");
  const cancel = h("button", { type: "button", hidden: true }, "Cancel");
  const modeId = freshId("mode");
  const modes = streams.length ? ["stream"] : method["x-execution"] === "task" ? ["task"] : ["call", "task"];
  const mode = h("select", { id: modeId }, modes.map((one) => h("option", {}, one)));
  const input = streams.find(({ flow }) => flow === "in");
  const items = input && fieldOf({ name: `items of ${input.name}`, required: false, schema: { type: "array" } });

  async function read() {
    const params = {};
    for (const [{ name }, field] of fields) {
      const value = await field.read();
      if (value !== undefined) params[name] = value;
    }
    return params;
  }

  const run = {
    async call(params, setCancel) {
      const stop = new AbortController();
      setCancel(() => stop.abort());
      showResult(result, await store.client.call(method.name, params, { signal: stop.signal }));
    },
    async task(params, setCancel) {
      const task = await store.client.submit(method.name, params);
      setCancel(() => task.cancel());
      const bar = progressBar(0, `Progress of ${method.name}`);
      const words = h("span");
      result.replaceChildren(h("p", {}, bar, " ", words));
      showResult(result, await task.result(({ state: now, progress }) => {
        progressBar(progress?.fraction ?? 0, `Progress of ${method.name}`, bar);
        words.textContent = `${now} ${progress?.message ?? ""}`;
      }));
    },
    async stream(params, setCancel) {
      const call = store.client.stream(method.name, params);
      setCancel(() => call.cancel());
      if (input) feed(call, (await items.read()) ?? [], input.name);
      const log = h("ol", { class: "list" });
      result.replaceChildren(h("h3", {}, "Items"), log);
      for (const { name, flow } of streams) {
        if (flow !== "out") continue;
        let count = 0;
        for await (const item of call.items(name)) {
          if (count++ >= MOST_ITEMS) continue;
          const line = h("li");
          log.append(line);
          showResult(line, item);
        }
      }
      const end = h("div");
      result.append(h("h3", {}, "Result"), end);
      showResult(end, await call.result);
    },
  };

  async function submitted(event) {
    event.preventDefault();
    submit.disabled = true;
    const started = performance.now();
    state.textContent = "running";
    try {
      const params = await read();
      result.replaceChildren();
      await run[mode.value](params, (stop) => {
        cancel.hidden = false;
        cancel.onclick = stop;
      });
      state.textContent = `answered after ${duration(performance.now() - started)}`;
    } catch (error) {
      const cancelled = error.name === "AbortError";
      state.textContent = cancelled ? "cancelled" : "failed";
      showResult(result, error instanceof SharedTensorError ? error
        : new SharedTensorError(cancelled ? "the call was cancelled" : error.message, null));
    } finally {
      submit.disabled = false;
      cancel.hidden = true;
    }
  }

  const facts = [`runs ${{ worker: "on a worker", inline: "inline", task: "as a task" }[method["x-execution"]]}`];
  if (method["x-idempotent"]) facts.push("idempotent");
  if (method["x-stateful"]) facts.push("keeps state in a session");
  for (const { name, flow } of streams) facts.push(`${flow === "in" ? "reads" : "writes"} the stream ${name}`);
  return h("div", { class: "columns" },
    section(method.name, h("p", {}, method.summary ?? ""), h("p", { class: "note" }, facts.join(", ")),
      h("form", { onsubmit: submitted, novalidate: true }, fields.map(([, { element }]) => element), items?.element ?? null,
        h("div", { class: "row middle" }, h("label", { for: modeId }, "as"), mode, submit, cancel))),
    section("Result", state, result));
}

/** Sends the items while the answers are read. */
async function feed(call, values, name) {
  try {
    for (const value of values) if (!(await call.write(value, name))) return;
    await call.end(name);
  } catch {
    // The call has failed: its result tells.
  }
}
