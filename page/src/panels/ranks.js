// Each worker a row, time to the right: who is slow, and who waits for it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useAnswer } from "../ask.js";
import { Card, Waiting } from "../card.js";
import { heat, palette, useTheme } from "../colours.js";
import { html } from "../html.js";
import { brief, number, percent, plural } from "../words.js";

const LABEL = 64;
const ROW = 18;
const KINDS = {
  waited: ["share of a step in which compute waited for communication", "waits", (rank, share) => `rank ${rank} waits most: ${share} of a step on average`],
  own: ["time of a worker's own, above the least of all workers", "own time", (rank, share) => `rank ${rank} needs most time of its own: ${share} above the least on average`],
};

export function Ranks({ id, tick, first, last }) {
  const [kind, set] = useState("waited");
  const aside = html`<span class="aside">${Object.entries(KINDS).map(([name, [, word]]) => html`<label><input type="radio" name="heat" checked=${kind === name} onChange=${() => set(name)} /> ${word}</label>`)}</span>`;
  return html`<${Card} name="ranks" title="Workers over time" aside=${aside}>${(seen) => {
    const answer = useAnswer("ranks", { run: id, first, last, columns: 160 }, tick, seen);
    if (!answer.data?.points) return html`<${Waiting} answer=${answer} empty="No step yet." />`;
    return html`<p class="quiet">${KINDS[kind][0]}; the stronger the colour, the more</p><${Strip} data=${answer.data} kind=${kind} />`;
  }}<//>`;
}

function shares(data, kind) {
  return data.ranks.map((rank) => rank.own_s.map((own, column) => {
    if (own === null) return null;
    if (kind === "waited") return rank.waited_s[column] / (own + rank.waited_s[column] || 1);
    const least = Math.min(...data.ranks.map((other) => other.own_s[column] ?? Infinity));
    return (own - least) / (least || 1);
  }));
}

function Strip({ data, kind }) {
  const ref = useRef(null);
  const theme = useTheme();
  const rows = useMemo(() => shares(data, kind), [data, kind]);
  const [at, point] = useState(null);
  useEffect(() => {
    const canvas = ref.current;
    const draw = () => paint(canvas, data, rows);
    const watch = new ResizeObserver(draw);
    watch.observe(canvas);
    draw();
    return () => watch.disconnect();
  }, [rows, theme]);
  const means = rows.map((row) => { const there = row.filter((value) => value !== null); return there.reduce((sum, value) => sum + value, 0) / (there.length || 1); });
  const most = means.indexOf(Math.max(...means));
  const told = `${plural(data.ranks.length, "worker")}${data.ranks.length > 1 && means[most] > 0 ? `; ${KINDS[kind][2](data.ranks[most].rank, percent(means[most]))}` : ""}.`;
  const move = (event) => {
    const box = ref.current.getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top) / ROW);
    const column = Math.floor(((event.clientX - box.left - LABEL) / (box.width - LABEL)) * data.x.length);
    point(rows[row]?.[column] === undefined || rows[row][column] === null ? null : [row, column]);
  };
  return html`<figure>
    <div class="tall" tabindex="0" role="region" aria-label="workers"><canvas ref=${ref} role="img" aria-label=${told} style=${{ width: "100%", height: `${rows.length * ROW}px` }} onPointerMove=${move} onPointerLeave=${() => point(null)}></canvas></div>
    <figcaption class="quiet">${at && rows[at[0]]?.[at[1]] !== undefined ? `rank ${data.ranks[at[0]].rank}, step ${number(data.x[at[1]])}: ${Math.round(100 * rows[at[0]][at[1]])} %, own time ${brief(data.ranks[at[0]].own_s[at[1]])}, waited ${brief(data.ranks[at[0]].waited_s[at[1]])}` : told}</figcaption>
  </figure>`;
}

function paint(canvas, data, rows) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  canvas.width = width * ratio;
  canvas.height = rows.length * ROW * ratio;
  const pen = canvas.getContext("2d");
  const { ink } = palette();
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  pen.textBaseline = "middle";
  const cell = (width - LABEL) / data.x.length;
  for (const [row, values] of rows.entries()) {
    pen.fillStyle = ink;
    pen.fillText(`rank ${data.ranks[row].rank}`, 0, row * ROW + ROW / 2);
    for (const [column, value] of values.entries()) {
      if (value === null) continue; // a gap stays one
      pen.fillStyle = heat(value);
      pen.fillRect(LABEL + column * cell, row * ROW + 1, Math.ceil(cell), ROW - 2);
    }
  }
}
