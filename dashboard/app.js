// The frame of the page: views by the address's hash, the connection, the login.

import { h, say, setText } from "./dom.js";
import { store } from "./store.js";
import { callsView } from "./views/calls.js";
import { functionsView } from "./views/functions.js";
import { memoryView } from "./views/memory.js";
import { modelsView } from "./views/models.js";
import { overviewView } from "./views/overview.js";
import { serverView } from "./views/server.js";
import { tensorsView } from "./views/tensors.js";

/** Name in the address, title, and what makes the view: {element, update(), leave?()}. */
const VIEWS = [
  ["overview", "Overview", overviewView],
  ["calls", "Calls and tasks", callsView],
  ["functions", "Functions", functionsView],
  ["tensors", "Tensors", tensorsView],
  ["memory", "Memory", memoryView],
  ["models", "Models", modelsView],
  ["server", "Server", serverView],
];

const byId = (id) => document.getElementById(id);
const links = new Map(VIEWS.map(([name, title]) => [name, h("a", { href: "#" + name }, title)]));
let view = null;

function show() {
  const wanted = location.hash.slice(1).split("/")[0];
  const [name, title, make] = VIEWS.find(([one]) => one === wanted) ?? VIEWS[0];
  for (const [one, link] of links) {
    if (one === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  view?.leave?.();
  view = make();
  byId("main").replaceChildren(h("h1", {}, title), ...view.elements);
  document.title = `${title} – ${byId("service").textContent}`;
  update();
}

function update() {
  if (store.info) view?.update?.();
}

function connection(state, text) {
  byId("connection").dataset.state = state;
  setText(byId("connection"), text);
}

function askForToken(why) {
  connection("waiting", "waiting for a token");
  setText(byId("login-why"), why);
  byId("token").value = "";
  if (!byId("login").open) byId("login").showModal();
}

store.addEventListener("change", () => {
  const { service, version } = store.info;
  setText(byId("service"), service.name || "shared_tensor");
  connection("live", store.isLive ? `live, version ${version}` : `connected without a WebSocket, version ${version}`);
  byId("logout").hidden = !store.hasToken;
  update();
});
store.addEventListener("functions", () => view?.functions?.());
store.addEventListener("lost", ({ detail }) => connection("lost", `no connection: ${detail.message}`));
store.addEventListener("token", () =>
  askForToken(store.hasToken ? "The server does not know this token." : "This server wants a token."));

byId("login").addEventListener("close", () => store.login(byId("token").value));
byId("login").addEventListener("cancel", (event) => event.preventDefault());
byId("logout").addEventListener("click", async () => {
  byId("logout").hidden = true;
  await store.login("");
  say("Logged out.");
});
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});
byId("views").append(...[...links.values()].map((link) => h("li", {}, link)));
addEventListener("hashchange", () => {
  show();
  byId("main").focus();
  scrollTo(0, 0);
});
show();
store.start();
