// What a run can be told: to end after its step, to write a checkpoint, to learn at another rate, to take a worker more, to
// go on with other settings, to bear tags, to be gone.
import { useRef, useState } from "preact/hooks";
import { act, report } from "./ask.js";
import { SettingsForm } from "./form.js";
import { html } from "./html.js";

// remove: called when the run is to be gone. refused: why it could not be.
export function Actions({ id, facts, remove, refused }) {
  const [said, say] = useState(refused);
  const [open, show] = useState(""); // which form
  const [joining, wait] = useState(false);
  const asks = useRef(null);
  if (report) return facts.tags.length || facts.note ? html`<${Tags} facts=${facts} />` : null;
  const live = facts.state === "running";
  const tell = (name, body) => { say(""); return act(name, { run: id }, body).catch((error) => { say(error.message); throw error; }); };
  const save = (event) => {
    event.preventDefault();
    const { tags, note } = Object.fromEntries(new FormData(event.target));
    tell("tags", { tags: [...new Set(tags.split(/[\s,]+/).filter(Boolean))], note }).then(() => show(""), () => {});
  };
  const change = (event) => {
    event.preventDefault();
    tell("rate", { lr: new FormData(event.target).get("lr").trim() }).then(() => show(""), () => {});
  };
  const join = () => { wait(true); tell("join", { workers: 1 }).catch(() => {}).finally(() => wait(false)); };
  const resume = (overrides) => act("resume", { run: id }, { overrides }).then(() => show(""));
  const cancel = html`<button type="button" onClick=${() => show("")}>Cancel</button>`;
  return html`<div class="tools actions">
    ${live && html`<button type="button" disabled=${facts.stopping} onClick=${() => tell("stop").catch(() => {})}>Stop after this step</button>`}
    ${live && !facts.own_loop && html`<button type="button" disabled=${facts.stopping} onClick=${() => tell("save").catch(() => {})}>Checkpoint now</button>`}
    ${live && !facts.own_loop && open !== "rate" && html`<button type="button" disabled=${facts.stopping} onClick=${() => show("rate")}>Learning rate …</button>`}
    ${live && open === "rate" && html`<form class="tools" onSubmit=${change}>
      <label>Learning rate before the schedule <input name="lr" size="10" inputmode="decimal" required defaultValue=${facts.lr ?? ""} /></label>
      <button type="submit">Change</button>${cancel}</form>`}
    ${open !== "tags" && html`<${Tags} facts=${facts} /><button type="button" onClick=${() => show("tags")}>${facts.tags.length || facts.note ? "Edit tags and note" : "Tags and note"}</button>`}
    ${facts.may_join && html`<button type="button" disabled=${facts.stopping || joining} onClick=${join}>${joining ? "adding a worker …" : "Add a worker"}</button>`}
    ${!live && !facts.own_loop && open !== "resume" && html`<button type="button" onClick=${() => show("resume")}>Resume …</button>`}
    ${!live && html`<button type="button" onClick=${() => asks.current.showModal()}>Delete …</button>`}
    ${open === "tags" && html`<form class="tools" onSubmit=${save}>
      <label>Tags <input name="tags" defaultValue=${facts.tags.join(" ")} /></label>
      <label>Note <input name="note" size="40" defaultValue=${facts.note} /></label>
      <button type="submit">Save</button>${cancel}</form>`}
    ${said && html`<p class="error" role="alert">${said}</p>`}
    ${!live && open === "resume" && html`<${SettingsForm} of=${{ run: id }} words=${`volary resume ${id}`} verb="Resume" start=${resume} cancel=${() => show("")} />`}
    <dialog ref=${asks} aria-labelledby="asked"><h2 id="asked">Delete ${id}?</h2>
      <p>Its checkpoints, logs and everything else in its folder go with it. This cannot be undone.</p>
      <form method="dialog" class="tools"><button autofocus>Keep it</button><button type="button" class="grave" onClick=${remove}>Delete</button></form></dialog>
  </div>`;
}

export function Tags({ facts }) {
  return html`${facts.tags.map((one) => html`<span class="tag">${one}</span>`)}${facts.note && html`<span class="quiet">${facts.note}</span>`}`;
}
