// One recorded step: what each worker computed, sent, received and applied, and when.
import { useMemo, useState } from "preact/hooks";
import { useAnswer } from "../ask.js";
import { Card, Table, Waiting } from "../card.js";
import { PHASES, REST, SERIES } from "../colours.js";
import { html } from "../html.js";
import { brief, number, size } from "../words.js";

const HEIGHT = 16;
const DRAWN = 3000;
const OF_PHASE = Object.fromEntries(PHASES.map(([name, , colour]) => [name, colour]));
const KINDS = [["ready", "until the gradient is ready", SERIES[7]], ["exchange", "on the wire", SERIES[3]], ["pull", "asked for, until it is here", SERIES[6]], ["update", "applied", SERIES[2]], ["wait", "compute waits", SERIES[1]]];
const OF_KIND = { broadcast: SERIES[3], ...Object.fromEntries(KINDS.map(([kind, , colour]) => [kind, colour])) };

export function Timeline({ id, tick, facts }) {
  const [step, set] = useState(null);
  return html`<${Card} name="timeline" title="Timeline of one step" wide>${(seen) => {
    const answer = useAnswer("timeline", { run: id, step }, step === null ? tick : 0, seen && facts.recorded_steps.length > 0);
    if (!facts.recorded_steps.length) return html`<p class="quiet">No step is recorded in full: <code>train.trace</code> says which are.</p>`;
    const data = answer.data;
    if (!data?.spans.length) return html`<${Waiting} answer=${answer} empty="This step has no spans." />`;
    const at = data.steps.indexOf(data.step);
    return html`<div class="tools">
        <button type="button" disabled=${at <= 0} aria-label="the recorded step before" onClick=${() => set(data.steps[at - 1])}>←</button>
        <label>Step <select onChange=${(event) => set(Number(event.target.value))}>${data.steps.map((one) => html`<option value=${one} selected=${one === data.step}>${one}</option>`)}</select></label>
        <button type="button" disabled=${at >= data.steps.length - 1} aria-label="the recorded step after" onClick=${() => set(data.steps[at + 1])}>→</button>
        <span class="quiet">${data.left_out ? `the ${data.spans.length} longest spans; ${data.left_out} are left out` : `${data.spans.length} spans`}; <code>volary trace</code> writes them for Perfetto</span>
      </div>
      <${Lanes} spans=${data.spans} step=${data.step} />
      ${data.journeys.length > 0 && html`<${Table} caption="each bucket and layer in this step, medians of the workers" right=${[1, 2, 3, 4, 5]}
        head=${["gradient", "ready to sent", "sent to received", "received to applied", "compute blocked", "bytes"]}
        rows=${data.journeys.map((one) => [one.name, brief(one.ready_to_sent_s), brief(one.sent_to_received_s), brief(one.received_to_applied_s), brief(one.waited_s), size(one.size_bytes)])} />`}`;
  }}<//>`;
}

// Spans of a lane that overlap are drawn one below the other.
function lanes(spans) {
  const found = new Map();
  for (const span of spans) {
    const name = `rank ${span[0]}, ${span[1]}`;
    if (!found.has(name)) found.set(name, []);
    const rows = found.get(name);
    const row = rows.findIndex((free) => free.at(-1)[5] <= span[4]);
    if (row < 0) rows.push([span]); else rows[row].push(span);
  }
  return [...found];
}

function Lanes({ spans, step }) {
  const made = useMemo(() => lanes(spans.slice(0, DRAWN)), [spans]);
  const end = Math.max(...spans.map((span) => span[5]));
  const count = made.reduce((sum, [, rows]) => sum + rows.length, 0);
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((part) => part * end);
  const percent = (value) => `${(100 * value) / end}%`;
  let line = 0;
  return html`<figure class="lanes"><div class="tall" tabindex="0" role="region" aria-label="timeline">
    <div class="lanenames" aria-hidden="true">${made.map(([name, rows]) => html`<div style=${{ height: `${rows.length * HEIGHT}px` }}>${name}</div>`)}</div>
    <svg role="img" aria-label=${`Step ${step}: ${made.length} lanes over ${number(end)} milliseconds`} width="100%" height=${count * HEIGHT + 18}>
      ${made.flatMap(([, rows]) => rows.map((row) => { const y = line++ * HEIGHT; return row.map(([, , kind, name, start, stop, bytes]) => html`<rect x=${percent(start)} y=${y + 2} width=${percent(Math.max(stop - start, end / 1500))} height=${HEIGHT - 4} rx="1"
        fill=${kind === "phase" ? OF_PHASE[name] ?? REST : OF_KIND[kind] ?? REST}><title>${`${kind === "phase" ? "" : `${kind} `}${name}: ${number(stop - start)} ms from ${number(start)} ms${bytes ? `, ${size(bytes)}` : ""}`}</title></rect>`); }))}
      ${ticks.map((tick, index) => html`<text class=${index % 2 ? "tick between" : "tick"} x=${percent(tick)} y=${count * HEIGHT + 14} text-anchor=${index === 0 ? "start" : index === 4 ? "end" : "middle"}>${number(tick)} ms</text>`)}
    </svg></div>
    <figcaption class="shares">${PHASES.map(([, word, colour]) => html`<span><i class="dot" style=${{ background: colour }}></i>${word}</span>`)}
      ${KINDS.filter(([kind]) => spans.some((span) => span[2] === kind)).map(([, words, colour]) => html`<span><i class="dot" style=${{ background: colour }}></i>${words}</span>`)}</figcaption>
  </figure>`;
}
