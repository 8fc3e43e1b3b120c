// What a run is good for: a file that is dropped is predicted, the samples that it is worst at are looked at, its model is taken along.
import { useState } from "preact/hooks";
import { act } from "../ask.js";
import { Card, Table } from "../card.js";
import { Pictures, shareOf } from "../data.js";
import { dropped, put } from "../drop.js";
import { html } from "../html.js";
import { many, number } from "../words.js";

const FORMS = [["safetensors", "Weights (.safetensors)"], ["onnx", "Network for ONNX (.onnx)"], ["pt2", "Network for PyTorch (.pt2)"]];
const PICTURE = /^image\/(png|jpeg|gif|webp|bmp)$/; // that browsers draw
const LARGEST = 8e6; // bytes of a picture that is drawn

// under: what is done now. refused: why something could not be.
function useWork() {
  const [state, set] = useState({ under: "", refused: "" });
  const work = (words, promise) => {
    set({ under: words, refused: "" });
    return promise.then(() => set({ under: "", refused: "" }), (error) => set({ under: "", refused: error.message }));
  };
  const said = html`<p role="status" class="quiet">${state.under}</p>${state.refused && html`<p class="error said" role="alert">${state.refused}</p>`}`;
  return [work, said, state.under !== ""];
}

export function Predict({ id }) {
  const [found, show] = useState(null);
  const [over, hover] = useState(false);
  const [work, said, busy] = useWork();
  const predict = async (file) => {
    if (!file) throw new Error("there is no file in what was dropped; accepted: an image, or a table");
    const [answer, picture] = await Promise.all([put("predict", { run: id, name: file.name }, file), drawn(file)]);
    show({ ...answer, name: file.name, picture });
  };
  const drop = (event) => { event.preventDefault(); hover(false); work("predicting …", dropped(event.dataTransfer).then((all) => predict(all[0]?.file))); };
  const pick = (event) => { work("predicting …", predict(event.target.files[0])); event.target.value = ""; };
  return html`<${Card} name="predict" title="Predict">${() => html`<div class=${over ? "drop over" : "drop"} onDragOver=${(event) => { event.preventDefault(); hover(true); }} onDragLeave=${() => hover(false)} onDrop=${drop}>
      <p>Drop an image or a table here, or ${" "}<label class="button plain">choose a file<input type="file" class="unseen" disabled=${busy} onChange=${pick} /></label></p>${said}</div>
    ${found && html`<${Answers} found=${found} />`}`}<//>`;
}

function drawn(file) {
  if (!PICTURE.test(file.type) || file.size > LARGEST) return Promise.resolve("");
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => resolve("");
    reader.readAsDataURL(file);
  });
}

function Answers({ found }) {
  const [first] = found.rows;
  const cells = (row) => (row.class === undefined ? [Object.entries(row).filter(([name]) => name !== "input").map(([, value]) => [value].flat(9).slice(0, 8).map(number).join(", ")).join("; ") || "could not be read", ""] : [row.class, shareOf(row.probability)]);
  const one = found.count === 1 && first.probabilities;
  return html`<div class="answer" role="status">${found.picture && html`<img src=${found.picture} alt=${found.name} />`}<div><p>${found.name}${one ? html`: <b>${first.class}</b>` : ""}</p>
    ${one ? html`<ul class="histogram counts">${Object.entries(first.probabilities).map(([name, share]) => html`<li><span>${name}</span><i style=${{ background: "var(--link)", width: `${100 * share}%` }}></i><span>${shareOf(share)}</span></li>`)}</ul>`
    : html`<${Table} caption="predictions" right=${[0, 2]} head=${["row", "answer", "probability"]} rows=${found.rows.map((row, at) => [many(at + 1), ...cells(row)])} />${found.count > found.rows.length && html`<p class="quiet">and ${many(found.count - found.rows.length)} more rows</p>`}`}</div></div>`;
}

export function Worst({ id }) {
  const [found, show] = useState(null);
  const [work, said, busy] = useWork();
  const find = () => work("measuring …", act("worst", { run: id }).then(show));
  const words = (one) => [html`<b>${one.answer}</b>${one.share === null ? "" : ` ${shareOf(one.share)}`}`, one.answer === one.target ? "which is right" : `is ${one.target}`];
  return html`<${Card} name="worst" title="What it is worst at" size="major">${() => html`<div class="tools"><button type="button" disabled=${busy} onClick=${find}>${found ? "Measure again" : "Find the worst samples"}</button></div>${said}
    ${found && html`<p class="quiet">The validation samples with the greatest losses, by the checkpoint of step ${many(found.step)}: what it says, and what is right.</p>
      <${Pictures} all=${found.worst.map((one) => ({ link: one.link, words: words(one), told: `${one.name.split("/").slice(-2).join("/") || `sample ${one.number}`}, loss ${number(one.loss)}` }))} />`}`}<//>`;
}

export function Export({ id }) {
  const [work, said, busy] = useWork();
  const take = async (form) => {
    const answer = await fetch(`/api/export?${new URLSearchParams({ run: id, form })}`, { method: "POST" });
    if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await answer.blob());
    link.download = `${id.split("/").at(-1)}.${form}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000); // the browser may still read it
  };
  return html`<${Card} name="export" title="Take the model along" size="minor">${() => html`<div class="tools">${FORMS.map(([form, words]) => html`<button type="button" disabled=${busy} onClick=${() => work("exporting …", take(form))}>${words}</button>`)}</div>${said}`}<//>`;
}
