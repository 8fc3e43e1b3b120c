// Files that are dropped or chosen: found in their folders, and sent one by one into a new folder of the server's.
import { act } from "./ask.js";

const AT_ONCE = 4;

// [{file, name}]: name as a path from what was dropped on.
export async function dropped(transfer) {
  const items = [...transfer.items].map((one) => [one.webkitGetAsEntry(), one.getAsFile()]); // at once: later they are gone
  const found = items.map(([entry, file]) => (entry ? within(entry, "") : file ? [{ name: file.name, file }] : []));
  return (await Promise.all(found)).flat();
}

async function within(entry, above) {
  if (entry.name.startsWith(".")) return [];
  const name = above + entry.name;
  if (entry.isFile) return [{ name, file: await new Promise((resolve, reject) => { entry.file(resolve, reject); }) }];
  const reader = entry.createReader();
  const found = [];
  for (;;) { // some at a time, until there are no more
    const some = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
    if (!some.length) return (await Promise.all(found.map((one) => within(one, `${name}/`)))).flat();
    found.push(...some);
  }
}

// Sends all; where they are: their folder, or the one file. told: how many were sent so far. What is hidden stays here.
export async function send(all, told) {
  const files = all.filter(({ name }) => !name.split("/").some((part) => part.startsWith(".")));
  if (!files.length) throw new Error("there is no file in what was dropped; accepted: a folder of images or sounds, a table, arrays or text");
  const top = files[0].name.split("/")[0];
  const together = files.every(({ name }) => name.startsWith(`${top}/`));
  const { name: into, path } = await act("begin", { name: together ? top : top.replace(/\.\w+$/, "") });
  const left = [...files].reverse();
  let sent = 0;
  let last = path;
  const one = async () => {
    for (let next = left.pop(); next; next = left.pop()) {
      const name = together ? next.name.slice(top.length + 1) : next.name;
      last = (await put("upload", { into, name }, next.file)).path;
      told(sent += 1);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
  return files.length === 1 ? last : path;
}

// POST a file as it is.
export async function put(name, words, file) {
  const answer = await fetch(`/api/${name}?${new URLSearchParams(words)}`, { method: "POST", body: file });
  if (!answer.ok) throw new Error((await answer.text()).trim() || answer.statusText);
  return answer.json();
}
