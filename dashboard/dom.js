// Small helpers: elements, tables whose rows stay, and numbers for people. Text is never read as HTML.

/** Makes an element: h("button", {type: "button", onclick}, "Cancel"). Children may be null. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** `st-part`: an element that calls `enter` when it comes into the page, and `leave` when it is taken out of it. */
class Part extends HTMLElement {
  enter = () => {};
  leave = () => {};
  connectedCallback() {
    this.enter();
  }
  disconnectedCallback() {
    this.leave();
  }
}
customElements.define("st-part", Part);

let lastId = 0;
export const freshId = (word) => `${word}-${++lastId}`;

/** Sets the text if it is another one: so that screen readers and selections see no change where there is none. */
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** A button that is off while its action runs; shows a failure of the action. */
export function action(label, act, properties = {}) {
  const button = h("button", { type: "button", ...properties }, label);
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await act(button);
    } catch (error) {
      say(error.message, "bad");
    } finally {
      button.disabled = false;
    }
  });
  return button;
}

let hiding = 0;
/** Shows a line at the bottom for some seconds, and tells it to screen readers. */
export function say(text, kind = "ok") {
  const line = document.getElementById("message");
  line.dataset.kind = kind;
  line.textContent = text;
  clearTimeout(hiding);
  hiding = setTimeout(() => (line.textContent = ""), 8000);
}

/**
 * A table whose rows are made once for each key and then changed in place, so that focus and selection stay.
 * Columns: {title, number?, wrap?, cell(item) -> text or Node, live?: false for a cell that is made once}.
 */
export class Table {
  #columns;
  #key;
  #rows = new Map();
  #none;

  constructor(caption, columns, key, none) {
    this.#columns = columns;
    this.#key = key;
    this.body = h("tbody");
    const head = columns.map(({ title, number }) => h("th", { scope: "col", class: number && "number" }, title));
    this.#none = h("p", { class: "none" }, none);
    this.scroller = h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
      h("table", {}, h("caption", { class: "hidden" }, caption), h("thead", {}, h("tr", {}, head)), this.body));
    this.element = h("div", {}, this.scroller, this.#none);
    this.update([]);
  }

  update(items) {
    const wanted = new Set(items.map(this.#key));
    for (const [key, row] of this.#rows) {
      if (wanted.has(key)) continue;
      row.remove();
      this.#rows.delete(key);
    }
    items.forEach((item, at) => {
      const row = this.#row(item);
      if (this.body.children[at] !== row) this.body.insertBefore(row, this.body.children[at] ?? null);
    });
    this.#none.hidden = items.length > 0;
    this.scroller.hidden = items.length === 0;
  }

  #row(item) {
    const key = this.#key(item);
    if (!this.#rows.has(key)) this.#rows.set(key, h("tr", {}, this.#columns.map(({ number, wrap, title }, at) =>
      h(at === 0 ? "th" : "td", { class: number ? "number" : wrap && "wrap", scope: at === 0 && "row", "data-title": title }))));
    const row = this.#rows.get(key);
    this.#columns.forEach(({ cell, live = true }, at) => {
      const place = row.children[at];
      if (!live && place.firstChild) return;
      const content = cell(item, place.firstChild);
      if (!(content instanceof Node)) setText(place, content ?? "");
      else if (place.firstChild !== content) place.replaceChildren(content);
    });
    return row;
  }
}

/** A bar of a fraction; give the element that it returned before to change it. */
export function progressBar(fraction, label, before) {
  const bar = before instanceof HTMLProgressElement ? before : h("progress", { max: 1 });
  bar.value = fraction;
  bar.setAttribute("aria-label", `${label}: ${Math.round(fraction * 100)} %`);
  return bar;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
export function bytes(count) {
  if (count === undefined) return "–";
  let unit = 0;
  let value = count;
  for (; value >= 1024 && unit < UNITS.length - 1; unit++) value /= 1024;
  return `${short(value)} ${UNITS[unit]}`;
}

/** Three significant digits. */
export function short(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return "–";
  if (value === 0 || Math.abs(value) >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toPrecision(3)));
}

export function duration(ms) {
  if (ms === undefined || ms === null || Number.isNaN(ms)) return "–";
  if (ms < 1) return `${short(ms * 1000)} µs`;
  if (ms < 1000) return `${short(ms)} ms`;
  if (ms < 60_000) return `${short(ms / 1000)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.floor((ms / 1000) % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export const section = (title, ...children) => {
  const id = freshId("section");
  return h("section", { "aria-labelledby": id, class: "card" }, h("h2", { id }, title), ...children);
};

/** A number with its name. */
export class Tile {
  #value = h("dd");
  #note = h("dd", { class: "note" });
  constructor(name) {
    this.element = h("div", { class: "tile" }, h("dt", {}, name), this.#value, this.#note);
  }
  update(value, note = "") {
    setText(this.#value, value);
    setText(this.#note, note);
  }
}

export const tiles = (...all) => h("dl", { class: "tiles" }, all.map((tile) => tile.element));

/** Downloads bytes as a file. */
export function download(content, name, type = "application/octet-stream") {
  const url = URL.createObjectURL(new Blob([content], { type }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
