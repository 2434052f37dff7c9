// Charts as SVG. A point is { t, values: Map(key → { down, up, rtt, loss }) }, the newest last.

import { ceiling, duration, rate } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";

/** Time that a chart shows, in milliseconds. */
export const SPAN = 120_000;

/** A gap longer than this, in milliseconds, is not drawn over. */
const GAP = 15_000;

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

function div(className, text) {
  const element = document.createElement("div");
  element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}

const round = (value) => Math.round(value * 10) / 10;

/** Throughput of all paths on top of each other: received above the line, sent below it. */
export class Throughput {
  constructor(box) {
    this.box = box;
    this.pointer = null;
    box.addEventListener("pointermove", (event) => {
      this.pointer = event.clientX - box.getBoundingClientRect().left;
      this.draw();
    });
    box.addEventListener("pointerleave", () => {
      this.pointer = null;
      this.draw();
    });
    new ResizeObserver(() => this.draw()).observe(box);
  }

  /** `series`: [{ key, name, colour }] */
  show(points, series) {
    this.points = points;
    this.series = series;
    this.draw();
  }

  draw() {
    if (!this.points) return;
    const { clientWidth: width, clientHeight: height } = this.box;
    const bottom = 20;
    const total = (point, way) =>
      this.series.reduce((sum, { key }) => sum + (point.values.get(key)?.[way] ?? 0), 0);
    const most = (way) => Math.max(0, ...this.points.map((point) => total(point, way)));
    const downMost = most("down");
    const upMost = most("up");
    // Both directions have one scale; each gets the room that it needs, and never none.
    const step = ceiling(Math.max(downMost, upMost, 1e4) / 3);
    const ticks = (value) => Math.max(1, Math.ceil((value * 1.02) / step));
    const [above, below] = [ticks(downMost), ticks(upMost)];
    const unit = (height - bottom) / (above + below);
    const zero = unit * above;
    const y = (bps) => zero - (bps / step) * unit;
    const end = this.points.at(-1)?.t ?? 0;
    const x = (t) => width - ((end - t) / SPAN) * width;

    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
    svg.setAttribute("aria-label", `received up to ${rate(downMost)}, sent up to ${rate(upMost)} in two minutes`);
    const labels = [];
    for (let tick = -below; tick <= above; tick += 1) {
      const at = round(zero - tick * unit);
      svg.append(shape("line", { x1: 0, x2: width, y1: at, y2: at, class: tick === 0 ? "zero" : "grid" }));
      if (tick !== 0 && unit > 13) labels.push([0, tick > 0 ? at + 1 : at - 15, rate(Math.abs(tick) * step)]);
    }
    for (const [share, text] of [[0.25, "−90 s"], [0.5, "−60 s"], [0.75, "−30 s"]]) {
      const at = round(width * share);
      svg.append(shape("line", { x1: at, x2: at, y1: 0, y2: height - bottom, class: "grid" }));
      labels.push([at - 15, height - 15, text]);
    }
    for (const [way, sign] of [["down", 1], ["up", -1]]) this.areas(svg, way, sign, x, y);
    this.cursor(svg, width, height - bottom, x);

    const texts = labels.map(([left, top, text]) => {
      const label = div("label", text);
      label.style.left = `${left}px`;
      label.style.top = `${top}px`;
      return label;
    });
    this.box.replaceChildren(svg, ...texts, ...(this.tip ? [this.tip] : []));
  }

  areas(svg, way, sign, x, y) {
    const base = new Map(this.points.map((point) => [point, 0]));
    for (const { key, colour } of this.series) {
      for (const run of runs(this.points)) {
        const top = run.map((point) => {
          const from = base.get(point);
          const to = from + (point.values.get(key)?.[way] ?? 0);
          base.set(point, to);
          return [point.t, from, to];
        });
        if (!top.some(([, from, to]) => to > from)) continue;
        const there = top.map(([t, , to]) => `${round(x(t))} ${round(y(sign * to))}`);
        const back = top.map(([t, from]) => `${round(x(t))} ${round(y(sign * from))}`).reverse();
        svg.append(shape("path", { d: `M${there.join("L")}L${back.join("L")}Z`, class: `area c${colour}` }));
      }
    }
  }

  cursor(svg, width, height, x) {
    this.tip = null;
    if (this.pointer === null || this.points.length === 0) return;
    const distance = (point) => Math.abs(x(point.t) - this.pointer);
    const point = this.points.reduce((best, other) => (distance(other) < distance(best) ? other : best));
    const at = x(point.t);
    svg.append(shape("line", { x1: at, x2: at, y1: 0, y2: height, class: "cursor" }));
    this.tip = div("tip");
    const ago = this.points.at(-1).t - point.t;
    this.tip.append(div("head", ago < 500 ? "now" : `${duration(ago)} ago`));
    for (const { key, name, colour } of this.series) {
      const value = point.values.get(key);
      if (!value) continue;
      const label = div("");
      const swatch = document.createElement("span");
      swatch.className = `swatch c${colour}`;
      label.append(swatch, ` ${name}`);
      this.tip.append(label, div("number", `↓ ${rate(value.down)}`), div("number", `↑ ${rate(value.up)}`));
    }
    if (at > width / 2) this.tip.style.right = `${width - at + 10}px`;
    else this.tip.style.left = `${at + 10}px`;
  }
}

/** The parts of `points` without a gap. */
function runs(points) {
  const parts = [];
  for (const point of points) {
    const last = parts.at(-1);
    if (last && point.t - last.at(-1).t <= GAP) last.push(point);
    else parts.push([point]);
  }
  return parts;
}

/** One value of a path over time. The scale reaches at least to `least`. */
export function spark(svg, points, key, name, least) {
  const [width, height] = [100, 30];
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  const end = points.at(-1)?.t ?? 0;
  const known = points
    .map((point) => [point.t, point.values.get(key)?.[name]])
    .filter(([, value]) => value !== null && value !== undefined);
  const most = Math.max(least, ...known.map(([, value]) => value)) * 1.08;
  const at = ([t, value]) =>
    `${round(width - ((end - t) / SPAN) * width)} ${round(height - (value / most) * height)}`;
  const shapes = [];
  for (const run of runs(known.map(([t, value]) => ({ t, value })))) {
    const line = run.map(({ t, value }) => at([t, value])).join("L");
    shapes.push(shape("path", { d: `M${at([run[0].t, 0])}L${line}L${at([run.at(-1).t, 0])}Z`, class: "under" }));
    shapes.push(shape("path", { d: `M${line}`, class: "line" }));
  }
  svg.replaceChildren(...shapes);
}
