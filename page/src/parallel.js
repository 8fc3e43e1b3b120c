// Parallel coordinates: each run a line through the settings that differ and what came of them.
import { useState } from "preact/hooks";
import { line, SERIES, useTheme } from "./colours.js";
import { html } from "./html.js";
import { folderOf, number } from "./words.js";

const MOST = 8; // axes: settings first, then results
const AXIS = 125; // pixels that the name of one needs
const MARK = 0.08; // the part of an axis that a mark needs

export function Parallel({ data, hidden }) {
  useTheme();
  const [over, point] = useState(null);
  const results = data.rows.slice(data.differing).filter(([label]) => label === "training loss" || label.startsWith("validation "));
  const settings = data.rows.slice(0, data.differing).filter(([, ...cells]) => new Set(cells.filter((cell) => cell !== "-")).size > 1); // not what comes with another setting alone
  const axes = [...settings.slice(0, MOST - Math.min(3, results.length)), ...results.slice(0, 3)].map(axis);
  const x = (at) => (axes.length > 1 ? (100 * at) / (axes.length - 1) : 50);
  const points = (run) => axes.flatMap(({ places }, at) => (places[run] === null ? [] : [`${x(at)},${100 - 100 * places[run]}`])).join(" ");
  return html`<div class="scroll" tabindex="0" role="region" aria-label="each run as a line"><div class="parallel" style=${{ minWidth: `${AXIS * axes.length}px` }}><svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img" aria-label=${`Lines of ${data.runs.length} runs through ${axes.map((one) => one.label).join(", ")}; the table below has the values`}>
      ${axes.map((_, at) => html`<line class="axis" x1=${x(at)} x2=${x(at)} y1="0" y2="100" vector-effect="non-scaling-stroke" />`)}
      ${data.runs.map((id, run) => !hidden.has(id) && html`<polyline key=${id} points=${points(run)} fill="none" stroke=${line(SERIES[run % SERIES.length])} stroke-width=${over === run ? 4 : 2} opacity=${over === null || over === run ? 0.9 : 0.2} vector-effect="non-scaling-stroke"
        onPointerEnter=${() => point(run)} onPointerLeave=${() => point(null)}><title>${id}</title></polyline>`)}
    </svg>
    ${axes.map(({ label, marks }, at) => html`<div class="name" style=${{ left: `${x(at)}%` }} data-side=${side(at, axes.length)}>${label.split(".").map((part, which) => html`${which > 0 && html`.<wbr />`}${part}`)}</div>
      ${marks.map(([text, place]) => html`<div class="mark" style=${{ left: `${x(at)}%`, top: `${100 - 100 * place}%` }} data-side=${side(at, axes.length)}>${text}</div>`)}`)}</div></div>
    <p class="shares">${data.runs.map((id, run) => html`<span onPointerEnter=${() => point(run)} onPointerLeave=${() => point(null)}><i class="dot" style=${{ background: line(SERIES[run % SERIES.length]) }}></i>${id.slice(folderOf(data.runs).length)}</span>`)}</p>`;
}

const side = (at, count) => (at === 0 ? "first" : at === count - 1 ? "last" : "");

// The least and the greatest come first; what would be written over another mark is left out.
function apart(marks) {
  return marks.reduce((kept, mark) => (kept.every(([, place]) => Math.abs(place - mark[1]) >= MARK) ? [...kept, mark] : kept), []);
}

// Numbers lie where they are, on a log scale if they span a decade; words at equal distances. places: 0 to 1, by run.
function axis([label, ...cells]) {
  const numbers = cells.map((cell) => (cell === "-" ? null : Number(cell)));
  const known = numbers.filter((value) => value !== null);
  if (known.length && known.every(Number.isFinite)) {
    const [low, high] = [Math.min(...known), Math.max(...known)];
    const scale = low > 0 && high / low >= 10 ? Math.log : (value) => value;
    const place = (value) => (value === null ? null : high > low ? (scale(value) - scale(low)) / (scale(high) - scale(low)) : 0.5);
    const marks = [...new Set(known)].sort((a, b) => a - b);
    return { label, places: numbers.map(place), marks: apart([low, high, ...marks].map((value) => [number(value), place(value)])) };
  }
  const words = [...new Set(cells)].sort();
  const place = (cell) => (words.length > 1 ? words.indexOf(cell) / (words.length - 1) : 0.5);
  return { label, places: cells.map(place), marks: words.map((word) => [word === "-" ? "–" : word, place(word)]) };
}
