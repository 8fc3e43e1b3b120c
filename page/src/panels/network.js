// The network as a graph: layers as boxes, each with its share of what is chosen; the one that is pointed at in full below.
import { useMemo, useState } from "preact/hooks";
import { useAnswer } from "../ask.js";
import { Card, Table, Waiting } from "../card.js";
import { line, SERIES, useTheme } from "../colours.js";
import { html } from "../html.js";
import { layered } from "../layered.js";
import { brief, many, plural, size } from "../words.js";

const [WIDTH, HEIGHT, LETTERS] = [170, 46, 23];
const DRAWN = 2000; // layers
const MEASURES = [
  ["operations", "operations", many],
  ["parameters", "parameters", many],
  ["forward_s", "time of a forward", brief],
  ["bytes", "bytes", size],
  ["communication_s", "time of communication", brief],
];

export function Network({ id, tick, facts }) {
  const [measure, choose] = useState("operations");
  const [chosen, point] = useState(null);
  const [scale, zoom] = useState(1);
  return html`<${Card} name="network" title="Network" wide>${(seen) => {
    const answer = useAnswer("network", { run: id }, facts.state === "running" ? tick : 0, seen);
    const layers = answer.data?.layers ?? [];
    const shape = JSON.stringify(layers.map((one) => [one.name, one.inputs]));
    const plan = useMemo(() => (layers.length && layers.length <= DRAWN ? layered(layers, WIDTH, HEIGHT) : null), [shape]);
    if (!layers.length) return html`<${Waiting} answer=${answer} empty="This run has not recorded the layers of its network." />`;
    const [, words, format] = MEASURES.find(([name]) => name === measure);
    const one = layers.find(({ name }) => name === chosen) ?? layers[0];
    return html`<div class="tools">
        <label>Bars show <select onChange=${(event) => choose(event.target.value)}>${MEASURES.map(([name, text]) => html`<option value=${name} selected=${name === measure}>${text}</option>`)}</select></label>
        <button type="button" aria-label="smaller" disabled=${scale < 0.4} onClick=${() => zoom(scale / 1.25)}>−</button><button type="button" aria-label="larger" disabled=${scale > 2} onClick=${() => zoom(scale * 1.25)}>+</button>
        <span class="quiet">${plural(layers.length, "layer")}; ${total(layers, "parameters", many)} parameters, ${total(layers, "operations", many)} operations of a sample's forward</span>
      </div>
      ${plan ? html`<${Graph} plan=${plan} layers=${layers} measure=${measure} words=${words} format=${format} chosen=${one.name} point=${point} scale=${scale} />` : html`<p class="quiet">These are too many to be drawn.</p>`}
      <${Layer} layer=${one} samples=${answer.data.samples} route=${facts.route} />
      <details><summary>as a table</summary><${Table} caption="the layers of the network" right=${[3, 4, 5, 6, 7]}
        head=${["layer", "kind", "shape", "parameters", "operations", "forward", "bytes", "communication", "way"]}
        rows=${layers.map((of) => [of.name, of.kind, of.shape.join(" x "), many(of.parameters), many(of.operations), brief(of.forward_s), size(of.bytes), brief(of.communication_s), of.way])} /></details>`;
  }}<//>`;
}

const total = (layers, name, format) => format(layers.reduce((sum, one) => sum + (one[name] ?? 0), 0));

// One stop of the Tab key; the arrows go from layer to layer.
function Graph({ plan, layers, measure, words, format, chosen, point, scale }) {
  useTheme();
  const most = Math.max(...layers.map((one) => one[measure] ?? 0)) || 1;
  const move = (event) => {
    const by = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const to = Math.max(0, Math.min(layers.length - 1, layers.findIndex(({ name }) => name === chosen) + by));
    point(layers[to].name);
    event.currentTarget.querySelectorAll('[role="option"]')[to].focus();
  };
  return html`<div class="tall graph"><svg role="listbox" aria-label=${`Layers of the network by ${words}`} width=${plan.width * scale} height=${plan.height * scale} viewBox=${`0 0 ${plan.width} ${plan.height}`} onKeyDown=${move}>
    <g aria-hidden="true">${plan.edges.map((points) => html`<polyline class="edge" points=${points.map(({ x, y }) => `${x},${y}`).join(" ")} />`)}</g>
    ${layers.map((one) => {
      const { x, y } = plan.at[one.name];
      const share = (one[measure] ?? 0) / most;
      return html`<g key=${one.name} role="option" tabindex=${one.name === chosen ? 0 : -1} aria-selected=${one.name === chosen ? "true" : "false"} aria-label=${`${one.name}, ${one.kind}, ${words} ${format(one[measure])}`}
          transform=${`translate(${x - WIDTH / 2} ${y - HEIGHT / 2})`} onClick=${() => point(one.name)} onFocus=${() => point(one.name)}>
        <rect class="box" width=${WIDTH} height=${HEIGHT} rx="6" />
        <rect class="share" x="4" y=${HEIGHT - 8} width=${share * (WIDTH - 8)} height="5" rx="2" fill=${line(SERIES[0])} />
        <text x="8" y="16">${cut(one.name)}</text><text class="kind" x="8" y="32">${cut(`${one.kind} ${one.shape.join("x")}`)}</text>
        <title>${one.name}</title></g>`;
    })}</svg></div>`;
}

const cut = (text) => (text.length > LETTERS ? `…${text.slice(1 - LETTERS)}` : text);

function Layer({ layer, samples, route }) {
  const figures = [
    ["shape", layer.shape.join(" x ") || "–"],
    ["parameters", many(layer.parameters)],
    ["operations of a sample", many(layer.operations)],
    [`forward of ${plural(samples, "sample")}`, brief(layer.forward_s)],
    ...(layer.bytes === null ? [] : [["bytes", size(layer.bytes)], ["communication", brief(layer.communication_s)], ["compute blocked", brief(layer.blocked_s)]]),
    ...(layer.way ? [["way", layer.way]] : []),
  ];
  return html`<div role="status"><h3>${layer.name || "(the network itself)"} <span class="quiet">${layer.kind}, of ${layer.inputs.join(", ") || "nothing"}</span></h3>
    <dl class="figures">${figures.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>
    ${layer.bytes !== null && html`<p class="quiet">${layer.why && `${layer.why}; `}${layer.buckets.length > 1 || layer.buckets[0]?.includes(" .. ") ? `travels in ${layer.buckets.join(", ")}; ` : ""}${route}</p>`}</div>`;
}
