import { Table, action, bytes, freshId, h, say, section, short } from "../dom.js";
import { store } from "../store.js";

export function modelsView() {
  const call = (method, params) => store.call(method, params);
  const table = new Table("Models", [
    { title: "Model", cell: (one) => one.name },
    { title: "Functions", wrap: true, cell: (one) => one.functions.join(", ") },
    { title: "Device", cell: (one) => one.device + (one.dtype ? `, ${one.dtype}` : "") },
    { title: "Parameters", number: true, cell: (one) => short(one.parameters) },
    { title: "Size", number: true, cell: (one) => bytes(one.bytes) },
    { title: "State", cell: (one) => ({ yes: "for each session", no: "none" })[one.stateful] ?? one.stateful },
    { title: "Sessions", number: true, cell: (one) => String(one.sessions) },
    { title: "Loaded", cell: (one) => new Date(one.loaded_at).toLocaleString() },
    { title: "Left out", wrap: true, cell: (one) => one.left_out.join("; ") },
    { title: "Actions", live: false, cell: (one) => action("Unload", async () => {
      if (!confirm(`Unload ${one.name}? Its functions can no longer be called.`)) return;
      await call("model.unload", { name: one.name });
      say(`${one.name} was unloaded.`);
    }, { "aria-label": `Unload ${one.name}` }) },
  ], (one) => one.name, "No model is loaded. Start the server with --model NAME=PATH, or with --model-folder to load one here.");

  const fields = ["name", "file"].map((word) => {
    const id = freshId(word);
    const input = h("input", { id, type: "text", autocomplete: "off" });
    return { input, element: h("div", { class: "field" }, h("label", { for: id }, word), input) };
  });
  const replaceId = freshId("replace");
  const replace = h("input", { id: replaceId, type: "checkbox" });
  const load = h("form", { novalidate: true, onsubmit: async (event) => {
    event.preventDefault();
    const [name, file] = fields.map(({ input }) => input.value);
    try {
      await call("model.load", { name, file, replace: replace.checked });
      say(`${name} was loaded.`);
    } catch (error) {
      say(error.message, "bad");
    }
  } }, h("div", { class: "row" }, fields.map(({ element }) => element),
    h("span", { class: "row middle" }, replace, h("label", { for: replaceId }, "replace the model of that name")),
    h("button", { type: "submit", class: "primary" }, "Load")));

  return {
    elements: [section("Models", table.element),
      section("Load a model", h("p", { class: "note" }, "A file in a folder of --model-folder, such as v2/bottom.pt."), load)],
    update: () => call("model.list").then(({ models }) => table.update(models), (error) => say(error.message, "bad")),
  };
}
