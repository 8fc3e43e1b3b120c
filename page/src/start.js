// A new run: from data, of which a session is made, or from a session file of the folder that the page was started in.
import { useState } from "preact/hooks";
import { act, useAnswer } from "./ask.js";
import { Data } from "./data.js";
import { SettingsForm } from "./form.js";
import { html } from "./html.js";

const show = ({ run }) => { location.hash = run ? `#/run/${encodeURI(run)}` : "#/queue"; };

export function Start() {
  const files = useAnswer("sessions", {}, 0);
  const [way, go] = useState(""); // data or file
  if (!files.data) return html`<main><h1>New run</h1><p class="quiet">${files.error || "reading …"}</p></main>`;
  if (!files.data.starts) return html`<main><h1>New run</h1><p>This page is served beyond its own machine, and starts nothing there.</p></main>`;
  const names = files.data.files;
  const from = way || (names.length ? "file" : "data");
  const choice = (name, words) => html`<label><input type="radio" name="way" checked=${from === name} onChange=${() => go(name)} /> ${words}</label>`;
  return html`<main>
    <h1>New run</h1>
    <fieldset class="chosen tools"><legend>begin with</legend>${choice("data", "data")}${choice("file", "a session file")}</fieldset>
    ${from === "data" ? html`<${FromData} />` : names.length ? html`<${FromFile} files=${files.data} />` : html`<p>There is no session file in the folder that the page was started in. <code>volary init</code> writes one.</p>`}
  </main>`;
}

function FromFile({ files }) {
  const [chosen, choose] = useState("");
  const name = files.files.includes(chosen) ? chosen : files.first || files.files[0];
  const stem = name.split("/").at(-1).replace(/\.ya?ml$/, "").replace(/[^\w-]/g, "-");
  const start = (overrides, { text, queue }) => (text === null ? act("train", { session: name }, { overrides, queue }) : act("create", {}, { text, overrides, name: stem, queue })).then(show);
  return html`<div class="tools"><label>Session file <select onChange=${(event) => choose(event.target.value)}>${files.files.map((one) => html`<option value=${one} selected=${one === name}>${one}</option>`)}</select></label></div>
    <${SettingsForm} key=${name} of=${{ session: name }} words=${`volary train ${name}`} verb="Start" start=${start} />`;
}

function FromData() {
  const [found, look] = useState(null);
  const [name, call] = useState("session");
  const start = (overrides, { text, queue }) => act("create", {}, { text, overrides, name, queue }).then(show);
  const see = (next) => {
    look(next);
    const stem = next?.path.split("/").at(-1).replace(/\.\w+$/, "").replace(/[^\w-]/g, "-").replace(/^[^A-Za-z0-9]+/, "");
    if (stem) call(stem);
  };
  return html`<${Data} found=${found} see=${see} />
    ${found?.session && html`<h2 class="part">The session</h2>
      <div class="tools"><label>File <input value=${name} size="24" pattern="[A-Za-z0-9][\\w\\-]*" onInput=${(event) => call(event.target.value)} />.yaml</label></div>
      <${SettingsForm} key=${found.session} of=${{ text: found.session }} words=${`volary train ${name}.yaml`} verb="Start" start=${start} />`}`;
}
