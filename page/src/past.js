// The queue over time: which run had which cores and GPUs, and how much memory, of each machine.
import { useEffect, useState } from "preact/hooks";
import { Table } from "./card.js";
import { html } from "./html.js";
import { hour, moment, ranges, size } from "./words.js";

const [ROW, MOST_ROWS, MEMORY, GAP] = [12, 16, 40, 8]; // pixels; of more cores or GPUs the rows are lower
const LONGEST_S = 86400;
const EACH_MS = 5000;

// colour: of a run by its name
export function Past({ data, colour }) {
  const now = useNow();
  const underway = data.runs.filter((run) => run.began_at !== null).map((run) => ({ ...run, ended_at: now, runs: true }));
  const all = [...data.past, ...underway].filter((one) => one.ended_at > now - LONGEST_S);
  if (!all.length) return html`<p class="quiet">Nothing has run yet.</p>`;
  const from = Math.max(now - LONGEST_S, Math.min(...all.map((one) => one.began_at)));
  const span = { from, long: Math.max(1, now - from) };
  return html`${data.machines.map((machine) => {
      const here = all.filter((one) => one.host === machine.name);
      return here.length > 0 && html`<${Lanes} key=${machine.name} machine=${machine} all=${here} span=${span} colour=${colour} named=${data.machines.length > 1} />`;
    })}
    <details><summary>as a table</summary><div class="tall"><${Table} caption="what ran where, the newest first" head=${["run", "machine", "cores", "GPUs", "memory", "from", "to"]}
      rows=${[...all].reverse().map((one) => [one.name, one.host || "this machine", ranges(one.given_cores), ranges(one.given_gpus), size(one.memory_bytes), `${moment(one.began_at).slice(0, 10)} ${hour(one.began_at)}`, one.runs ? "now" : hour(one.ended_at)])} /></div></details>`;
}

function Lanes({ machine, all, span, colour, named }) {
  const at = (time) => (100 * Math.max(0, time - span.from)) / span.long;
  const box = (one, begins, ends, y, height, what) => html`<rect x=${`${at(begins)}%`} width=${`${Math.max(0.1, at(ends) - at(begins))}%`} y=${y} height=${height} fill=${colour(one.name)} data-run=${one.name}>
    <title>${`${one.name}: ${what}, ${hour(begins)} to ${one.runs && ends === one.ended_at ? "now" : hour(ends)}`}</title></rect>`;
  const kinds = [["cores", machine.cores, (one) => one.given_cores], ["GPUs", machine.gpus, (one) => one.given_gpus]].filter(([, numbers]) => numbers.length);
  const names = [];
  const boxes = [];
  let top = 0;
  for (const [word, numbers, given] of kinds) {
    const row = ROW * Math.min(1, MOST_ROWS / numbers.length);
    for (const one of all) {
      for (const [first, count] of neighbours(given(one).map((number) => numbers.indexOf(number)).filter((place) => place >= 0))) {
        boxes.push(box(one, one.began_at, one.ended_at, top + first * row + 1, Math.max(1, count * row - 2), `${word} ${ranges(given(one))}`));
      }
    }
    names.push([word, numbers.length * row + GAP]);
    top += numbers.length * row + GAP;
  }
  const stack = stacked(all);
  const most = machine.memory_bytes ?? Math.max(...stack.map(({ below, one }) => below + one.memory_bytes));
  for (const { one, begins, ends, below } of stack) {
    const height = (MEMORY * one.memory_bytes) / most;
    boxes.push(box(one, begins, ends, top + MEMORY - (MEMORY * below) / most - height, height, size(one.memory_bytes)));
  }
  names.push(["memory", MEMORY]);
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return html`<figure class="lanes past">${named && html`<h3>${machine.name || "this machine"}</h3>`}<div class="tall" tabindex="0" role="region" aria-label=${`${machine.name || "this machine"} over time`}>
    <div class="lanenames" aria-hidden="true">${names.map(([word, height]) => html`<div style=${{ height: `${height}px` }}>${word}</div>`)}</div>
    <svg role="img" aria-label=${`Cores, GPUs and memory by run from ${moment(span.from)} until now; the table below has them`} width="100%" height=${top + MEMORY + 18}>
      <rect class="room" width="100%" height=${top - GAP} /><rect class="room" width="100%" y=${top} height=${MEMORY} />${boxes}
      ${ticks.map((part, index) => html`<text class=${index % 2 ? "tick between" : "tick"} x=${`${100 * part}%`} y=${top + MEMORY + 14} text-anchor=${index === 0 ? "start" : index === 4 ? "end" : "middle"}>${index === 4 ? "now" : hour(span.from + part * span.long)}</text>`)}
    </svg></div></figure>`;
}

// [[first, count], ...] of places beside each other
function neighbours(places) {
  const found = [];
  for (const place of [...places].sort((a, b) => a - b)) {
    if (found.length && found.at(-1)[0] + found.at(-1)[1] === place) found.at(-1)[1]++;
    else found.push([place, 1]);
  }
  return found;
}

// Between two moments at which somebody begins or ends, those that run stand upon each other.
function stacked(all) {
  const moments = [...new Set(all.flatMap((one) => [one.began_at, one.ended_at]))].sort((a, b) => a - b);
  return moments.slice(1).flatMap((ends, at) => {
    const begins = moments[at];
    let height = 0;
    return all.filter((one) => one.began_at <= begins && ends <= one.ended_at).map((one) => { const below = height; height += one.memory_bytes; return { one, begins, ends, below }; });
  });
}

function useNow() {
  const [now, set] = useState(() => Date.now() / 1000);
  useEffect(() => {
    const clock = setInterval(() => set(Date.now() / 1000), EACH_MS);
    return () => clearInterval(clock);
  }, []);
  return now;
}
