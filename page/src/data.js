// Data to train on: a path that is typed, or files that are dropped; and what is in it.
import { useEffect, useId, useState } from "preact/hooks";
import { act, ask } from "./ask.js";
import { Card, Table } from "./card.js";
import { dropped, send } from "./drop.js";
import { html } from "./html.js";
import { many, number, percent, plural } from "./words.js";

const CLASSES = 40; // that are listed
const TYPING_MS = 150;
const KINDS = { images: "Images", sounds: "Sounds", table: "A table", arrays: "Arrays", text: "Text" };

// see: told what was found, or null while it is looked for.
export function Data({ found, see }) {
  const [path, type] = useState("");
  const [under, wait] = useState("");
  const [refused, refuse] = useState("");
  const [over, hover] = useState(false);
  const look = (place, target = "") => {
    refuse("");
    wait("looking …");
    return act("look", { path: place, target }).then(see);
  };
  const done = (work) => work.catch((error) => refuse(error.message)).finally(() => wait(""));
  const upload = (files) => done(files.then((all) => {
    see(null);
    return send(all, (sent) => wait(`sent ${many(sent)} of ${plural(all.length, "file")}`));
  }).then((place) => { type(place); return look(place); }));
  const drop = (event) => { event.preventDefault(); hover(false); refuse(""); upload(dropped(event.dataTransfer)); };
  const pick = (event) => { upload(Promise.resolve([...event.target.files].map((file) => ({ file, name: file.webkitRelativePath || file.name })))); event.target.value = ""; };
  return html`<div class=${over ? "drop over" : "drop"} onDragOver=${(event) => { event.preventDefault(); hover(true); }} onDragLeave=${() => hover(false)} onDrop=${drop}>
      <form class="tools" onSubmit=${(event) => { event.preventDefault(); see(null); done(look(path)); }}>
        <${Path} path=${path} type=${type} /><button type="submit" disabled=${!!under || !path}>Look</button></form>
      <p>A folder with a folder of images or sounds (WAV) for each class; a table: CSV, Parquet or Arrow; NumPy's arrays; or text. Or drop it here, or ${" "}
        <label class="button plain">choose a folder<input type="file" class="unseen" webkitdirectory onChange=${pick} /></label> <label class="button plain">choose files<input type="file" class="unseen" multiple onChange=${pick} /></label></p>
      <p role="status" class="quiet">${under}</p>
      ${refused && html`<p class="error said" role="alert">${refused}</p>`}
    </div>
    ${found && html`<${Found} found=${found} aim=${(target) => done(look(found.path, target))} />`}`;
}

function Path({ path, type }) {
  const id = useId();
  const [offered, offer] = useState([]);
  useEffect(() => {
    const soon = setTimeout(() => ask("places", { path }).then(offer, () => offer([])), TYPING_MS);
    return () => clearTimeout(soon);
  }, [path]);
  return html`<label>Path on this machine <input size="48" list=${id} value=${path} spellcheck="false" autocomplete="off" onInput=${(event) => type(event.target.value)} /></label>
    <datalist id=${id}>${offered.map((one) => html`<option value=${one.folder ? `${one.path}/` : one.path}></option>`)}</datalist>`;
}

function Found({ found, aim }) {
  const classes = Object.entries(found.classes);
  const most = Math.max(1, ...classes.map(([, count]) => count));
  const parts = Object.entries(found.parts).map(([name, count]) => `${plural(count, "sample")} ${name === "train" ? "to train on" : "to validate with"}`)
    .concat(Object.entries(found.facts).map(([name, count]) => `${many(count)} ${count === 1 ? name.replace(/s$/, "") : name}`));
  return html`<div class="cards">
    <${Card} name="data" title="What is in it" wide>${() => html`<p>${KINDS[found.kind]}: ${parts.join(", ")}${classes.length > 0 && (classes.length === 1 ? ", 1 class" : `, ${many(classes.length)} classes`)}. <span class="quiet">${found.path}</span></p>
      ${found.remarks.map((text) => html`<p class=${found.session ? "quiet" : "error"} role=${found.session ? null : "alert"}>${text}</p>`)}
      ${found.columns.length > 0 && html`<div class="tools"><label>Predict <select onChange=${(event) => aim(event.target.value)}>${found.columns.filter((one) => one.kind !== "image").map((one) => html`<option value=${one.name} selected=${one.name === found.target}>${one.name}</option>`)}</select></label></div>
        <${Table} caption=${found.kind === "arrays" ? "arrays" : "columns"} right=${[2, 3, 4, 5, 6, 7]} head=${[found.kind === "arrays" ? "array" : "column", "kind", "missing", "distinct", "least", "mean", "deviation", "greatest"]}
          rows=${found.columns.map((one) => [html`${one.name}${one.name === found.target && html` <span class="tag">target</span>`}`, one.kind, many(one.missing), many(one.distinct), ...[one.least, one.mean, one.std, one.greatest].map((value) => (value === null ? "" : number(value)))])} />`}`}<//>
    ${classes.length > 0 && html`<${Card} name="classes" title="Classes">${() => html`<ul class="histogram counts">${classes.slice(0, CLASSES).map(([name, count]) => html`<li><span>${name}</span><i style=${{ background: "var(--link)", width: `${(100 * count) / most}%` }}></i><span>${many(count)}</span></li>`)}</ul>
      ${classes.length > CLASSES && html`<p class="quiet">and ${many(classes.length - CLASSES)} more</p>`}`}<//>`}
    ${found.pictures.length > 0 && html`<${Card} name="samples" title="Some samples" size="major">${() => html`<${Pictures} all=${found.pictures.map((one) => ({ link: one.link, words: [one.of_class], told: `${one.name}, ${one.size}` }))} />`}<//>`}
    ${found.excerpt && html`<${Card} name="excerpt" title="How it begins" size="major">${() => html`<pre class="written">${found.excerpt}</pre>`}<//>`}
  </div>`;
}

// all: {link, words, told}: a picture or none, what stands below it, line by line, and what it is.
export function Pictures({ all }) {
  return html`<ul class="pictures">${all.map((one) => html`<li title=${one.told}>${one.link ? html`<img src=${one.link} alt=${one.told} />` : html`<span class="quiet">${one.told}</span>`}${one.words.map((text) => html`<span>${text}</span>`)}</li>`)}</ul>`;
}

export const shareOf = (share) => (share >= 0.9995 && share < 1 ? "> 99.9 %" : share < 0.1 ? `${(100 * share).toFixed(1)} %` : percent(share));
