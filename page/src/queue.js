// The queue of this machine: what runs where, who waits for what; and what can be changed of it.
import { useEffect, useRef, useState } from "preact/hooks";
import { act, useAnswer, useLive } from "./ask.js";
import { Card } from "./card.js";
import { SERIES, line } from "./colours.js";
import { html } from "./html.js";
import { Past } from "./past.js";
import { State } from "./runs.js";
import { duration, many, plural, ranges, size } from "./words.js";

const FIRST = 200; // runs that are listed: of more, the others come when they are asked for

export function Queue() {
  const [tick, there] = useLive("queue");
  const [changed, change] = useState(0);
  const [said, say] = useState("");
  const [shown, show] = useState(FIRST);
  const moved = useRef(null); // the button that was pressed: its row gets another place, and it keeps the keyboard
  const dragged = useRef(null);
  const { data, error } = useAnswer("queue", {}, `${tick} ${changed}`);
  useEffect(() => { document.title = "Queue – Volary"; }, []);
  useEffect(() => { moved.current?.focus(); moved.current = null; }, [data]);
  if (!data) return html`<main><h1>Queue</h1><p class=${error ? "error" : "quiet"} role=${error ? "alert" : "status"}>${error || "reading …"}</p></main>`;
  const tell = (run, name, body) => {
    say("");
    return act(name, { run: run.id }, body).catch((refused) => say(refused.message)).finally(() => change((count) => count + 1));
  };
  const move = {
    by: (run, by) => (event) => { moved.current = event.currentTarget; tell(run, "move", { by }); },
    // what is dragged takes the place of a run of its priority that it is dropped on
    drag: (run) => {
      const fits = () => dragged.current && dragged.current.id !== run.id && dragged.current.priority === run.priority;
      const among = ({ id }) => data.runs.filter((one) => one.state === "waiting" && one.priority === run.priority).findIndex((one) => one.id === id); // it may have been read anew meanwhile
      return {
        draggable: true,
        onDragStart: (event) => { dragged.current = run; event.dataTransfer.effectAllowed = "move"; },
        onDragOver: (event) => { if (fits()) { event.preventDefault(); event.currentTarget.classList.add("over"); } },
        onDragLeave: (event) => event.currentTarget.classList.remove("over"),
        onDrop: (event) => { event.preventDefault(); event.currentTarget.classList.remove("over"); if (fits()) tell(dragged.current, "move", { by: among(run) - among(dragged.current) }); },
        onDragEnd: () => { dragged.current = null; },
      };
    },
  };
  const here = data.runs.filter((run) => run.state !== "waiting");
  const waiting = data.runs.filter((run) => run.state === "waiting");
  const job = (run) => html`<${Job} key=${run.name + run.id} run=${run} starts=${data.starts} tell=${tell} move=${run.state === "waiting" ? move : null} />`;
  const order = [...new Set([...data.past, ...here].sort((one, other) => one.began_at - other.began_at).map((run) => run.name))];
  const colour = (name) => line(SERIES[order.indexOf(name) % SERIES.length]);
  return html`<main>
    <h1>Queue ${data.starts && html`<a class="button plain" href="#/new">New run</a>`}</h1>
    <p class="quiet">${data.runs.length === 0 ? "No run waits or runs in the queue of this machine." : `Runs that were submitted on this machine: ${here.length ? `${many(here.length)} running, ` : ""}${many(waiting.length)} waiting.`} <code>volary submit session.yaml</code> adds one.</p>
    ${data.remarks.map((text) => html`<p class="error">${text}</p>`)}
    ${!data.carried_out && html`<p class="error">Nobody starts what waits: the queue's runner is gone. <code>volary queue</code> starts another one${data.starts && ", and so does each change here"}.</p>`}
    ${!data.starts && html`<p class="quiet">This page is served beyond its own machine: it shows the queue, and changes nothing of it.</p>`}
    ${!there && html`<p class="error" role="alert">The server is gone: what is shown is not renewed.</p>`}
    ${(said || error) && html`<p class="error" role="alert">${said || error}</p>`}
    ${data.runs.length + data.past.length > 0 && html`<div class="cards">
      <${Card} name="machine" title="What runs where" wide>${() => html`${data.machines.map((machine) => html`<${Machine} key=${machine.name} machine=${machine} here=${here.filter((run) => run.host === machine.name)} colour=${colour} named=${data.machines.length > 1} />`)}
        <div class="shares">${here.map((run) => html`<span><i class="dot" style=${{ background: colour(run.name) }}></i>${run.name}</span>`)}${here.length === 0 && "nothing runs"}</div>`}<//>
      <${Card} name="past" title="Over time" wide>${() => html`<${Past} data=${data} colour=${colour} />`}<//>
      ${here.length > 0 && html`<${Card} name="running" title="Running" wide>${() => html`<ul class="jobs">${here.map(job)}</ul>`}<//>`}
      ${waiting.length > 0 && html`<${Card} name="waiting" title="Waiting, the next one first" wide>${() => html`<ul class="jobs">${waiting.slice(0, shown).map(job)}</ul>
        ${waiting.length > shown && html`<button type="button" onClick=${() => show((count) => count + FIRST)}>Show ${Math.min(FIRST, waiting.length - shown)} of ${many(waiting.length - shown)} more</button>`}`}<//>`}
    </div>`}
  </main>`;
}

function Machine({ machine, here, colour, named }) {
  const unit = (kind, taken) => (number) => {
    const run = here.find((one) => one[`given_${kind}s`].includes(number));
    const used = !run && taken.includes(number);
    const how = run ? run.name : used ? "used outside of the queue" : "free";
    return html`<span class=${used ? "unit used" : "unit"} data-run=${run?.name} title=${`${kind} ${number}: ${how}`} style=${run ? { borderBottomColor: colour(run.name) } : {}}>${number}<span class="unseen">: ${how};</span></span>`;
  };
  const asked = here.reduce((sum, run) => sum + run.memory_bytes, 0);
  return html`${named && html`<h3>${machine.name || "this machine"}</h3>`}<dl class="units">
      <dt>cores</dt><dd>${machine.cores.map(unit("core", machine.used_cores))}</dd>
      ${machine.gpus.length > 0 && html`<dt>GPUs</dt><dd>${machine.gpus.map(unit("gpu", machine.used_gpus))}</dd>`}
      <dt>memory</dt><dd>${size(asked)}${machine.memory_bytes !== null && html` of ${size(machine.memory_bytes)}
        <span class="bar" aria-hidden="true">${here.map((run) => html`<i title=${`${run.name} ${size(run.memory_bytes)}`} style=${{ background: colour(run.name), width: `${(100 * run.memory_bytes) / machine.memory_bytes}%` }}></i>`)}</span>`}</dd>
    </dl>`;
}

// move: gives what a button does, and what makes it draggable; null: it does not wait.
function Job({ run, starts, tell, move }) {
  const why = [run.reason, run.starts_in_s && `about ${duration(run.starts_in_s).replace(/ 0 s$/, "")}`].filter(Boolean).join("; ");
  const change = (event) => { if (event.target.value !== "" && event.target.validity.valid) tell(run, "priority", { value: event.target.valueAsNumber }); };
  const button = (word, name) => html`<button type="button" aria-label=${`${word} ${run.name}`} onClick=${() => tell(run, name)}>${word}</button>`;
  return html`<li data-run=${run.name} ...${move && starts && run.id !== null ? move.drag(run) : {}}>
    <div><p>${run.id === null ? html`${run.name} <span class="quiet">in another folder</span>` : html`<a href=${`#/run/${run.id}`}>${run.id}</a>`} <${State} state=${run.held && run.state === "waiting" ? "held" : run.state} /> ${why !== "held" && why}</p>
      <p class="quiet">${takes(run)}${!(starts && run.id !== null) && `, priority ${run.priority}`}</p></div>
    ${starts && run.id !== null && html`<div class="tools">
      <label>priority <input type="number" step="1" min="-1000000" max="1000000" aria-label=${`priority of ${run.name}`} value=${run.priority} onChange=${change} /></label>
      ${move && html`<button type="button" aria-label=${`move ${run.name} to the front`} title="to the front" onClick=${move.by(run, -1e6)}>⇈</button><button type="button" aria-label=${`move ${run.name} up`} onClick=${move.by(run, -1)}>↑</button><button type="button" aria-label=${`move ${run.name} down`} onClick=${move.by(run, 1)}>↓</button>`}
      ${run.held ? button("Release", "release") : button("Hold", "hold")}
      ${button("Cancel", "cancel")}
    </div>`}
  </li>`;
}

function takes(run) {
  const named = (kind, count, given) => (given.length ? `${kind}${given.length > 1 ? "s" : ""} ${ranges(given)}` : count ? plural(count, kind) : "");
  return [named("core", run.cores, run.given_cores), named("GPU", run.gpus, run.given_gpus), size(run.memory_bytes)].filter(Boolean).join(", ");
}
