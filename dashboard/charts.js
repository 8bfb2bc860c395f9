// Charts by uPlot, in the colours of the page.

import { h, setText, short } from "./dom.js";

const uPlot = globalThis.uPlot;
const HEIGHT = 190;
const shown = new Set(); // the charts in the page

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seriesColour = (at) => colour(`--series-${(at % 4) + 1}`);

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown.forEach((chart) => chart.rebuild()));

function axis(more = {}) {
  const line = { stroke: colour("--line"), width: 1 };
  return { stroke: colour("--muted"), grid: line, ticks: { ...line, size: 4 }, font: "12px system-ui", ...more };
}

/**
 * A chart with a caption, a legend as text, and a description for screen readers. `make` gives uPlot's options. There is
 * a plot, with its listeners, only while the chart is in the page.
 */
class Chart {
  #plot = null;
  #place = h("st-part", { class: "plot", role: "img", enter: () => this.#enter(), leave: () => this.#leave() });
  #sizes = new ResizeObserver(() => this.#resize());
  #legend = h("ul", { class: "legend" });
  #data = null;

  constructor(caption, names, make) {
    this.names = names;
    this.make = make;
    this.caption = caption;
    this.element = h("figure", { class: "chart" }, h("figcaption", {}, caption), this.#place, this.#legend);
    this.#legend.hidden = names.every((name) => name === "");
    this.values = names.map((name, at) => {
      const value = h("span");
      this.#legend.append(h("li", {}, h("i", { class: `series-${(at % 4) + 1}` }), `${name} `, value));
      return value;
    });
  }

  update(data, texts = []) {
    this.#data = data;
    texts.forEach((text, at) => setText(this.values[at], text));
    const shown = this.names.map((name, at) => `${name} ${texts[at] ?? ""}`).join(", ");
    this.#place.setAttribute("aria-label", `${this.caption}: ${shown}`);
    if (this.#plot) this.#plot.setData(data);
    else this.#resize();
  }

  rebuild() {
    this.#destroy();
    this.#resize();
  }

  #enter() {
    shown.add(this);
    this.#sizes.observe(this.#place);
  }

  #leave() {
    shown.delete(this);
    this.#sizes.disconnect();
    this.#destroy();
  }

  #destroy() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  #resize() {
    const width = this.#place.clientWidth;
    if (width === 0 || this.#data === null) return;
    if (this.#plot) this.#plot.setSize({ width, height: HEIGHT });
    else this.#plot = new uPlot({ width, height: HEIGHT, legend: { show: false }, cursor: { show: false }, ...this.make() },
      this.#data, this.#place);
  }
}

/** Lines over time. */
export function timeChart(caption, names, unit = "") {
  return new Chart(caption, names, () => ({
    scales: { y: { range: (_, low, high) => [0, Math.max(high ?? 0, 1e-3) * 1.1] } },
    axes: [
      axis({ space: 90, values: (_, all) => all.map((seconds) => new Date(1000 * seconds).toLocaleTimeString("en-GB")) }),
      axis({ size: 56, values: (_, all) => all.map((value) => short(value) + unit) }),
    ],
    series: [{}, ...names.map((_, at) => ({ stroke: seriesColour(at), width: 2, points: { show: false }, spanGaps: false }))],
  }));
}

/** Lines over the index of their elements. */
export function lineChart(caption, names) {
  return new Chart(caption, names, () => ({
    scales: { x: { time: false } },
    axes: [axis(), axis({ size: 56, values: (_, all) => all.map(short) })],
    series: [{}, ...names.map((_, at) => ({ stroke: seriesColour(at), width: 1.5, points: { show: false } }))],
  }));
}

/** Half a bar more on each side. */
function widened(x, low, high) {
  const half = x.length > 1 ? (x[1] - x[0]) / 2 : 0.5;
  return [low - half, high + half];
}

/** Bars: of a histogram (`labels` null: the x values are numbers), or one for each label. */
export function barChart(caption, names, labels = null, format = short, steps = undefined) {
  const bars = uPlot.paths.bars({ size: [0.9, 60], align: 0 });
  return new Chart(caption, names, () => ({
    scales: {
      x: { time: false, range: (plot, low, high) => (labels ? [-0.6, labels().length - 0.4] : widened(plot.data[0], low, high)) },
      y: { range: (_, low, high) => [0, 1.05 * Math.max(high ?? 0, 1)] },
    },
    axes: [
      axis(labels ? { grid: { show: false }, splits: () => labels().map((_, at) => at), values: () => labels() } : {}),
      axis({ size: 72, values: (_, all) => all.map(format), ...(steps && { incrs: steps }) }),
    ],
    // Bars that stand on each other: each series is the sum up to it, and the largest is drawn first.
    series: [{}, ...names.map((_, at) => ({ stroke: seriesColour(names.length - 1 - at), fill: seriesColour(names.length - 1 - at),
      paths: bars, points: { show: false } }))],
  }));
}
