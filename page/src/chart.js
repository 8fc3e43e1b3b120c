// A chart over steps: uPlot on canvas, with a sentence and a table of the same numbers for who does not see it.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { line, palette, useTheme } from "./colours.js";
import { html } from "./html.js";
import { number } from "./words.js";

const HEIGHT = 200;
const ROWS = 12;
const BINARY = Array.from({ length: 60 }, (_, power) => 2 ** power); // between the marks of sizes

// x: numbers. series: [{label, values, colour, low, high, dots, fill, said}]: low and high draw a band.
// said: what the legend and the table tell of a value, if it is not what is drawn. range: [first, last] or null.
// While somebody drags in it it stays as it is, whatever comes: made anew it would lose the drag, and what is dragged over would move.
export function Chart(props) {
  const [dragged, drag] = useState(false);
  const theme = useTheme();
  const shown = useRef(null);
  if (!dragged) shown.current = { ...props, theme };
  return html`<${Drawn} ...${shown.current} drag=${drag} />`;
}

function Drawn({ label, x, series, range, onRange, xLabel = "step", log, format = number, sync = "steps", height = HEIGHT, from0, theme, drag }) {
  const box = useRef(null);
  const plot = useRef(null);
  const shape = JSON.stringify([series.map((one) => [one.label, one.colour, !!one.low, !!one.dots, !!one.fill]), log, theme, xLabel]);
  const now = useRef({});
  now.current = { series, onRange, range, format };

  useLayoutEffect(() => {
    const node = box.current;
    const made = new uPlot(options(), data(), node);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: node.clientWidth || 300, height }));
    watch.observe(node);
    return () => { watch.disconnect(); made.destroy(); plot.current = null; };
  }, [shape]);
  useLayoutEffect(() => {
    plot.current.setData(data(), false);
    const inside = range ?? [x[0] ?? 0, x.at(-1) ?? 1];
    plot.current.batch(() => {
      plot.current.setScale("x", { min: inside[0], max: inside[1] > inside[0] ? inside[1] : inside[0] + 1 });
    });
  }, [x, series, range?.[0], range?.[1], shape]);

  function data() {
    return [x, ...now.current.series.flatMap((one) => (one.low ? [one.high, one.low, one.values] : [one.values]))];
  }

  function options() {
    const { ink, faint } = palette();
    const drawn = [{ label: xLabel, value: (_, value) => (value === null ? "–" : number(value)) }];
    const bands = [];
    for (const [which, one] of series.entries()) {
      const stroke = one.fill ? one.colour : line(one.colour); // what lies side by side keeps its own
      if (one.low) {
        bands.push({ series: [drawn.length, drawn.length + 1], fill: `${stroke}40` });
        const edge = { class: "edge", stroke: `${stroke}55`, width: 1, points: { show: false } };
        drawn.push({ ...edge, label: `${one.label}, greatest` }, { ...edge, label: `${one.label}, least` });
      }
      drawn.push({
        label: one.label, stroke, width: one.fill ? 0 : 1.75, fill: one.fill ? stroke : undefined,
        points: { show: one.dots ?? ((plotted, at) => plotted.data[at].filter((value) => value !== null).length < 3), size: one.dots ? 6 : 4, fill: stroke },
        spanGaps: !!one.dots,
        value: (_, value, __, at) => {
          const { values, said = values } = now.current.series[which];
          return now.current.format((at === null ? said.findLast((one) => typeof one === "number") : said[at]) ?? null);
        },
      });
    }
    const axis = { stroke: ink, grid: { stroke: faint, width: 1 }, ticks: { stroke: faint, width: 1 }, font: "12px system-ui, sans-serif" };
    return {
      width: box.current.clientWidth || 300, height, series: drawn, bands,
      scales: { x: { time: false }, y: { distr: log ? 3 : 1, range: log || !from0 ? undefined : (_, low, high) => [0, high > 0 ? high * 1.05 : 1] } },
      axes: [{ ...axis, values: (_, splits) => splits.map((value) => short(value)) }, { ...axis, incrs: format(1024).startsWith("1.0 KiB") ? BINARY : undefined, size: (_, drawn) => 18 + 7 * Math.max(5, ...(drawn ?? []).map((text) => text.length)), values: (_, splits) => splits.map((value) => (value === null ? "" : now.current.format(value))) }],
      // other charts show where the mouse is, and no more: the drag is of one
      cursor: { sync: { key: sync, filters: { pub: (type) => type === "mousemove" } }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      legend: { live: true },
      hooks: {
        setSelect: [(self) => {
          if (self.select.width < 4) return;
          const [low, high] = [self.posToVal(self.select.left, "x"), self.posToVal(self.select.left + self.select.width, "x")];
          self.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          now.current.onRange?.([Math.max(1, Math.floor(low)), Math.ceil(high)]);
        }],
        ready: [(self) => {
          self.over.addEventListener("mousedown", (event) => {
            if (event.button) return;
            drag(true);
            document.addEventListener("mouseup", () => drag(false), { once: true });
          });
          self.over.addEventListener("dblclick", () => now.current.onRange?.(null));
          self.root.querySelector("canvas").setAttribute("aria-hidden", "true");
          self.root.querySelector(".u-legend").setAttribute("aria-hidden", "true");
        }],
      },
    };
  }

  const told = series.filter((one) => !one.aside).map((one) => sentence(one, x, xLabel, format)).filter(Boolean).join(" ");
  return html`<figure>
    <div class="plot" style=${{ minHeight: `${height}px` }} ref=${box} role="img" aria-label=${`${label}. ${told || "Nothing yet."}`}></div>
    <details><summary>as a table</summary>${numbers(x, series, xLabel, format)}</details>
  </figure>`;
}

const short = (value) => (Math.abs(value) >= 1e6 ? `${value / 1e6} M` : Math.abs(value) >= 1e4 ? `${value / 1e3} k` : String(Number(value.toPrecision(6))));

function sentence(one, x, xLabel, format) {
  const values = one.said ?? one.values;
  const there = values.flatMap((value, at) => (value === null || value === undefined ? [] : [at]));
  if (!there.length) return "";
  const least = there.reduce((best, at) => (values[at] < values[best] ? at : best));
  const greatest = there.reduce((best, at) => (values[at] > values[best] ? at : best));
  return `${one.label}: newest ${format(values[there.at(-1)])} at ${xLabel} ${number(x[there.at(-1)])}, `
    + `least ${format(values[least])} at ${number(x[least])}, greatest ${format(values[greatest])} at ${number(x[greatest])}.`;
}

function numbers(x, series, xLabel, format) {
  const every = Math.max(1, Math.ceil(x.length / ROWS));
  const rows = x.map((_, at) => at).filter((at) => (x.length - 1 - at) % every === 0);
  return html`<div class="scroll" tabindex="0" role="region" aria-label="the chart's numbers"><table>
    <thead><tr><th scope="col">${xLabel}</th>${series.map((one) => html`<th scope="col" class="number">${one.label}</th>`)}</tr></thead>
    <tbody>${rows.map((at) => html`<tr><td>${number(x[at])}</td>${series.map((one) => html`<td class="number">${format((one.said ?? one.values)[at] ?? null)}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

// Values one upon the other: what lies below is drawn later, over it.
export function stacked(parts) {
  const sums = [];
  const made = parts.map((part) => {
    const values = part.values.map((value, at) => {
      if (value === null) return null;
      sums[at] = (sums[at] ?? 0) + value;
      return sums[at];
    });
    return { ...part, said: part.values, values, fill: true };
  });
  return made.reverse();
}
