// A chart over steps: uPlot on canvas, with a sentence and a table of the same numbers for who does not see it.
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { line, palette, useTheme } from "./colours.js";
import { html } from "./html.js";
import { number, plural } from "./words.js";

const HEIGHT = 200;
const ROWS = 12;
const DECIMAL = Array.from({ length: 1360 }, (_, at) => Number(`${[1, 2, 2.5, 5][at % 4]}e${Math.floor(at / 4) - 32}`)); // uPlot's own end at 1e32, where a loss that diverges does not
const BINARY = Array.from({ length: 60 }, (_, power) => 2 ** power); // between the marks of sizes

// x: numbers. series: [{label, values, colour, low, high, dots, fill, said}]: low and high draw a band.
// said: what the legend and the table tell of a value, if it is not what is drawn. range: [first, last] or null.
// even: what towers above nearly all values is left out of the picture, and said below it. The chart fills the room that there is.
// While somebody drags in it it stays as it is, whatever comes: made anew it would lose the drag, and what is dragged over would move.
export function Chart(props) {
  const [dragged, drag] = useState(false);
  const theme = useTheme();
  const shown = useRef(null);
  if (!dragged) shown.current = { ...props, theme };
  return html`<${Drawn} ...${shown.current} drag=${drag} />`;
}

function Drawn({ label, x, series, range, onRange, xLabel = "step", log, format = number, sync = "steps", height = HEIGHT, from0, even, theme, drag }) {
  const box = useRef(null);
  const legend = useRef(null);
  const plot = useRef(null);
  const [peaks, showPeaks] = useState(false);
  const [large, enlarge] = useState(false);
  const cut = even && !log && !peaks ? withoutPeaks(series) : null;
  const shape = JSON.stringify([series.map((one) => [one.label, one.colour, !!one.low, !!one.dots, !!one.fill]), log, theme, xLabel]);
  const now = useRef({});
  now.current = { series, onRange, range, format, x, cut };

  useLayoutEffect(() => {
    const node = box.current;
    const made = new uPlot(options(), data(), node);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize(size()));
    watch.observe(node);
    return () => { watch.disconnect(); made.destroy(); plot.current = null; };
  }, [shape]);
  useLayoutEffect(() => {
    plot.current.setData(data(), false);
    plot.current.setLegend(null, false); // nobody need point at it
    const inside = range ?? [x[0] ?? 0, x.at(-1) ?? 1];
    plot.current.batch(() => {
      plot.current.setScale("x", { min: inside[0], max: inside[1] > inside[0] ? inside[1] : inside[0] + 1 });
    });
  }, [x, series, range?.[0], range?.[1], shape, cut?.high]);
  useEffect(() => {
    if (!large) return undefined;
    const close = (event) => { if (event.key === "Escape") enlarge(false); };
    document.addEventListener("keydown", close);
    return () => document.removeEventListener("keydown", close);
  }, [large]);

  function size() {
    return { width: box.current.clientWidth || 300, height: box.current.clientHeight || height };
  }

  function data() {
    return [x, ...now.current.series.flatMap((one) => (one.low ? [one.high, one.low, one.values] : [one.values]))];
  }

  function options() {
    const { ink, faint } = palette();
    const drawn = [{ label: xLabel, value: (_, value) => number(value ?? now.current.x.at(-1)) }]; // at rest the newest
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
      ...size(), series: drawn, bands,
      scales: { x: { time: false }, y: { distr: log ? 3 : 1, range: log ? undefined : span } },
      axes: [{ ...axis, values: (_, splits) => splits.map((value) => short(value)) }, { ...axis, incrs: format(1024).startsWith("1.0 KiB") ? BINARY : DECIMAL, size: (_, drawn) => 18 + 7 * Math.max(5, ...(drawn ?? []).map((text) => text.length)), values: (_, splits) => splits.map((value) => (value === null ? "" : now.current.format(value))) }],
      // other charts show where the mouse is, and no more: the drag is of one
      cursor: { sync: { key: sync, filters: { pub: (type) => type === "mousemove" } }, drag: { x: true, y: false, setScale: false }, points: { size: 6 } },
      legend: { live: true, mount: (_, made) => legend.current.replaceChildren(made) },
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
        }],
      },
    };
  }

  function span(_, low, high) {
    const most = Math.min(high, now.current.cut?.high ?? high);
    return from0 ? [0, most > 0 ? most * 1.05 : 1] : uPlot.rangeNum(low, most, 0.1, true);
  }

  const told = series.filter((one) => !one.aside).map((one) => sentence(one, x, xLabel, format)).filter(Boolean).join(" ");
  return html`<figure class=${large ? "large" : ""}>
    ${large && html`<figcaption>${label}</figcaption>`}
    <div class="plot" style=${{ minHeight: `${height}px` }} ref=${box} role="img" aria-label=${`${label}. ${told || "Nothing yet."}`}></div>
    <div class="legend" ref=${legend} aria-hidden="true"></div>
    ${(cut || peaks) && html`<p class="peaks">${cut ? `${plural(cut.above, "point")} above, up to ${format(cut.most)}` : "all points"} <button type="button" onClick=${() => showPeaks(!peaks)}>${cut ? "show all" : "leave peaks out"}</button></p>`}
    <div class="below"><details><summary>as a table</summary>${numbers(x, series, xLabel, format)}</details>
      <button type="button" class="enlarge" aria-expanded=${large ? "true" : "false"} aria-label=${`${large ? "close" : "enlarge"} ${label}`} onClick=${() => enlarge(!large)}>${large ? "close" : "enlarge"}</button></div>
  </figure>`;
}

// The highest value that is drawn, how many are above it, and the most of these; null if none stands out. A curve's own top is
// what 2 % of it exceed; a curve that exceeds the middle one eight times does not make the scale.
function withoutPeaks(series) {
  const drawn = series.some((one) => one.fill) ? series.slice(0, 1) : series.filter((one) => !one.aside);
  const curves = drawn.map(({ values }) => values.filter(Number.isFinite).sort((a, b) => a - b)).filter((values) => values.length);
  if (!curves.length) return null;
  const low = Math.min(...curves.map(([least]) => least));
  const tops = curves.map((values) => values[Math.ceil(0.98 * (values.length - 1))]).sort((a, b) => a - b);
  const middle = tops[Math.floor((tops.length - 1) / 2)];
  const top = tops.findLast((one) => one - low <= 8 * (middle - low));
  const most = Math.max(...curves.map((values) => values.at(-1)));
  if (top === undefined || !(top > low) || most - low < 4 * (top - low)) return null;
  const high = top + 0.1 * (top - low);
  return { high, most, above: curves.reduce((sum, values) => sum + values.filter((value) => value > high).length, 0) };
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
