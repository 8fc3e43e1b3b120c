// Bundles src/ into the two files that the package ships. What they were made of stands in their first line.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const target = join(here, "..", "src", "volary", "page", "static");
const licences = "uPlot (MIT, Leon Sorokin), preact (MIT, Jason Miller), htm (Apache-2.0, Jason Miller)";

function sources(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((one) =>
    one.isDirectory() ? sources(join(folder, one.name)) : [join(folder, one.name)]);
}

const name = (file) => relative(here, file).split(sep).join("/");
const files = [...sources(join(here, "src")), join(here, "package-lock.json"), join(here, "build.mjs")];
const hash = createHash("sha256");
for (const file of files.sort((a, b) => (name(a) < name(b) ? -1 : 1))) {
  hash.update(`${name(file)}\n`).update(readFileSync(file));
}
const head = `/* Built by page/build.mjs from ${hash.digest("hex")}. With ${licences}. */\n`;

const made = await build({
  entryPoints: { page: join(here, "src", "main.js") },
  bundle: true, minify: true, format: "iife", target: ["es2022"], charset: "utf8", legalComments: "none",
  outdir: target, write: false,
});
for (const { path, text } of made.outputFiles) writeFileSync(path, head + text);
