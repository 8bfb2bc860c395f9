import { freshId, h, section } from "../dom.js";
import { store } from "../store.js";

const LEVELS = ["trace", "debug", "info", "warn", "error"];
const MOST_LINES = 1000; // the daemon keeps no more

/** The last lines of the daemon's log, and each later line while "follow" is checked: {element, update()}. */
export function logPart() {
  const [levelId, followId] = ["level", "follow"].map(freshId);
  const level = h("select", { id: levelId, onchange: filter }, LEVELS.map((one) => h("option", {}, one)));
  const follow = h("input", { id: followId, type: "checkbox", checked: true });
  // Read aloud as they come, the lines would drown everything else.
  const box = h("div", { class: "log", role: "log", tabindex: "0", "aria-label": "Lines of the log", "aria-live": "off" });
  const note = h("p", { class: "none", hidden: true }, "Only admins may see the log.");
  let client; // that read the lines
  let epoch; // of the daemon that counted them
  let next; // the number after which later lines come; undefined: none was read

  const isShown = (line) => LEVELS.indexOf(line.dataset.level) >= level.selectedIndex;

  function filter() {
    for (const line of box.children) line.hidden = !isShown(line);
    box.scrollTop = box.scrollHeight;
  }

  function add(kind, ...content) {
    const line = h("p", { "data-level": kind }, content);
    line.hidden = !isShown(line);
    box.append(line);
    if (box.childElementCount > MOST_LINES) box.firstElementChild.remove();
  }

  function show(lines) {
    const isAtEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 8;
    const left = next === undefined || lines.length === 0 ? 0 : lines[0].number - next - 1;
    if (left > 0) add("error", `${left} lines are missing: the daemon keeps only its last lines`);
    for (const { time, level: kind, text } of lines) add(kind, `${time} `, h("strong", {}, kind), ` ${text}`);
    if (isAtEnd) box.scrollTop = box.scrollHeight;
  }

  function startAgain() {
    [client, epoch, next] = [store.client, store.info.epoch, undefined];
    box.replaceChildren();
    [box.hidden, note.hidden] = [false, true];
  }

  async function read() {
    const answer = await store.call("log.tail", { limit: MOST_LINES, ...(next !== undefined && { after: next }) });
    show(answer.lines);
    next = answer.next;
  }

  let reading = null;
  async function update() {
    if (client !== store.client || epoch !== store.info.epoch) startAgain();
    if (!follow.checked || box.hidden) return;
    try {
      await (reading ??= read());
    } catch (error) {
      if (error.code !== -32007) throw error;
      [box.hidden, note.hidden] = [true, false];
    } finally {
      reading = null;
    }
  }

  return {
    element: section("Log", h("div", { class: "row middle" }, h("label", { for: levelId }, "Lowest level"), level,
      h("span", { class: "row middle" }, follow, h("label", { for: followId }, "follow"))), box, note),
    update,
  };
}
