// What each worker and each machine uses over time: processors, memory, network, GPUs; and how long queues are.
import { useMemo } from "preact/hooks";
import { useAnswer } from "../ask.js";
import { Card, Waiting } from "../card.js";
import { Chart } from "../chart.js";
import { SERIES } from "../colours.js";
import { html } from "../html.js";
import { duration, number, percent, size } from "../words.js";

const LINES = 8; // more are drawn as their mean, and from the least to the greatest
const rate = (bytes) => (bytes === null ? "–" : `${size(bytes)}/s`);
const QUEUES = { data: "batches that are ready to be learnt from", driver: "beats that the driver has not answered" };

export function Usage({ id, tick, facts }) {
  return html`<${Card} name="usage" title="Processors, memory, network" wide>${(seen) => {
    const answer = useAnswer("usage", { run: id, columns: 300 }, tick, seen);
    const charts = useMemo(() => answer.data && drawn(answer.data.values, facts.hosts), [answer.data, facts.hosts]);
    if (!answer.data?.x.length) return html`<${Waiting} answer=${answer} empty="Nothing was measured yet: workers look every two seconds." />`;
    return html`<div class="many">${charts.map(([title, series, format]) => html`<div key=${title}><h3>${title}</h3>
      <${Chart} label=${title} x=${answer.data.x} series=${series} xLabel="seconds" format=${format} sync="usage" height=${140} from0 /></div>`)}</div>
      <p class="quiet">over ${duration(answer.data.x.at(-1))} since the first look; each point is a mean</p>`;
  }}<//>`;
}

function drawn(values, hosts) {
  const host = (rank) => hosts[rank] ?? `of rank ${rank}`;
  const gpus = Object.keys(values).filter((name) => /^gpu\d+$/.test(name)).sort();
  const charts = [
    ["Processors busy, by worker", lines(values.cpu, (rank) => `rank ${rank}`), number],
    ["Memory, by worker", lines(values.memory_bytes, (rank) => `rank ${rank}`), size],
    [`Processors busy, by machine${cores(values)}`, lines(values.machine_cpu, host), number],
    [`Memory in use, by machine${total(values)}`, lines(values.machine_memory_bytes, host), size],
    ["Network, by machine", [...lines(values.machine_sent_bytes_per_s, (rank) => `${host(rank)} sends`), ...lines(values.machine_received_bytes_per_s, (rank) => `${host(rank)} receives`, Math.min(LINES, values.machine_sent_bytes_per_s?.length ?? 0))], rate],
    ...gpus.flatMap((gpu) => [
      [`${gpu.toUpperCase()} busy`, lines(values[gpu], host), percent],
      [`${gpu.toUpperCase()} memory`, lines(values[`${gpu}_memory`], host), percent]]),
    ...Object.entries(QUEUES).map(([name, words]) => [`Queue: ${words}`, lines(values[`queue_${name}`], (rank) => `rank ${rank}`), number]),
  ];
  return charts.filter(([, series]) => series.length);
}

function lines(found, label, from = 0) {
  if (!found) return [];
  if (found.length <= LINES) return found.map(({ rank, values }, at) => ({ label: label(rank), colour: SERIES[(from + at) % SERIES.length], values }));
  const columns = found[0].values.map((_, column) => found.map((one) => one.values[column]).filter((value) => value !== null));
  const each = (of) => columns.map((column) => (column.length ? of(column) : null));
  return [{ label: `mean of ${found.length}`, colour: SERIES[from % SERIES.length], values: each((column) => column.reduce((sum, value) => sum + value, 0) / column.length), low: each((column) => Math.min(...column)), high: each((column) => Math.max(...column)) }];
}

const last = (found) => found?.[0]?.values.findLast((value) => value !== null);
const cores = (values) => (last(values.machine_cores) ? ` of ${last(values.machine_cores)}` : "");
const total = (values) => (last(values.machine_memory_total_bytes) ? ` of ${size(last(values.machine_memory_total_bytes))}` : "");
