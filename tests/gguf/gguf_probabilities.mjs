// gguf_probabilities.mjs FOLDER NODE_MODULES: llama.cpp's probabilities of the model that
// gguf_probabilities wrote there, against Lockstep's. llama.cpp keeps keys and values in fp16.
import fs from "node:fs";
import path from "node:path";
import {pathToFileURL} from "node:url";

const bound = 1e-3;
const [folder, modules] = process.argv.slice(2);
const {getLlama} = await import(
  pathToFileURL(path.resolve(modules, "node-llama-cpp/dist/index.js")).href);
const wanted = JSON.parse(fs.readFileSync(path.join(folder, "wanted.json"), "utf8"));

const llama = await getLlama({gpu: false, build: "never", progressLogs: false, logLevel: "error"});
const model = await llama.loadModel({modelPath: path.join(folder, "model.gguf"), gpuLayers: 0});
const fail = (why) => { console.error(why); process.exit(1); };

const ids = model.tokenize(wanted.text);
if (JSON.stringify(ids) !== JSON.stringify(wanted.ids)) {
  fail(`other ids for the text:\n  ${ids}\n  ${wanted.ids}`);
}
if (model.detokenize(ids) !== wanted.text) fail("the ids give another text");

const context = await model.createContext({contextSize: 64});
const options = {temperature: 1, topK: 0, topP: 1, minP: 0};
const results = await context.getSequence().controlledEvaluate(
  ids.map((id) => [id, {generateNext: {probabilities: true, options}}]));
let largest = 0;
wanted.probabilities.forEach((row, position) => {
  const theirs = results[position].next.probabilities;
  if (theirs.size !== row.length) fail(`${theirs.size} probabilities of ${row.length}`);
  let sum = 0;
  row.forEach((ours, id) => {
    largest = Math.max(largest, Math.abs(ours - theirs.get(id)));
    sum += theirs.get(id);
  });
  if (Math.abs(sum - 1) > 1e-3) fail(`probabilities sum to ${sum}`);
});
const sure = Math.max(...wanted.probabilities.flat());
console.log(`${ids.length} positions, largest difference in probability ${largest.toExponential(2)}, ` +
  `largest probability ${sure.toFixed(2)}`);
process.exit(largest <= bound ? 0 : 1);
