// Weights, gradients and updates: how they are spread over time, and how much of a parameter a step changes.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { useAnswer } from "../ask.js";
import { Card, Waiting } from "../card.js";
import { Chart } from "../chart.js";
import { palette, SERIES, useTheme } from "../colours.js";
import { html } from "../html.js";
import { number, plural } from "../words.js";

const HEIGHT = 130;
const LINES = 8; // curves of other parameters beside the chosen one
const WORDS = { weight: "weights", gradient: "gradients of worker 0", update: "updates: what a step changes" };
const OF_OWN_LOOP = { ...WORDS, gradient: "gradients as the optimiser had them" };
const serves = (facts) => facts.session.strategy.includes(" x server x ");
const setting = (facts) => (facts.own_loop ? "histograms" : "train.histograms");

export function Histograms({ id, tick, facts }) {
  const [name, choose] = useState("");
  return html`<${Card} name="histograms" title="Weights, gradients, updates" wide>${(seen) => {
    const answer = useAnswer("histograms", { run: id, name }, tick, seen);
    const series = useMemo(() => answer.data && lines(answer.data), [answer.data]);
    const data = answer.data;
    if (!data?.x.length) return html`<${Waiting} answer=${answer} empty=${`Nothing was looked at yet: ${setting(facts)} says how often that is done.`} />`;
    const names = Object.keys(data.ratios);
    const words = facts.own_loop && !serves(facts) ? OF_OWN_LOOP : WORDS;
    return html`<div class="tools"><label>Parameter <select onChange=${(event) => choose(event.target.value)}>${names.map((one) => html`<option value=${one} selected=${one === data.chosen}>${one}</option>`)}</select></label>
        <span class="quiet">${plural(names.length, "parameter")}, looked at ${plural(data.x.length, "time")}</span></div>
      <div class="many">
        ${Object.entries(words).map(([kind, said]) => html`<div key=${kind}><h3>${said}</h3>${data.kinds[kind]?.length
          ? html`<${Heat} found=${data.kinds[kind]} steps=${data.x} words=${said} />` : html`<p class="quiet">${kind === "gradient" ? "This layer's gradient is written where it travels from: it is not seen." : "None."}</p>`}</div>`)}
        <div><h3>what a step changes of a parameter</h3>
          <${Chart} label="Magnitude of the update over that of the parameter" x=${data.x} series=${series} log height=${200} sync="histograms" />
        </div></div>
      <p class="quiet">Rule of thumb: a step should change about ${data.rule} of a layer's weights; ten times more is too fast, ten times less hardly learns.${serves(facts) ? " Here the servers keep the parameters: a step is all updates between two contributions of worker 0." : ""}</p>
      ${data.told.length > 0 && html`<ul class="told">${data.told.slice(0, 6).map((one) => html`<li>${one}</li>`)}${data.told.length > 6 && html`<li class="quiet">and ${data.told.length - 6} more</li>`}</ul>`}`;
  }}<//>`;
}

function lines({ x, ratios, chosen, rule }) {
  const others = Object.entries(ratios).filter(([name]) => name !== chosen).slice(0, LINES);
  return [
    { label: chosen, colour: SERIES[0], values: ratios[chosen] ?? x.map(() => null) },
    { label: "rule of thumb", colour: SERIES[1], values: x.map(() => rule) },
    ...others.map(([name, values]) => ({ label: name, colour: "#8a8f98", values, aside: true })),
  ];
}

function Heat({ found, steps, words }) {
  const ref = useRef(null);
  const theme = useTheme();
  const low = Math.min(...found.map((one) => one.low));
  const high = Math.max(...found.map((one) => one.high));
  useEffect(() => {
    const canvas = ref.current;
    const draw = () => paint(canvas, found, steps, low, high);
    const watch = new ResizeObserver(draw);
    watch.observe(canvas);
    draw();
    return () => watch.disconnect();
  }, [found, theme]);
  const newest = found.at(-1);
  return html`<figure><canvas ref=${ref} role="img" aria-label=${`${words}: at step ${newest.step} from ${number(newest.low)} to ${number(newest.high)}`} style=${{ width: "100%", height: `${HEIGHT}px` }}></canvas>
    <figcaption class="quiet">at step ${newest.step} from ${number(newest.low)} to ${number(newest.high)}</figcaption></figure>`;
}

// Each step a column, values upwards; the more of a column's values lie somewhere, the stronger the colour.
function paint(canvas, found, steps, low, high) {
  const ratio = window.devicePixelRatio || 1;
  const width = canvas.clientWidth;
  [canvas.width, canvas.height] = [width * ratio, HEIGHT * ratio];
  const pen = canvas.getContext("2d");
  const { ink, dark } = palette();
  pen.scale(ratio, ratio);
  pen.font = "12px system-ui, sans-serif";
  const left = 8 + Math.max(40, ...[low, high].map((value) => pen.measureText(number(value)).width));
  const bottom = HEIGHT - 18;
  const up = (value) => bottom - ((value - low) / (high - low || 1)) * (bottom - 4);
  const cell = (width - left) / steps.length;
  const at = new Map(steps.map((step, index) => [step, index]));
  for (const one of found) {
    const most = Math.max(...one.counts);
    const part = (one.high - one.low) / one.counts.length;
    for (const [bin, count] of one.counts.entries()) {
      if (!count) continue;
      const [from, to] = [up(one.low + bin * part), up(one.low + (bin + 1) * part)].map(Math.round); // no seams between bins
      pen.fillStyle = dark ? `rgba(92,170,235,${0.12 + 0.88 * Math.sqrt(count / most)})` : `rgba(0,90,160,${0.08 + 0.92 * Math.sqrt(count / most)})`;
      pen.fillRect(left + at.get(one.step) * cell, to, Math.max(1, cell - 0.5), Math.max(1, from - to));
    }
  }
  pen.fillStyle = ink;
  pen.textAlign = "right";
  for (const value of [low, high]) pen.fillText(number(value), left - 6, Math.max(12, Math.min(bottom, up(value) + 4)));
  if (low < 0 && high > 0 && Math.abs(up(0) - up(low)) > 20 && Math.abs(up(0) - up(high)) > 20) pen.fillText("0", left - 6, up(0) + 4);
  pen.textAlign = "left";
  pen.fillText(number(steps[0]), left, HEIGHT - 4);
  pen.textAlign = "right";
  pen.fillText(`step ${number(steps.at(-1))}`, width, HEIGHT - 4);
}
