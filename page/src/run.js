// One run, by what people look for: is it learning? is it fast? what holds it up? Then all else that is known of it.
import { useCallback, useId, useMemo, useRef, useState } from "preact/hooks";
import { Actions } from "./actions.js";
import { act, report, useAnswer, useLive } from "./ask.js";
import { Card, Waiting } from "./card.js";
import { Chart, stacked } from "./chart.js";
import { PHASES, REST, SERIES } from "./colours.js";
import { html } from "./html.js";
import { Checkpoints } from "./panels/checkpoints.js";
import { Communication } from "./panels/communication.js";
import { Confusion } from "./panels/confusion.js";
import { Happened } from "./panels/happened.js";
import { Histograms } from "./panels/histograms.js";
import { Logs } from "./panels/logs.js";
import { Members } from "./panels/members.js";
import { Metrics } from "./panels/metrics.js";
import { Network } from "./panels/network.js";
import { Ranks } from "./panels/ranks.js";
import { Session } from "./panels/session.js";
import { Staleness } from "./panels/staleness.js";
import { Stragglers } from "./panels/stragglers.js";
import { Texts } from "./panels/texts.js";
import { Timeline } from "./panels/timeline.js";
import { Export, Predict, Worst } from "./panels/using.js";
import { Usage } from "./panels/usage.js";
import { Workers } from "./panels/workers.js";
import { Range } from "./range.js";
import { State } from "./runs.js";
import { brief, duration, hour, many, number, percent } from "./words.js";

export const columns = () => Math.max(200, Math.min(1200, Math.round(window.innerWidth * 0.9)));

export function Run({ id }) {
  const [removing, set] = useState(false);
  const [refused, say] = useState("");
  const remove = () => {
    set(true);
    act("remove", { run: id }).then(() => { location.hash = "#/"; }, (error) => { say(error.message); set(false); });
  };
  // while it is removed nothing is asked about it: it may be gone already
  return removing ? html`<main><h1>${id}</h1><p class="quiet" role="status">deleting …</p></main>` : html`<${There} id=${id} remove=${remove} refused=${refused} />`;
}

function There({ id, remove, refused }) {
  const [tick, there] = useLive(String(new URLSearchParams({ run: id })));
  const facts = useAnswer("facts", { run: id }, tick);
  const [range, setRange] = useState(null);
  const [first, last] = range ?? [null, null];
  const steps = useAnswer("steps", { run: id, first, last, columns: columns() }, tick);
  const set = useCallback((next) => setRange(next), []);
  if (!facts.data) return html`<main><h1>${id}</h1><${Waiting} answer=${facts} empty="" /></main>`;
  const about = { id, tick, facts: facts.data, steps: steps.data, range, onRange: set, first, last };
  return html`<main>
    <${Head} facts=${facts.data} there=${there} id=${id} remove=${remove} refused=${refused} />
    <${Wrong} facts=${facts.data} />
    ${begun(facts.data, steps.data) ? html`<${Range} newest=${facts.data.step} range=${range} set=${set} seen=${steps.data} />
    <${Part} title="Is it learning?">
      <${Loss} ...${about} answer=${steps} /><${Metrics} ...${about} /><${Rate} ...${about} answer=${steps} />
      ${facts.data.confusion && html`<${Confusion} ...${about} />`}${facts.data.writes && html`<${Texts} ...${about} />`}<//>
    <${Part} title="Is it fast?"><${Throughput} ...${about} answer=${steps} /><${Phases} ...${about} answer=${steps} /><//>
    <${Part} title="What holds it up?">
      <${Stragglers} ...${about} /><${Ranks} ...${about} /><${Staleness} ...${about} /><${Workers} ...${about} />
      <${Communication} ...${about} /><${Timeline} ...${about} /><//>
    <${Part} title="The network"><${Histograms} ...${about} /><${Network} ...${about} /><//>`
    : html`<p class="quiet" role="status">${steps.data ? "No step yet." : "reading …"}</p>`}
    ${!report && facts.data.checkpoints.length > 0 && html`<${Part} title="What is it good for?">
      ${!facts.data.own_loop && html`<${Predict} ...${about} /><${Worst} ...${about} />`}<${Export} ...${about} /><//>`}
    <${Part} title="The run">
      <${Members} ...${about} /><${Happened} ...${about} /><${Checkpoints} ...${about} /><${Logs} ...${about} /><${Usage} ...${about} /><${Session} ...${about} /><//>
  </main>`;
}

// Whether there is anything that charts could show: a run that starts has no empty ones.
const begun = (facts, steps) => facts.step > 0 || facts.metric_names.length > 0 || steps?.points > 0;

function Part({ title, children }) {
  const id = useId();
  return html`<section aria-labelledby=${id}><h2 class="part" id=${id}>${title}</h2><div class="cards">${children}</div></section>`;
}

function Head({ facts, there, id, remove, refused }) {
  const done = facts.steps_planned ? Math.min(1, facts.step / facts.steps_planned) : null;
  const window = facts.window;
  const figures = [
    ...(facts.best ? [[`best ${facts.metric}`, `${number(facts.best.values[facts.metric] ?? Object.values(facts.best.values)[0])} at ${many(facts.best.step)}`]] : []),
    ...(facts.loss === null ? [] : [["loss", number(facts.loss)]]),
    ...(window?.samples_per_s ? [["samples/s", number(window.samples_per_s)]] : []),
    ...(facts.computes ? [["computes", ...facts.computes.split(/, (.*)/)]] : []),
    ...(window ? [["communication", percent(window.shares.exchange)]] : []),
    ["workers", String(facts.workers.length || facts.session.workers || "–")],
    ["time", duration(facts.elapsed_s)],
    ...(facts.left_s !== null && facts.state === "running" ? [["left", duration(facts.left_s)]] : []),
  ];
  return html`<div class="head"><div>
    <h1>${id} <${State} state=${facts.state} />${facts.stopping && html` <span class="quiet">stopping after this step</span>`}</h1>
    <p class="quiet">${facts.sentence}</p>
    ${!there && html`<p class="error" role="alert">The server does not answer: what you see is of ${hour(facts.read_at)}. <code>volary ui</code> starts another one.</p>`}
    ${facts.starting && html`<p role="status">${facts.starting}</p>`}
    <div class="progress" role="progressbar" aria-label="steps done" aria-valuemin="0" aria-valuemax=${facts.steps_planned ?? facts.step} aria-valuenow=${facts.step}>
      <progress max="1" value=${done ?? 0} aria-hidden="true"></progress>
      <span>step ${many(facts.step)}${facts.steps_planned ? ` of ${many(facts.steps_planned)}` : ""}${facts.epoch ? `, epoch ${facts.epoch.toFixed(1)}` : ""}</span>
    </div>
    </div><${Actions} id=${id} facts=${facts} remove=${remove} refused=${refused} />
    <dl class="figures">${figures.map(([name, value, note]) => html`<div><dt>${name}</dt><dd>${value}${note && html`<small>${note}</small>`}</dd></div>`)}</dl>
  </div>`;
}

function Wrong({ facts }) {
  if (!facts.wrong.length) return html`<div role="status" data-card="wrong">${facts.notable.length
    ? html`<p class="notable">Nothing has failed. Worth a look: ${facts.notable.join("; ")}.</p>` : html`<p class="fine">Nothing is wrong, as far as the run knows.</p>`}</div>`;
  return html`<section class="wrong" aria-label="what is wrong" data-card="wrong"><ul>
    ${facts.wrong.map((one) => html`<li class=${one.grave ? "grave" : ""}>${one.at && html`<time>${hour(one.at)}</time> `}<span class="said">${one.text}</span></li>`)}
  </ul>${facts.advice.map((line, at) => html`<p>${at ? "" : "To go on, "}${line.replace(/: (volary .*)$/, ": ")}<code>${line.match(/volary .*$/)?.[0]}</code></p>`)}</section>`;
}

function Loss({ id, tick, facts, answer, range, onRange, first, last }) {
  const name = facts.own_loop ? "" : "loss";
  const [log, setLog] = useState(false);
  return html`<${Card} name="loss" title="Loss" size="major" aside=${html`<label class="aside"><input type="checkbox" checked=${log} onChange=${(event) => setLog(event.target.checked)} /> log</label>`}>${(seen) => {
    const validated = facts.metric_names.includes("loss");
    const validation = useAnswer("metric", { run: id, name: "loss", first, last, columns: 600 }, tick, seen && validated);
    const data = answer.data;
    const [x, series] = useMemo(() => both(data, validation.data, name), [data, validation.data]);
    const whole = useRef(false); // first drawn when both are there, not made twice
    whole.current ||= !!answer.data && (!validated || !!validation.data || !!validation.error);
    if (!x.length || !whole.current) return html`<${Waiting} answer=${answer.data && validated ? validation : answer} empty="No step yet." chart />`;
    return html`<${Chart} label="Loss" x=${x} series=${series} range=${range} onRange=${onRange} log=${log} even />`;
  }}<//>`;
}

// Training and validation on one axis: their steps differ.
function both(steps, validation, training) {
  const at = new Map();
  const trained = training && steps?.points ? steps.x.map((x, index) => [x, index]) : [];
  for (const [x, index] of trained) at.set(x, [index, null]);
  for (const [index, x] of (validation?.x ?? []).entries()) at.set(x, [at.get(x)?.[0] ?? null, index]);
  const x = [...at.keys()].sort((a, b) => a - b);
  const pick = (values, part) => x.map((step) => { const index = at.get(step)[part]; return index === null || index === undefined ? undefined : values[index]; });
  const series = [];
  // undefined: the other curve has a point here; null: there is none
  if (trained.length) series.push({ label: "training", colour: SERIES[0], values: pick(steps.loss.mean, 0), low: pick(steps.loss.least, 0), high: pick(steps.loss.greatest, 0) });
  if (validation?.x.length) series.push({ label: training ? "validation" : "recorded", colour: SERIES[1], values: pick(validation.mean, 1), dots: true });
  return [x, series];
}

function Throughput({ answer, range, onRange }) {
  return html`<${Card} name="throughput" title="Throughput">${() => {
    const data = answer.data;
    const series = useMemo(() => data && [{ label: "samples/s", colour: SERIES[2], values: data.samples_per_s }], [data]);
    if (!data?.points) return html`<${Waiting} answer=${answer} empty="No step yet." chart />`;
    return html`<${Chart} label="Samples per second of all workers" x=${data.x} series=${series} range=${range} onRange=${onRange} from0 even />`;
  }}<//>`;
}

function Rate({ answer, range, onRange }) {
  return html`<${Card} name="rate" title="Learning rate" size="minor">${() => {
    const data = answer.data;
    const series = useMemo(() => data && [{ label: "learning rate", colour: SERIES[3], values: data.lr }], [data]);
    if (!data?.points) return html`<${Waiting} answer=${answer} empty="No step yet." chart />`;
    return html`<${Chart} label="Learning rate" x=${data.x} series=${series} range=${range} onRange=${onRange} height=${120} from0 />`;
  }}<//>`;
}

// Of all workers in the mean, or of one.
function Phases({ id, tick, answer, range, onRange, facts, first, last }) {
  const [rank, choose] = useState(null);
  const aside = facts.ranks.length > 1 && html`<label class="aside">of <select onChange=${(event) => choose(event.target.value === "" ? null : Number(event.target.value))}>
    <option value="" selected=${rank === null}>all workers</option>${facts.ranks.map((one) => html`<option value=${one} selected=${one === rank}>rank ${one}</option>`)}</select></label>`;
  return html`<${Card} name="phases" title="Where a step's time goes" size="major" aside=${aside}>${(seen) => {
    const own = useAnswer("phases", { run: id, rank, first, last, columns: columns() }, tick, seen && rank !== null);
    const shown = rank === null ? answer : own;
    const data = shown.data;
    const series = useMemo(() => data && phases(data), [data]);
    if (!data?.points || (rank !== null && data.rank !== rank)) return html`<${Waiting} answer=${shown} empty=${rank === null ? "No step yet." : `No step of rank ${rank} here.`} chart />`;
    const shares = rank === null && facts.window?.shares;
    return html`${shares && html`<p class="shares">newest steps: ${PHASES.map(([name, word, colour]) => html`<span><i class="dot" style=${{ background: colour }}></i>${word} <b>${percent(shares[name])}</b></span>`)}</p>`}
      <${Chart} label=${`Time of a step by phase, ${rank === null ? "mean of all workers" : `of rank ${rank}`}`} x=${data.x} series=${series} range=${range} onRange=${onRange} format=${brief} from0 even />`;
  }}<//>`;
}

export function phases(data) {
  const parts = PHASES.map(([name, word, colour]) => ({ label: word, colour, values: data.phases_s[name] }));
  const rest = data.step_s.map((value, at) => (value === null ? null : Math.max(0, value - PHASES.reduce((sum, [name]) => sum + data.phases_s[name][at], 0))));
  return stacked([...parts, { label: "rest", colour: REST, values: rest }]);
}
